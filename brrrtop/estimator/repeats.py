"""Whether steps launch the same kernels, and whether the backward pass repeats the forward one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brrrtop.estimator.joined import Joined
from brrrtop.estimator.traits import Role, Trait
from brrrtop.model import Steps
from brrrtop.tables import I8

_MIX, _TWO = np.uint64(0x9E3779B97F4A7C15), np.uint64(2)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Kernel sequences of the window's whole steps."""

    steps: int
    """Whole steps compared."""
    identical: int
    """Steps that launched the commonest sequence of names, grids and blocks."""
    kernels_p50: int
    """Kernels and copies a step."""
    grid_ratio: float | None
    """Mean blocks a kernel of the last step over those of the first; None for under two steps."""


def repeats(joined: Joined, steps: Steps) -> Repeats | None:
    """Compares the steps of the window; None when they are unknown."""
    if not steps.spans:
        return None
    activities = joined.window.activities
    edges = np.array([(span.t0_ns, span.t1_ns) for span in steps.spans], np.int64)
    low, high = np.searchsorted(activities.starts_ns, edges).T
    low, high = low[high > low], high[high > low]
    if not len(low):
        return None
    keys = _keys(joined)
    place = np.arange(len(keys), dtype=np.uint64) * _TWO
    # Order counts: each key is weighted by its place in its step, in wrapping arithmetic.
    weighted = _between(keys * place, low, high) - low.astype(np.uint64) * _TWO * _between(
        keys, low, high
    )
    hashes = weighted + _between(keys, low, high)
    _, commonest = np.unique(hashes, return_counts=True)
    blocks = _between(activities.blocks.astype(np.uint64), low, high) / (high - low)
    return Repeats(
        steps=len(low),
        identical=int(commonest.max()),
        kernels_p50=int(np.median(high - low)),
        grid_ratio=float(blocks[-1] / blocks[0]) if len(low) > 1 and blocks[0] else None,
    )


def _between(values: npt.NDArray[np.uint64], low: I8, high: I8) -> npt.NDArray[np.uint64]:
    """Wrapping sums of `values[low:high]`, one for each pair."""
    running = np.concatenate((np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)))
    return np.asarray(running[high] - running[low], np.uint64)


def _keys(joined: Joined) -> npt.NDArray[np.uint64]:
    activities = joined.window.activities
    key = activities.name_ids.astype(np.uint64) * _MIX
    key ^= activities.blocks.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    key ^= activities.threads.astype(np.uint64) * np.uint64(0x165667B19E3779F9)
    return np.asarray(key, np.uint64)


def _bursts(joined: Joined) -> I8:
    """Number of the traced span of each activity; all 0 when everything was traced."""
    starts = joined.window.activities.starts_ns
    observed = joined.window.observed
    if observed is None:
        return np.zeros(len(starts), np.int64)
    return np.searchsorted(np.array([s.t0_ns for s in observed], np.int64), starts, "right")


def recomputed_ns(joined: Joined, steps: float | None) -> int | None:
    """Time of forward work that runs again between backward work; None where names do not tell.

    Attention and norm kernels say which pass they are of. A step has one long run of forward ones
    and then backward ones; with checkpointing each block's few forward kernels come again before
    its backward ones. Runs of at most half the longest, at least three for each long one, are
    such; all that runs from the first to the last kernel of a run is counted.

    Args:
        joined: The window's activities.
        steps: Steps in it; None when unknown. Each has its long run, else a long one is an accident.
    """
    known = joined.is_role(Role.ATTENTION, Role.NORM) & joined.kernels
    at = np.flatnonzero(known)
    back = joined.has(Trait.BACKWARD)[at]
    if not back.any() or back.all():
        return None
    burst = _bursts(joined)[at]
    cut = np.diff(burst) != 0
    edges = np.flatnonzero((np.diff(back.astype(np.int64)) != 0) | cut) + 1
    first, stop = np.concatenate(([0], edges)), np.concatenate((edges, [len(back)]))
    forward = ~back[first]
    # A run cut at the edge of what was traced may be longer than it looks.
    loose = np.concatenate(([True], cut, [True]))
    inner = forward & ~loose[first] & ~loose[stop]
    lengths = (stop - first)[inner]
    long = int((stop - first)[forward].max())
    short = lengths <= long // 2
    whole = max(int(((stop - first)[forward] > long // 2).sum()), 1)
    usual = 0.5 * steps if steps else 2
    if long < 4 or whole < usual or int(short.sum()) < 3 * whole:
        return 0
    running = np.concatenate(([0], np.cumsum(joined.durations_ns)))
    low, high = at[first[inner][short]], at[stop[inner][short] - 1]
    return int((running[high + 1] - running[low]).sum())
