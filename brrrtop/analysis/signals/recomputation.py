"""Whether the backward pass repeats the forward one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.analysis.signals.joined import Joined
from brrrtop.model.tables import I8, Bool

U8 = npt.NDArray[np.uint64]

_MIX, _TWO = np.uint64(0x9E3779B97F4A7C15), np.uint64(2)


def _hashes(keys: U8, low: I8, high: I8) -> U8:
    """One number for each sequence `keys[low:high]`.

    Order counts: each key is weighted by its place in its sequence, in wrapping arithmetic.
    """
    place = np.arange(len(keys), dtype=np.uint64) * _TWO
    plain = _between(keys, low, high)
    weighted = _between(keys * place, low, high) - low.astype(np.uint64) * _TWO * plain
    return np.asarray(weighted + plain, np.uint64)


def _between(values: U8, low: I8, high: I8) -> U8:
    """Wrapping sums of `values[low:high]`, one for each pair."""
    running = np.concatenate((np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)))
    return np.asarray(running[high] - running[low], np.uint64)


def _keys(joined: Joined) -> U8:
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
    such. With each run goes what stood around the same kernels in the forward pass (the
    sequence repeats), as the products after a block's last norm do.

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
    runs = np.stack((first[inner][short], stop[inner][short]))
    again = np.zeros(len(at), np.bool_)
    for low, high in runs.T.tolist():
        again[low:high] = True
    # Each long run is the forward pass of the runs up to the next one.
    opens = np.zeros(len(at), np.int64)
    opens[first[forward & (stop - first > long // 2)]] = 1
    passes = np.where(back | again, -1, np.cumsum(opens))
    spent = _again_ns(joined, at, runs, np.cumsum(opens), passes)
    return int(spent * _with_hidden(joined, at, back, again, runs.shape[1] / whole))


def _with_hidden(joined: Joined, at: I8, back: Bool, again: Bool, runs: float) -> float:
    """How much more was recomputed than in the `runs` a step that were seen, at least 1.

    What a step recomputes first follows its forward pass without a break and hides in its long
    run. Each forward kernel has one backward kernel: forward ones beyond those came again.
    """
    names = joined.window.activities.name_ids[at]
    twice = int((~back).sum()) - int(np.bincount(names[back]).max())
    return min(max(twice / max(int(again.sum()), 1), 1.0), 1 + 1 / runs)


def _again_ns(joined: Joined, at: I8, runs: I8, step: I8, passes: I8) -> int:
    """Time of the runs, each grown as far as the forward pass has the same kernels around them.

    Args:
        at: Rows of the kernels whose pass is known.
        runs: First and last-plus-one places in `at`, shape (2, runs).
        step: Number of the forward pass before each of `at`.
        passes: The same for those of a forward pass proper, -1 for the others.
    """
    kernels = np.flatnonzero(joined.kernels)
    keys, place = _keys(joined)[kernels], np.searchsorted(kernels, at)
    edges = place[runs[0]], place[runs[1] - 1]
    away = _twins(keys, place, runs, step, passes) - edges[0]
    ends = np.zeros(len(keys), np.bool_)
    ends[place] = True
    for edge, way in zip(edges, (-1, 1), strict=True):
        growing = np.flatnonzero(away < 0)
        while len(growing):
            mine = np.clip(edge[growing] + way, 0, len(keys) - 1)
            twin = np.clip(mine + away[growing], 0, len(keys) - 1)
            growing = growing[(keys[mine] == keys[twin]) & ~ends[mine] & ~ends[twin]]
            edge[growing] += way
            growing = growing[(edge[growing] > 0) & (edge[growing] < len(keys) - 1)]
    running = np.concatenate(([0], np.cumsum(joined.durations_ns[kernels])))
    return int((running[edges[1] + 1] - running[edges[0]]).sum())


def _twins(keys: U8, place: I8, runs: I8, step: I8, passes: I8) -> I8:
    """Where each run's kernels ran first in its forward pass; the run's own place: nowhere."""
    found = place[runs[0]].copy()
    lengths = runs[1] - runs[0]
    counted = np.concatenate(([0], np.cumsum(passes < 0)))
    for length in np.unique(lengths).tolist():
        count = len(place) - length + 1
        _, kinds = np.unique(
            _hashes(keys, place[:count], place[length - 1 :] + 1), return_inverse=True
        )
        once = np.flatnonzero(counted[length:] == counted[:count])
        if not len(once):
            continue
        # One number for each kind of sequence in each pass.
        codes, at = np.unique(kinds[once] * len(place) + passes[once], return_index=True)
        mine = np.flatnonzero(lengths == length)
        wanted = kinds[runs[0][mine]] * len(place) + step[runs[0][mine]]
        hit = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        same = codes[hit] == wanted
        found[mine[same]] = place[once[at[hit[same]]]]
    return np.asarray(found, np.int64)
