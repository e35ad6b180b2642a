"""The facts that cross from the feed's thread to the screen's."""

from __future__ import annotations

from textual.message import Message

from brrrtop.model.snapshot import Snapshot


class SnapshotReady(Message):
    """A newer snapshot. Takes the place of an older one that is still queued."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SnapshotReady)


class FeedFailed(Message):
    """The driver cannot go on."""

    def __init__(self, fault: BaseException) -> None:
        super().__init__()
        self.fault = fault


class RequestAnswered(Message):
    """What came of a request: a sentence to show."""

    def __init__(self, says: str, failed: bool = False) -> None:
        super().__init__()
        self.says = says
        self.failed = failed
