"""What drivers of the screens share: what none of them can do but some, and a present that stands still."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Snapshot


class Driver:
    """Refuses what not every source can do. A screen asks for that alone whose word is in `can`."""

    def _refuse(self, *_: object) -> Any:
        raise BrrrtopError("this source cannot do that")

    seek: Callable[..., Any] = _refuse
    faster: Callable[..., Any] = _refuse
    slower: Callable[..., Any] = _refuse
    select_rank: Callable[..., Any] = _refuse
    continuous: Callable[..., Any] = _refuse
    burst: Callable[..., Any] = _refuse
    shapes: Callable[..., Any] = _refuse
    follow: Callable[..., Any] = _refuse
    save: Callable[..., Any] = _refuse


class Present(Driver):
    """Pause, resume and step of a live source: watching goes on behind a picture that stands still."""

    def __init__(self) -> None:
        self._frozen: Snapshot | None = None
        """What is shown while it is paused."""

    def advance(self) -> Snapshot:
        """The state as of now; while paused, the one at which it was paused."""
        raise NotImplementedError

    def pause(self) -> None:
        """The picture stands still; watching goes on behind it."""
        if self._frozen is None:
            self._frozen = self.advance()

    def resume(self) -> None:
        self._frozen = None

    def step(self, count: int = 1) -> None:
        """The present has no next picture but now."""
        self._frozen = None
        self._frozen = self.advance()
