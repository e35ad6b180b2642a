"""How the optimizer's update runs: per parameter, in lists (foreach), or in one kernel (fused)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from brrrtop.analysis.kernels.traits import Role, Trait, used
from brrrtop.analysis.signals.joined import Joined, mark_spans
from brrrtop.model import intervals
from brrrtop.model.tables import Bool
from brrrtop.model.vocabulary import MarkClass

_STEP = re.compile(r"Optimizer\.step#(\w+)\.step")
"""torch.optim names the range of an update after the optimizer's class."""
NEAR_ROWS = 12
"""Kernels between two telling ones of an unfused update, at most."""


@dataclass(frozen=True, slots=True)
class Optimizer:
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
    foreach, fused = joined.has(Trait.FOREACH), joined.has(Trait.FUSED_STEP)
    parts = joined.has(Trait.ADAM_PART) & ~foreach & ~joined.is_role(Role.FUSED)
    if fused.any():  # the model's own interpolation, as of a recurrent cell's states
        parts[:] = False
    rows = joined.in_optimizer & joined.kernels
    if not ranged and not _believable(rows, parts, foreach | fused):
        rows = joined.kernels & (joined.is_role(Role.OPTIMIZER) | _around(parts))
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
    found = {hit[1] for i in ids if (hit := _STEP.match(window.names[i]))}
    return found.pop() if len(found) == 1 else None


def _around(parts: Bool) -> Bool:
    """Rows from one part of an unfused update to the next, where they are near each other.

    An Adam step is at most eight kernels a parameter, three of them with telling functors.
    """
    at = np.flatnonzero(parts)
    edge = np.zeros(len(parts) + 1, np.int64)
    near = np.flatnonzero(np.diff(at) <= NEAR_ROWS)
    np.add.at(edge, at[near], 1)
    np.add.at(edge, at[near + 1], -1)
    return np.asarray((np.cumsum(edge[:-1]) > 0) | parts)


def _believable(rows: Bool, parts: Bool, lists: Bool) -> bool:
    """Whether rows found without ranges look like an update, not like clipping or logging."""
    if not rows.any() or (rows & lists).any():
        return False
    return bool((rows & parts).sum() * 10 >= rows.sum())


def _span_ns(joined: Joined, rows: Bool) -> int:
    """Kernel time of `rows` and the gaps between neighbours of them, not those to other work."""
    at = np.flatnonzero(rows)
    activities = joined.window.activities
    near = np.diff(at) == 1
    gaps = (activities.starts_ns[at[1:]] - activities.ends_ns[at[:-1]])[near]
    return joined.total_ns(rows) + int(np.maximum(gaps, 0).sum())
