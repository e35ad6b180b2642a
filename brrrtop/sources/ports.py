"""What a live source is plugged into: an agent's connection, and samplers beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from brrrtop.model.vocabulary import Metric
from brrrtop.protocol.frames import Frame


class Agent(Protocol):
    """The other end of the agent's socket."""

    hello: dict[str, Any]

    @property
    def closed(self) -> bool:
        """Nothing more will come; what came before can still be read."""
        ...

    def frames(self) -> Iterable[Frame]:
        """What has arrived since the call before; never waits.

        Raises:
            WireError: The bytes make no sense.
        """
        ...

    def send(self, data: bytes) -> None:
        """Sends, or keeps for later; safe from any thread.

        Raises:
            OSError, CollectorError: Nobody listens any more.
        """
        ...

    def close(self) -> None: ...


class Feed(Protocol):
    """Something that samples beside us: `collectors.gpu.nvidia.sampler_thread`, for one."""

    @property
    def says(self) -> list[str]:
        """What a reader of its gauges must know."""
        ...

    @property
    def facts(self) -> frozenset[str]:
        """The same for programs: what of `brrrtop.protocol.status` holds."""
        ...

    @property
    def carries(self) -> frozenset[Metric]:
        """Metrics that it brings better than any other, while it is `active`."""
        ...

    @property
    def active(self) -> bool:
        """Samples are coming."""
        ...

    @property
    def settling(self) -> bool:
        """It is being switched on: no moment to begin tracing."""
        ...

    @property
    def worker(self) -> int | None:
        """A process of its own in which it reads; None: it has none."""
        ...

    def match(self, uuids: Mapping[int, str]) -> None:
        """Learns the trainer's devices by its own numbers."""
        ...

    def expect(self, until_ns: int | None) -> None:
        """Kernels will be traced until about then; None: from here on, 0: no more."""
        ...

    def traced(self, spans: npt.NDArray[np.void]) -> None:
        """Kernels were traced in these `protocol.frames.OBSERVED` spans."""
        ...

    def drain(self) -> list[Frame]: ...

    def close(self) -> object: ...
