"""Whether the backward pass repeats the forward one, as activation checkpointing does."""

from __future__ import annotations

import numpy as np

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.analysis.signals.joined import Joined
from brrrtop.model.tables import I8, Bool, edges

MOST_RUNS = 24
"""Looked at closely; the others are taken to be like them."""
REACH = 64
"""Kernels before and after a run that may belong to it."""


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
    spans = np.stack((first, stop), 1)
    known, spent = _again(joined, at, spans[short][:MOST_RUNS], spans[long])
    again = int(lengths[short].sum())
    # What a step recomputes first hides in its long run: forward kernels beyond the backward ones.
    names = joined.window.activities.name_ids[at]
    twice = int((~back).sum()) - int(np.bincount(names[back]).max())
    return int(spent / known * min(max(twice, again), again * (1 + whole / runs)))


def _again(joined: Joined, at: I8, runs: I8, passes: I8) -> tuple[int, int]:
    """Kernels of `at` in the runs, and the time of all kernels that came again with them: those around
    each run that stand around the same kernels in the forward pass before it, as its products do.

    Args:
        at: Rows of the kernels whose pass is known.
        runs: First and past-last places in `at`, shape (r, 2).
        passes: The same of forward passes.
    """
    kernels = np.flatnonzero(joined.kernels)
    acts = joined.window.activities
    keys = acts.name_ids[kernels] * np.int64(1_000_003) + acts.blocks[kernels]
    place = np.searchsorted(kernels, at)
    plain = np.ones(len(keys), np.bool_)
    plain[place] = False
    running = np.concatenate(([0], np.cumsum(joined.durations_ns[kernels])))
    spent = 0
    for low, high in runs.tolist():
        begun, ended = int(place[low]), int(place[high - 1])
        begins, ends = passes[max(int(np.searchsorted(passes[:, 0], low)) - 1, 0)]
        for twin in range(int(begins), int(ends) - (high - low) + 1):
            if (keys[place[low:high]] == keys[place[twin : twin + high - low]]).all():
                before, after = int(place[twin]), int(place[twin + high - low - 1])
                same = (
                    keys[max(begun - REACH, 0) : begun][::-1],
                    keys[max(before - REACH, 0) : before][::-1],
                )
                begun -= _alike(*same, plain[max(begun - REACH, 0) : begun][::-1])
                ended += _alike(
                    keys[ended + 1 :][:REACH], keys[after + 1 :][:REACH], plain[ended + 1 :][:REACH]
                )
                break
        spent += int(running[ended + 1] - running[begun])
    return int((runs[:, 1] - runs[:, 0]).sum()), spent


def _alike(one: I8, other: I8, plain: Bool) -> int:
    """How many kernels from the first on are the same in both."""
    count = min(len(one), len(other))
    differ = (one[:count] != other[:count]) | ~plain[:count]
    return int(np.argmax(differ)) if differ.any() else count
