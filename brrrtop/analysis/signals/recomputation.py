"""Whether the backward pass repeats the forward one, as activation checkpointing does."""

from __future__ import annotations

import numpy as np

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.analysis.signals.joined import Joined
from brrrtop.model.tables import I8, edges


def _bursts(joined: Joined) -> I8:
    """Number of the traced span of each activity; all 0 when everything was traced."""
    starts = joined.window.activities.starts_ns
    observed = joined.window.observed
    if observed is None:
        return np.zeros(len(starts), np.int64)
    return np.searchsorted(edges(observed)[0], starts, "right")


def recomputed_ns(joined: Joined, steps: float | None) -> int | None:
    """Time of forward work that runs again between backward work; None where names do not tell.

    Attention and norm kernels say which pass they are of. A step has one long run of forward ones
    and then backward ones; with checkpointing each block's few forward kernels come again before
    its backward ones: runs of at most half the longest, at least three for each long one.

    Args:
        joined: The window's activities.
        steps: Steps in it; None when unknown. Each has its long run, else a long one is an accident.
    """
    at = np.flatnonzero(joined.is_role(Role.ATTENTION, Role.NORM) & joined.kernels)
    back = joined.has(Trait.BACKWARD)[at]
    if not back.any() or back.all():
        return None
    cut = np.diff(_bursts(joined)[at]) != 0
    edges = np.flatnonzero((np.diff(back.astype(np.int64)) != 0) | cut) + 1
    first, stop = np.concatenate(([0], edges)), np.concatenate((edges, [len(back)]))
    forward, lengths = ~back[first], stop - first
    # A run cut at the edge of what was traced may be longer than it looks.
    loose = np.concatenate(([True], cut, [True]))
    most = int(lengths[forward].max())
    long = forward & (lengths > most // 2)
    short = forward & ~long & ~loose[first] & ~loose[stop]
    whole, runs = int(long.sum()), int(short.sum())
    if most < 4 or whole < (0.5 * steps if steps else 2) or runs < 3 * whole:
        return 0
    # A kernel of known pass stands for those up to the next one, its block's products among them.
    running = np.cumsum(np.where(joined.kernels, joined.durations_ns, 0))[at]
    within = np.repeat(long, lengths)
    each_ns = float(np.median(np.diff(running)[within[1:] & within[:-1]]))
    again = int(lengths[short].sum())
    # What a step recomputes first hides in its long run: forward kernels beyond the backward ones.
    names = joined.window.activities.name_ids[at]
    twice = int((~back).sum()) - int(np.bincount(names[back]).max())
    return int(each_ns * min(max(twice, again), again * (1 + whole / runs)))
