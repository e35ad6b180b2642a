"""What runs before and after a kernel, and where in the step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from brrrtop.model.estimate import Neighbours, Steps
from brrrtop.model.intervals import holders
from brrrtop.model.tables import F8, I8, Window, edges

LATEST = 20_000
"""Activities looked at: the end of the window is as good as the whole, and costs the same always."""
NAMES = 64
"""Kernel names looked up, dearest first."""
BESIDE = 4
"""Shown on either side."""
NEAR = 64
"""Activities searched on either side for those of the same stream."""


def find_neighbours(window: Window, names: Iterable[str], steps: Steps) -> dict[str, Neighbours]:
    """The surroundings of each kernel name that ran lately.

    Args:
        names: Dearest first; more than `NAMES` are not looked at.
    """
    acts = window.activities
    ids = acts.name_ids[-LATEST:]
    if not len(ids):
        return {}
    starts, streams = acts.starts_ns[-LATEST:], acts.stream_ids[-LATEST:]
    order = np.argsort(ids, kind="stable")
    known, first = np.unique(ids[order], return_index=True)
    groups = dict(zip(known.tolist(), np.split(order, first[1:]), strict=True))
    ids_of = {window.names[i]: i for i in known.tolist()}
    places = _places(starts, steps)
    neighbours: dict[str, Neighbours] = {}
    for name in list(dict.fromkeys(names))[:NAMES]:
        if name not in ids_of:
            continue
        rows = groups[ids_of[name]]
        around, at = _around(int(rows[len(rows) // 2]), streams)
        inside = places[rows]
        inside = inside[~np.isnan(inside)]
        neighbours[name] = Neighbours(
            tuple(window.names[i] for i in ids[around].tolist()),
            at,
            float(np.median(inside)) if len(inside) else None,
        )
    return neighbours


def _around(row: int, streams: I8) -> tuple[I8, int]:
    """Rows of the same stream beside `row`, and its own position among them."""
    low = max(0, row - NEAR)
    same = np.flatnonzero(streams[low : row + NEAR + 1] == streams[row]) + low
    at = int(np.searchsorted(same, row))
    left = max(0, at - BESIDE)
    return same[left : at + BESIDE + 1], at - left


def _places(starts_ns: I8, steps: Steps) -> F8:
    """Where in its step each start lies, 0..1; NaN outside of all steps."""
    places = np.full(len(starts_ns), np.nan)
    if not steps.spans:
        return places
    begins, ends = edges(steps.spans)
    which = holders(begins, ends, starts_ns)
    inside = which >= 0
    lengths = np.maximum(ends - begins, 1)[which]
    places[inside] = ((starts_ns - begins[which]) / lengths)[inside]
    return places
