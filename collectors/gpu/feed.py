"""What every sampler is to the monitor beside it; one that has no use for a part of it leaves that out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from brrrtop.model.vocabulary import Metric
from brrrtop.protocol.frames import Frame


class SamplerFeed:
    """Something that samples beside the monitor; `drain` never waits."""

    carries: frozenset[Metric] = frozenset()
    """Metrics that it brings better than any other, while it is `active`."""
    facts: frozenset[str] = frozenset()
    """What a reader of its gauges must know, for programs: what of `brrrtop.protocol.status` holds."""

    @property
    def says(self) -> list[str]:
        """The same for people."""
        raise NotImplementedError

    @property
    def active(self) -> bool:
        """Samples are coming."""
        return False

    @property
    def settling(self) -> bool:
        """It is being switched on: no moment to begin tracing."""
        return False

    @property
    def worker(self) -> int | None:
        """A process of its own in which it reads; None: it has none."""
        return None

    def drain(self) -> list[Frame]:
        """What it read since the call before."""
        raise NotImplementedError

    def close(self) -> object:
        raise NotImplementedError

    def match(self, uuids: Mapping[int, str]) -> None:
        """Learns the trainer's devices by its own numbers."""

    def expect(self, until_ns: int | None) -> None:
        """Kernels will be traced until about then; None: from here on, 0: no more."""

    def traced(self, spans: npt.NDArray[np.void]) -> None:
        """Kernels were traced in these `protocol.frames.OBSERVED` spans."""
