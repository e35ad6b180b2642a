"""The connection to one agent: its frames, orders to it, and how it ended."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from collectors.errors import CollectorError
from collectors.protocol.frames import Frame, WireError
from collectors.protocol.requests import Op, control

if TYPE_CHECKING:
    from collectors.attach.client import Client

HANG_UP_S = 2.0
"""Until the agent lets go of its trainer when asked; as `collectors.attach.attach` waits for it."""
EXIT_NS = 500_000_000
"""How long a process may take from closing its sockets to being gone."""
PING_S = 0.7
"""The agent retracts after 2 s of silence."""


class AgentLink:
    """One agent, or none at all.

    Args:
        agent: None: counters only.
        now_ns: CLOCK_REALTIME.
    """

    def __init__(self, agent: Client | None, now_ns: Callable[[], int]) -> None:
        self._agent = agent
        self._now_ns = now_ns
        self.lost: str | None = None
        """Why it is gone for good, once that is settled."""
        self.fault: str | None = None
        """What its last bytes were like, where they made no sense."""
        self._hung_up_ns: int | None = None
        self.hung_up_why = ""
        self._leaving = threading.Event()
        self._pinging = threading.Thread(target=self._ping, name="brrrtop-pulse", daemon=True)

    def refuse(self, fault: Exception) -> bool:
        """What it sent could not be taken in; False: there never was one."""
        if self._agent is not None:
            self.fault = str(fault) or type(fault).__name__
        return self._agent is not None

    @property
    def there(self) -> bool:
        return self._agent is not None and self.lost is None

    def frames(self) -> list[Frame]:
        if self._agent is None or self.lost is not None:
            return []
        frames: list[Frame] = []
        try:
            frames.extend(self._agent.frames())
        except Exception as fault:  # noqa: BLE001  whatever it sends, the monitor goes on
            self.refuse(fault)
            return frames
        if self._agent.closed:
            self.hang_up("its socket closed")
        return frames

    def hang_up(self, why: str) -> None:
        """It said that it ends, or its socket closed; the first word counts."""
        if self._hung_up_ns is None:
            self._hung_up_ns, self.hung_up_why = self._now_ns(), why

    def is_over(self, now_ns: int, trainer_gone: bool) -> bool:
        """It has ended. A trainer that exits ends its agent first: its own end is the news then."""
        if self._hung_up_ns is None:
            return False
        return trainer_gone or now_ns - self._hung_up_ns >= EXIT_NS

    def clock_fell(self) -> None:
        """CLOCK_REALTIME was set back: what is waited for is waited for from now."""
        if self._hung_up_ns is not None:
            self._hung_up_ns = self._now_ns()

    def order(self, op: Op, a: int = 0, b: int = 0) -> bool:
        if self._agent is None or self.lost is not None:
            return False
        try:
            self._agent.send(control(op, a, b))
        except (OSError, CollectorError):
            return False  # the next look at the socket says why
        return True

    def keep_alive(self) -> None:
        """Tells it from now on that the monitor lives, whatever the rest of the monitor is busy with."""
        if self._agent is not None:
            self._pinging.start()

    def _ping(self) -> None:
        while self.there:
            self.order(Op.PING)
            if self._leaving.wait(PING_S):
                return

    def leave(self) -> list[Frame]:
        """Asks it to leave, and reads until it has: a socket closed on unread frames is reset, and
        the wish may be lost with them. Seconds at the longest.

        Returns:
            What came until then.
        """
        agent, frames = self._agent, list[Frame]()
        self._leaving.set()
        if self._pinging.is_alive():
            self._pinging.join(1.0)
        if agent is None:
            return frames
        until = time.monotonic() + HANG_UP_S
        with contextlib.suppress(OSError, CollectorError, WireError):
            if self.order(Op.DETACH):
                while not agent.closed and time.monotonic() < until:
                    frames.extend(agent.frames())
                    time.sleep(0.005)
        with contextlib.suppress(OSError):
            agent.close()
        return frames
