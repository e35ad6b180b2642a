"""Keeps the last figures of a trainer that ended, and follows the process that takes its place.

A trainer that is stopped, changed and started again is the ordinary way to try advice. brrrtop never
attaches to it without consent: a key for each successor, or a yes given beforehand.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from brrrtop.errors import BrrrtopError
from brrrtop.model.advice import Baseline
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.session.controller import Controller

if TYPE_CHECKING:
    from brrrtop.session.live import Live

LOOK_NS = 2_000_000_000
"""Between two searches of the process list."""


class RestartedProcess(Struct, frozen=True):
    """A process that runs what the ended trainer ran."""

    pid: int
    ready: bool
    """It uses its GPU, or has had time to: it is past its imports."""
    only: bool
    """No other process fits as well."""


class RestartedProcesses(Protocol):
    agreed: bool
    """A yes was given beforehand, to every successor."""
    how: str
    """What entering one means: `watch it`, …"""

    def find(self) -> RestartedProcess | None: ...

    def enter(self, pid: int) -> Controller:
        """What watches the successor, its agent in it where there was one before."""
        ...


class Succession:
    """Goes on with the next trainer when one ends.

    Args:
        successors: None: an end is the end; the screen stays all the same.
    """

    def __init__(self, successors: RestartedProcesses | None = None) -> None:
        self.successors = successors
        self._kept: Baseline | None = None
        self._gone: str | None = None
        self._kept_words = ""
        self._heir: RestartedProcess | None = None
        self._refused: dict[int, str] = {}
        self._looked_ns = 0
        self._notice: str | None = None

    def follow_end(self, driver: Live, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what is to be said of an end, and of who may take its place."""
        if snapshot.freshness is not Freshness.ENDED:
            if snapshot.estimate is not None:
                self._notice = None
            return replace(snapshot, notice=self._notice)
        if self._gone is None:
            self._gone = self._end(driver)
            snapshot = driver.look()
        if self.successors is not None and abs(driver.last_ns - self._looked_ns) >= LOOK_NS:
            self._looked_ns = driver.last_ns
            self._heir = self.successors.find()
            if self._enters_by_itself():
                try:
                    self.follow(driver)
                except BrrrtopError:
                    pass  # the notice says why
                else:
                    return driver.advance()
        ready = self._heir is not None and self._heir.ready
        pid = self._heir.pid if self._heir is not None and ready else None
        return replace(snapshot, notice=self._says(), successor=pid)

    def follow(self, driver: Live) -> str:
        """Goes on with the successor that was found; says so.

        Raises:
            BrrrtopError: There is none, or it cannot be entered.
        """
        if self._heir is None or self.successors is None or self._gone is None:
            raise BrrrtopError(
                "no successor has been seen", "start the training again by the same command"
            )
        pid, before = self._heir.pid, driver.shown.source.info.label
        try:
            controller = self.successors.enter(pid)
        except BrrrtopError as fault:
            self._refused[pid] = fault.message
            raise
        driver.enter(driver.members[0], controller)
        self._gone = self._heir = None
        self._notice = f"watching pid {pid}, which runs what {before} ran"
        return f"{self._notice}; b compares"

    def _end(self, driver: Live) -> str:
        """The last of a trainer: its figures are kept unless a person chose others."""
        source, session = driver.shown.source, driver.session
        at = datetime.fromtimestamp(driver.last_ns / 1e9).astimezone().strftime("%H:%M:%S")
        # The title names it already.
        reason = (driver.ended or "the trainer ended").removeprefix(
            f"the trainer (pid {source.pid}) "
        )
        analysis, chosen = session.analysis, session.baseline
        self._kept_words = "" if chosen is None else "; the baseline stays"
        ours = chosen is None or chosen is self._kept
        if ours and analysis is not None and not analysis.estimate.steps.warming_up:
            session.mark(label=f"{source.info.label}, exited {at}")
            self._kept = session.baseline
            self._kept_words = "; its last figures are the baseline"
        driver.note_log(driver.members[0])
        source.close()
        return f"{at} {reason}"

    def _enters_by_itself(self) -> bool:
        heir = self._heir
        if heir is None or self.successors is None or not self.successors.agreed:
            return False
        return heir.ready and heir.only and heir.pid not in self._refused

    def _says(self) -> str:
        """That the trainer ended, and how it can go on."""
        assert self._gone is not None
        gone = f"{self._gone}{self._kept_words}"
        if self.successors is None:
            return gone
        heir = self._heir
        if heir is None:
            return f"{self._gone}; looking for the same command{self._kept_words}"
        if heir.pid in self._refused:
            return f"pid {heir.pid}: {self._refused[heir.pid]}; Enter tries again"
        if not heir.ready:
            return f"pid {heir.pid} runs the same command and is starting; {gone}"
        return f"pid {heir.pid} runs the same command: Enter to {self.successors.how}; {gone}"
