"""What the screens need from whoever feeds them, and the thread that owns it: advances it, posts snapshots,
carries out requests; its messages. Knows nothing of sources or sessions.

Every method of a driver is called from that one thread, never from the screen's. What has a word in
`CANNOT` is called where that is in `capabilities`; the rest works everywhere.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread
from types import MappingProxyType
from typing import Protocol

from textual.message import Message

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Snapshot, is_calm, pause_s

CANNOT: Mapping[str, str] = MappingProxyType(
    {
        "step": "only a replay can step",
        "seek": "only a replay can seek",
        "speed": "only a replay has a speed",
        "ranks": "this source has one rank only",
        "continuous": "only a live trainer is traced",
        "follow": "this source ends here",
    }
)
"""What not every driver is able to do, and what is said where it cannot."""


class Driver(Protocol):
    """One source played into snapshots."""

    @property
    def capabilities(self) -> frozenset[str]:
        """Of the abilities above those that this source has."""

    def advance(self) -> Snapshot:
        """The state as of now.

        Raises:
            BrrrtopError: The source cannot go on; the screen closes and shows the sentence.
        """

    def pause(self) -> None:
        """Time in the source stands still until `resume`."""

    def resume(self) -> None: ...

    def step(self, count: int) -> None:
        """Moves by `count` intervals, backwards when negative, and stays paused."""

    def seek(self, share: float) -> None:
        """Goes to 0..1 of a source of known length."""

    def faster(self) -> None: ...

    def slower(self) -> None: ...

    def select_device(self, device_id: int) -> None:
        """The next snapshots speak of this device."""

    def select_rank(self, key: str) -> None:
        """The next snapshots are of this rank of the job (`RankRow.key`).

        Raises:
            BrrrtopError: Nothing is known of it; says why.
        """

    def mark_baseline(self) -> str:
        """Remembers the present estimate to compare with; returns what was done, as a sentence."""

    def silence(self, kind: str) -> str:
        """Gives no such advice any more, or gives it again; returns which, as a sentence."""

    def continuous(self, on: bool) -> str:
        """Traces without pauses, or in bursts again; returns what was done, as a sentence."""

    def burst(self) -> str:
        """Traces a few steps now; called where `continuous` can be. Returns that, as a sentence.

        Raises:
            BrrrtopError: Everything is traced already.
        """

    def shapes(self) -> str:
        """Records the op shapes of one step; called where `continuous` can be. Says so.

        Raises:
            BrrrtopError: Nothing can be recorded.
        """

    def follow(self) -> str:
        """Goes on with the successor that the snapshot names; returns that, as a sentence.

        Raises:
            BrrrtopError: It cannot be entered.
        """

    def close(self) -> None:
        """Lets go of the source. Called once, last."""


Request = Callable[[Driver], "str | None"]
UNSEEN_S = 5.0
"""A screen that has not drawn the last snapshot for this long gets the next one all the same."""


@dataclass
class SnapshotReady(Message):
    """A newer snapshot. Takes the place of an older one that is still queued."""

    snapshot: Snapshot

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SnapshotReady)


@dataclass
class FeedFailed(Message):
    fault: BaseException


@dataclass
class RequestAnswered(Message):
    message: str
    failed: bool = False


class Feed(Thread):
    """Advances a driver every `interval_s`, once all is calm half as often; hands each snapshot to `post`.

    The next snapshot is made only when the one before was seen (or after `UNSEEN_S`), so that a
    slow screen never builds a queue. Requests are carried out at once.

    Args:
        post: Thread-safe; takes a message.
    """

    def __init__(
        self, driver: Driver, post: Callable[[Message], object], interval_s: float
    ) -> None:
        super().__init__(name="brrrtop-feed", daemon=True)
        self._driver = driver
        self._post = post
        self._interval_s = interval_s
        self._requests: SimpleQueue[Request] = SimpleQueue()
        self._wake = Event()
        self._seen = Event()
        self._stopping = False

    def seen(self) -> None:
        self._seen.set()

    def ask(self, request: Request) -> None:
        self._requests.put(request)
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()
        self._seen.set()
        if self.is_alive():
            self.join(2.0)

    def run(self) -> None:
        began_s = time.monotonic()
        try:
            while not self._stopping:
                self._wake.clear()
                self._carry_out()
                self._seen.clear()
                snapshot = self._driver.advance()
                self._post(SnapshotReady(snapshot))
                each_s = self._interval_s * (2 if is_calm(snapshot) else 1)
                self._wake.wait(pause_s(each_s, snapshot, time.monotonic() - began_s))
                if not self._wake.is_set():
                    self._seen.wait(UNSEEN_S)
        except Exception as fault:  # noqa: BLE001 - handed to the screen, which raises it
            if not self._stopping:
                self._post(FeedFailed(fault))
        finally:
            self._driver.close()

    def _carry_out(self) -> None:
        while not self._stopping:
            try:
                request = self._requests.get_nowait()
            except Empty:
                return
            try:
                message = request(self._driver)
            except BrrrtopError as fault:
                hint = f" – {fault.action}" if fault.action else ""
                self._post(RequestAnswered(f"{fault.message}{hint}", failed=True))
            else:
                if message:
                    self._post(RequestAnswered(message))
