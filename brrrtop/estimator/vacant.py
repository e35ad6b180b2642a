"""How much of the device kernels leave empty, from their grids: what twice the work could use."""

from __future__ import annotations

import numpy as np

from brrrtop.estimator.joined import Joined
from brrrtop.estimator.occupancy import blocks_per_sm


def vacant_shares(joined: Joined) -> dict[str, float]:
    """By kernel name, the part of the device's room for blocks that stays empty while it runs.

    A kernel whose grid has room twice does twice the work in the same time. Weighted by time; empty
    where the device's SMs or the grids are not known.
    """
    window, device = joined.window, joined.window.device
    activities = window.activities
    rows = np.flatnonzero(joined.kernels & (activities.blocks > 0) & (activities.threads > 0))
    if not device.sm_count or not len(rows):
        return {}
    threads = activities.threads[rows].astype(np.int64)
    registers = activities.registers[rows].astype(np.int64)
    shared = activities.shared_bytes[rows]
    # One number an occupancy: registers take 8 bits, shared memory under 24.
    _, first, kind_of = np.unique(
        (threads << 34) | (registers << 24) | shared, return_index=True, return_inverse=True
    )
    each = [
        blocks_per_sm(device, int(threads[i]), int(registers[i]), int(shared[i])) for i in first
    ]
    room = device.sm_count * np.array(each, np.float64)[kind_of]
    spent = joined.durations_ns[rows].astype(np.float64)
    empty = spent * np.maximum(1 - activities.blocks[rows] / room, 0.0)
    name_ids = activities.name_ids[rows]
    whole, left = np.bincount(name_ids, spent), np.bincount(name_ids, empty)
    return {window.names[i]: float(left[i] / whole[i]) for i in np.flatnonzero(whole)}
