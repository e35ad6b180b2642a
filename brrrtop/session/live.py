"""Drives a session over a live source: what the screens and `--once` ask for, in real time."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from brrrtop.advisories.advise import rank, split_silenced
from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Event, Snapshot
from brrrtop.session.driver import Present
from brrrtop.session.events import noted
from brrrtop.session.session import Session
from brrrtop.sources.live import LiveSource
from brrrtop.sources.source import FELL_NS
from brrrtop.text import units
from collectors.protocol.frames import Frame, Kind

CAN = frozenset({"continuous", "save"})


class LiveSession(Present):
    """A session on the present. Implements what the screens ask of a driver."""

    def __init__(
        self, session: Session, source: LiveSource, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        super().__init__()
        self.session = session
        self.source = source
        self._now_ns = now_ns
        self._last_ns = 0
        self._noted: dict[int, Event] = {}

    @property
    def can(self) -> frozenset[str]:
        return CAN if self.source.tier != "nvml" else CAN - {"continuous"}

    @property
    def recordings(self) -> list[str]:
        """What became of the file of `--record`: why it ends early, else its size."""
        outcome = self.source.tee.stopped or self.source.tee.size
        return [outcome] if outcome else []

    @property
    def ended(self) -> str | None:
        """Why nothing more comes; None while something may."""
        return self.session.timeline.ended

    def advance(self) -> Snapshot:
        """The state as of now; while paused, the one at which it was paused."""
        # A clock that was set back a little must not look like a wish to go back in time.
        now_ns = self._now_ns()
        fell = now_ns < self._last_ns - FELL_NS
        self._last_ns = now_ns if fell else max(now_ns, self._last_ns + 1)
        snapshot = self.session.advance(self._last_ns, self._last_ns)
        learned_ns = self.session.timeline.shapes.learned_ns
        self.source.requests.on_estimate(snapshot.estimate, learned_ns)
        self._note_log()
        if self._frozen is None:
            return snapshot
        return replace(
            self._frozen,
            freshness=snapshot.freshness,
            paused=True,
            baseline=snapshot.baseline,
            comparison=snapshot.comparison,
        )

    def _note_log(self) -> None:
        """Records lines of the log that are new or were told anew."""
        lines = dict(self.session.log.lines)
        fresh = {n: one for n, one in lines.items() if self._noted.get(n) != one}
        if fresh:
            self._noted = lines
            self.source.tee.add(Frame(Kind.STATUS, noted(fresh), self._last_ns))
            if self.ended is not None:  # a recording closes with its end
                self.source.tee.add(Frame(Kind.END, {"reason": self.ended}, self._last_ns))

    def select_device(self, device_id: int) -> None:
        self.session.select_device(device_id)

    def mark_baseline(self) -> str:
        return self.session.mark(self._frozen)

    def silence(self, kind: str) -> str:
        says = self.session.silence(kind)
        if self._frozen is not None:
            every = sorted((*self._frozen.advisories, *self._frozen.silenced), key=rank)
            shown, quiet = split_silenced(every, self.session.silenced)
            self._frozen = replace(self._frozen, advisories=shown, silenced=quiet)
        return says

    def continuous(self, on: bool) -> str:
        return self.source.continuous(on)

    def shapes(self) -> str:
        """Has the op shapes of one step recorded; what came of it is told in the log."""
        return self.source.shapes()

    def burst(self) -> str:
        """Has a few steps traced now, whatever the pause; says so.

        Raises:
            BrrrtopError: Nothing can be traced, or everything is.
        """
        self.source.require_tracing()
        if self.source.tier == "continuous":
            raise BrrrtopError("every step is traced already", "c goes back to bursts")
        self.source.governor.want_burst()
        return "tracing the next steps"

    def save(self, path: str) -> str:
        """Writes the last minutes to a new file."""
        count = self.source.tee.save(path)
        return f"saved {units.count(count)} frames to {path}"

    def close(self) -> None:
        self.source.close()
