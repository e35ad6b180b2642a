"""Whether steps launch the same kernels, and whether the backward pass repeats the forward one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brrrtop.estimator.joined import Joined
from brrrtop.estimator.traits import Role, Trait
from brrrtop.model import Steps

_MIX = np.uint64(0x9E3779B97F4A7C15)


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
    keys = _keys(joined)
    hashes: list[int] = []
    counts: list[int] = []
    blocks: list[float] = []
    for span in steps.spans:
        low, high = np.searchsorted(activities.starts_ns, (span.t0_ns, span.t1_ns))
        if high > low:
            place = np.arange(1, high - low + 1, dtype=np.uint64)
            hashes.append(int((keys[low:high] * (place * np.uint64(2) + np.uint64(1))).sum()))
            counts.append(int(high - low))
            blocks.append(float(activities.blocks[low:high].mean()))
    if not hashes:
        return None
    _, commonest = np.unique(np.array(hashes, np.uint64), return_counts=True)
    ratio = blocks[-1] / blocks[0] if len(blocks) > 1 and blocks[0] else None
    return Repeats(len(hashes), int(commonest.max()), int(np.median(counts)), ratio)


def _keys(joined: Joined) -> npt.NDArray[np.uint64]:
    activities = joined.window.activities
    key = activities.name_ids.astype(np.uint64) * _MIX
    key ^= activities.blocks.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    key ^= activities.threads.astype(np.uint64) * np.uint64(0x165667B19E3779F9)
    return np.asarray(key, np.uint64)


def recomputed_ns(joined: Joined) -> int | None:
    """Forward-only kernels that run again between backward ones: time of a recomputed forward.

    Fused attention names say which pass they are of. Without recomputation the forward kernels
    of a step all come before its backward ones; a forward kernel that follows a backward kernel
    within the same burst of backward work was recomputed. None without such names.
    """
    forward = joined.is_role(Role.ATTENTION, Role.NORM) & joined.kernels
    backward = forward & joined.has(Trait.BACKWARD)
    forward &= ~backward
    at = np.flatnonzero(forward | backward)
    if not backward.any() or not forward.any():
        return None
    back = backward[at]
    turns = int((back[1:] & ~back[:-1]).sum())
    if turns == 0:
        return None
    before = np.concatenate(([False], back[:-1]))
    after = np.concatenate((back[1:], [False]))
    sandwiched = at[~back & before & after]
    return int(joined.durations_ns[sandwiched].sum())
