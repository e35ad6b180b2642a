"""What every sampler is to the monitor beside it; one that has no use for a part of it leaves that out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from brrrtop.model.vocabulary import Metric


class SamplerFeed:
    """The part of `Feed` in `brrrtop/sources/ports.py` that does nothing unless a sampler needs it."""

    carries: frozenset[Metric] = frozenset()
    facts: frozenset[str] = frozenset()

    @property
    def active(self) -> bool:
        return False

    @property
    def settling(self) -> bool:
        return False

    @property
    def worker(self) -> int | None:
        return None

    def match(self, uuids: Mapping[int, str]) -> None:
        """Learns the trainer's devices by its own numbers."""

    def expect(self, until_ns: int | None) -> None:
        """Kernels will be traced until about then; None: from here on, 0: no more."""

    def traced(self, spans: npt.NDArray[np.void]) -> None:
        """Kernels were traced in these `protocol.frames.OBSERVED` spans."""
