"""What a live source is plugged into: an agent's connection, and samplers beside it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

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

    def drain(self) -> list[Frame]: ...

    def close(self) -> object: ...
