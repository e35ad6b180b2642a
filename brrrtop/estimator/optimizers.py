"""How the optimizer's update runs: per parameter, in lists (foreach), or in one kernel (fused)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brrrtop.estimator import intervals
from brrrtop.estimator.joined import Joined, mark_spans
from brrrtop.estimator.traits import Role, Trait
from collectors.wire import MarkClass


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Optimizer kernels of the window."""

    marked: bool
    """Its ranges were seen; else it was recognised by its kernels."""
    updates: int | None
    """Optimizer steps seen; None without marks."""
    kernels: int
    single: int
    """Kernels that touch one tensor."""
    foreach: int
    fused: int
    total_ns: int
    """Kernel time."""
    host_ns: int | None
    """Host time in its ranges; None without marks."""
    span_ns: int
    """Device wall time from the first to the last kernel of each update, gaps included."""


def optimizer(joined: Joined) -> Optimizer | None:
    """The optimizer in the window; None when neither marks nor kernels show one."""
    starts, ends = mark_spans(joined.window, MarkClass.OPTIMIZER)
    marked = bool(joined.in_optimizer.any())
    if marked:
        rows = joined.in_optimizer & joined.kernels
    else:
        rows = joined.kernels & (
            joined.is_role(Role.OPTIMIZER)
            | (joined.has(Trait.ADAM_PART) & ~joined.has(Trait.FOREACH))
        )
    if not rows.any():
        return None
    foreach = joined.has(Trait.FOREACH) & rows
    fused = joined.has(Trait.FUSED_STEP) & rows
    low, high = intervals.clip(starts, ends, joined.window.span.t0_ns, joined.window.span.t1_ns)
    return Optimizer(
        marked=marked,
        updates=len(starts) if marked else None,
        kernels=int(rows.sum()),
        single=int((rows & ~foreach & ~fused).sum()),
        foreach=int((foreach & ~fused).sum()),
        fused=int(fused.sum()),
        total_ns=joined.total_ns(rows),
        host_ns=intervals.total(low, high) if marked else None,
        span_ns=_span_ns(joined, rows, starts, ends) if marked else joined.total_ns(rows),
    )


def _span_ns(joined: Joined, rows: object, starts: object, ends: object) -> int:
    """First start to last end of the kernels launched within each optimizer range."""
    at = np.flatnonzero(np.asarray(rows))
    update = np.searchsorted(np.asarray(starts), joined.launched_ns[at], "right")
    activities = joined.window.activities
    order = np.argsort(update, kind="stable")
    at, update = at[order], update[order]
    first = np.flatnonzero(np.diff(update, prepend=-1))
    low = np.minimum.reduceat(activities.starts_ns[at], first)
    high = np.maximum.reduceat(activities.ends_ns[at], first)
    return int((high - low).sum())
