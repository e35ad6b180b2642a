"""What the screens need from whoever feeds them. Knows nothing of sources or sessions.

Every method is called from one thread, the feed's, never from the screen's. What has a word in
`CANNOT` is called where that is in `capabilities`; the rest works everywhere.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from brrrtop.model.snapshot import Snapshot

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
