"""A recorded window with no more said of its ops than a live recording of one step says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from brrrtop.session.opsigns import half_of, signed
from brrrtop.tables import Links, OpSignature, Window


def with_live_shapes(window: Window) -> Window:
    """Names and shapes of tensors stay; types, constants and lists of tensors go.

    That each kernel gets its own op is tried in tests/session/test_shapes_on_traces.py.
    """
    plain = {number: _plain(op) for number, op in window.ops.items()}
    step = list(plain.values())
    half = half_of(window.names[i] for i in np.unique(window.activities.name_ids).tolist())
    told: dict[tuple[OpSignature, str], OpSignature | None] = {}
    numbers: dict[OpSignature, int] = {}
    links = dict(zip(window.links.correlations.tolist(), window.links.op_ids.tolist(), strict=True))
    rows = []
    for correlation, name_id in zip(
        window.activities.correlations.tolist(), window.activities.name_ids.tolist(), strict=True
    ):
        op, name = plain.get(links.get(correlation, -1)), window.names[name_id]
        if op is None:
            continue
        if (op, name) not in told:
            told[op, name] = signed(op, name, step, half)
        known = told[op, name]
        if known is not None:
            rows.append((correlation, numbers.setdefault(known, len(numbers) + 1)))
    columns = np.array(sorted(rows), np.int64).reshape(-1, 2)
    ops = {number: op for op, number in numbers.items()}
    return replace(window, links=Links(columns[:, 0], columns[:, 1]), ops=ops)


def _plain(op: OpSignature) -> OpSignature:
    dims = tuple(one if one and isinstance(one[0], int) else () for one in op.dims)
    return OpSignature(op.name, dims)
