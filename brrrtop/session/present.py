"""A driver of the present: its picture may stand still, while watching goes on behind it."""

from __future__ import annotations

from brrrtop.model.snapshot import Snapshot


class Present:
    """Pause, resume and step of a live source."""

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
