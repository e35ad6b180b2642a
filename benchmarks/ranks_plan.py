"""What goes wrong on which rank of a job: a mapped file that `ranks.py` writes and the trainers read."""

from __future__ import annotations

import mmap
from pathlib import Path

SLEEP, LOADER, WORK, NEIGHBOUR = range(1, 5)
"""A sleep in each step, a slow batch, half a batch more; a neighbour is a program of its own."""
LOG_STEPS = 50
"""Between two readings of the loss."""
KIND, RANK, SIZE_US, WORDS = 0, 1, 2, 8


class Plan:
    """One rank's view of it."""

    def __init__(self, path: Path, rank: int) -> None:
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), 8 * WORDS)).cast("q")
        self._rank = rank

    def seconds(self, kind: int) -> float:
        """The size of what goes wrong, 0 where it is not this rank's turn."""
        words = self._words
        mine = words[KIND] == kind and words[RANK] == self._rank
        return words[SIZE_US] / 1e6 if mine else 0.0
