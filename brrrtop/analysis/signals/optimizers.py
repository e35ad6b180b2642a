"""How the optimizer's update runs: per parameter, in lists (foreach), or in one kernel (fused)."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from brrrtop.analysis.kernels.traits import Role, Trait, used
from brrrtop.analysis.signals.joined import Joined, mark_spans
from brrrtop.model import intervals
from brrrtop.model.tables import Bool
from brrrtop.model.vocabulary import MarkClass

_STEP = re.compile(r"Optimizer\.step#(\w+)\.step")
"""torch.optim names the range of an update after the optimizer's class."""


class Optimizer(Struct, frozen=True):
    """Optimizer kernels of the window."""

    updates: int | None
    """Optimizer steps seen; None without marks."""
    kernels: int
    total_ns: int
    """Kernel time."""
    host_ns: int | None
    """Host time in its ranges; None without marks."""
    span_ns: int
    """Their time on the device with the gaps between neighbours."""
    kind: str | None = None
    """Class of the optimizer, as `SGD`; None where nobody names it, or several differ."""


def optimizer(joined: Joined) -> Optimizer | None:
    """The optimizer in the window; None when neither marks nor kernels show one."""
    starts, ends = mark_spans(joined.window, MarkClass.OPTIMIZER)
    ranged = bool(len(starts)) and bool(joined.in_optimizer.any())
    rows = joined.in_optimizer & joined.kernels
    if not ranged and not _believable(joined, rows):
        rows = joined.kernels & joined.is_role(Role.OPTIMIZER)
    if not rows.any():
        return None
    low, high = intervals.clip(starts, ends, joined.window.span.t0_ns, joined.window.span.t1_ns)
    return Optimizer(
        updates=len(starts) if ranged else None,
        kernels=int(rows.sum()),
        total_ns=joined.total_ns(rows),
        host_ns=intervals.total(low, high) if ranged else None,
        span_ns=_span_ns(joined, rows),
        kind=_kind(joined),
    )


def _kind(joined: Joined) -> str | None:
    window = joined.window
    ids = used(window.marks.name_ids, window.marks.classes == MarkClass.OPTIMIZER)
    kinds = {hit[1] for i in ids if (hit := _STEP.match(window.names[i]))}
    return kinds.pop() if len(kinds) == 1 else None


def _believable(joined: Joined, rows: Bool) -> bool:
    """Whether rows without ranges are an update per parameter, not clipping or logging: a tenth of them
    are parts of Adam's. Beside a fused update those are the model's own, as of a recurrent cell's states."""
    if (
        not rows.any()
        or (rows & joined.has(Trait.FOREACH)).any()
        or joined.has(Trait.FUSED_STEP).any()
    ):
        return False
    parts = rows & joined.has(Trait.ADAM_PART) & ~joined.is_role(Role.FUSED)
    return bool(parts.sum() * 10 >= rows.sum())


def _span_ns(joined: Joined, rows: Bool) -> int:
    """Kernel time of `rows` and the gaps between neighbours of them, not those to other work."""
    at = np.flatnonzero(rows)
    activities = joined.window.activities
    near = np.diff(at) == 1
    gaps = (activities.starts_ns[at[1:]] - activities.ends_ns[at[:-1]])[near]
    return joined.total_ns(rows) + int(np.maximum(gaps, 0).sum())
