"""What an importer may leave out of its rows."""

from __future__ import annotations

import numpy as np

from brrrtop.sources.importers.trace.columns import KERNEL, Collected


def test_kernels_without_a_grid_are_taken_in_as_if_nobody_had_told_it() -> None:
    collected = Collected()
    times = np.arange(3, dtype=np.int64) * 1000
    zeros = np.zeros(3, np.int64)
    collected.add_batch(
        KERNEL, {"start_ns": times, "end_ns": times + 500, "name_id": zeros, "device": zeros}
    )
    joined = collected.joined(KERNEL)
    assert joined["grid"].tolist() == joined["block"].tolist() == [[0, 0, 0]] * 3
