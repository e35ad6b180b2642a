"""Live trainers of one job: a session each, bursts of all of them at once, shown as one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.session.driver import Present
from brrrtop.session.job_session import JobSession, Member
from brrrtop.session.live import LiveSession
from brrrtop.sources.live import LiveSource

LOOK_S = 5.0
"""Between two searches for ranks that came, or came back."""
STEPS_LEAST, STEPS_MOST = 2, 8
"""Of a burst: orders reach ranks before and after a step's end, and one step of each may be two steps."""
RETRY_S = 1.0
"""After the first bursts, until ranks were compared in enough of them, comes the next one."""
BURSTS_LEAST = 2
"""In which ranks are compared before one is called slow."""
TRIES_MOST = 5


class LiveJob(Present):
    """Implements what the screens ask of a driver, for all ranks of a job on this host.

    Args:
        ranks: Those that run now.
        newcomers: Ranks that were not there before; asked every `look_s` seconds.
        all_in_view: As of `JobSession`.
    """

    def __init__(
        self,
        ranks: Sequence[Member],
        newcomers: Callable[[], Sequence[Member]] | None = None,
        silenced: frozenset[str] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
        look_s: float = LOOK_S,
        all_in_view: bool = False,
    ) -> None:
        super().__init__()
        self._newcomers = newcomers
        self._clock = clock
        self._looked_s = clock()
        self._look_s = look_s
        self.job = JobSession(ranks, silenced, BURSTS_LEAST, all_in_view)
        self._bursts = 0
        self._steps_least = STEPS_LEAST
        self._tries = 0
        """Bursts that were asked for since ranks were compared in too few."""
        self._compared = 0
        """Bursts in which ranks were compared when the last one was asked for."""
        self._burst_s = 0.0
        """When some rank was last tracing."""
        self._leader: LiveSource | None = None
        self.snapshots: dict[str, Snapshot] = {}
        """The newest of each rank that is watched, by key."""

    @property
    def _live(self) -> list[tuple[Member, LiveSession]]:
        return [(one, one.driver) for one in self.job.members if one.driver is not None]

    @property
    def _shown(self) -> LiveSession:
        driver = self.job.shown.driver
        assert driver is not None
        return driver

    @property
    def can(self) -> frozenset[str]:
        return self._shown.can | {"ranks"}

    @property
    def ended(self) -> str | None:
        """Why nothing more comes of any rank; None while something may."""
        reasons = [driver.ended for _, driver in self._live]
        return reasons[0] if reasons and all(reasons) else None

    @property
    def recordings(self) -> list[str]:
        """What became of the files of `--record`, in words."""
        return [outcome for _, driver in self._live for outcome in driver.recordings]

    def advance(self) -> Snapshot:
        """The rank shown as of now, with all others beside it."""
        self._take_newcomers()
        self._burst_together()
        snapshots: dict[str, Snapshot] = {}
        for one, driver in self._live:
            try:
                snapshots[one.key] = driver.advance()
            except BrrrtopError as fault:  # one rank's end is not that of the others
                if len(self._live) == 1:
                    raise
                self.lose(one.key, fault.message)
        self.snapshots = snapshots
        whole = self.job.combine(snapshots)
        self._retry(whole)
        if self.ended is None and whole.freshness is Freshness.ENDED:
            whole = replace(whole, freshness=Freshness.LIVE)
        if self._frozen is None:
            return whole
        return replace(self._frozen, freshness=whole.freshness, paused=True)

    def lose(self, key: str, why: str) -> None:
        """Lets go of one rank; its row says why."""
        for one, driver in self._live:
            if one.key == key:
                one.session, one.driver, one.why = None, None, why
                driver.close()

    def _burst_together(self) -> None:
        """Orders the others' bursts in the moment in which the first rank's governor orders its own.

        One decides for all, so that all are traced in the same steps; who decides pays for its own.
        """
        able = self._able
        if not able:
            return
        leader = able[0]
        if leader is not self._leader:
            self._leader, self._bursts = leader, leader.governor.burst_count
        for source in able:
            source.governor.follows = source is not leader
            source.governor.steps_least = self._steps_least if len(able) > 1 else 1
        leader.poll()
        if leader.governor.burst_count != self._bursts:
            self._bursts = leader.governor.burst_count
            for source in able[1:]:
                source.governor.want_burst(leader.governor.plan)
                source.poll()

    @property
    def _able(self) -> list[LiveSource]:
        return [driver.source for _, driver in self._live if driver.source.tier == "bursts"]

    def _retry(self, whole: Snapshot) -> None:
        """Has further bursts made until ranks are compared in enough of them, of twice the steps where one
        led to nothing: a step may hold a single collective, or be recorded of each rank at another time."""
        able = self._able
        compared = whole.job.bursts if whole.job is not None else 0
        if compared >= BURSTS_LEAST:
            self._tries = TRIES_MOST
        if self._tries >= TRIES_MOST or len(able) < 2 or not self._bursts:
            return
        now_s = self._clock()
        if any(source.governor.tracing for source in able):
            self._burst_s = now_s
        elif now_s - self._burst_s >= RETRY_S:
            if compared <= self._compared:
                self._steps_least = min(2 * self._steps_least, STEPS_MOST)
            self._tries, self._compared = self._tries + 1, compared
            able[0].governor.steps_least = self._steps_least
            able[0].governor.want_burst()

    def _take_newcomers(self) -> None:
        if self._newcomers is None or self._clock() - self._looked_s < self._look_s:
            return
        self._looked_s = self._clock()
        for one in self._newcomers():
            self._replace_ended(one)
            self.job.join(one)

    def _replace_ended(self, newcomer: Member) -> None:
        """A rank that came back takes the row of the one that ended."""
        for old in list(self.job.members):
            over = old.driver is None or old.driver.ended is not None
            if over and old.rank is not None and old.rank == newcomer.rank:
                self.job.members.remove(old)
                if old.driver is not None:
                    old.driver.close()

    def exited(self, says: str) -> None:
        """Takes the word of whoever waited for the job; what its ranks sent before is read first."""
        for _, driver in self._live:
            driver.source.exited(says)

    def select_rank(self, key: str) -> None:
        self.job.select_rank(key)
        if self._frozen is not None:
            self.step()

    def select_device(self, device_id: int) -> None:
        self._shown.select_device(device_id)

    def mark_baseline(self) -> str:
        return self._shown.mark_baseline()

    def silence(self, kind: str) -> str:
        return self.job.silence(kind)

    def continuous(self, on: bool) -> str:
        """Traces every step of all ranks, or in bursts again: one alone would slow the others unseen."""
        says = [driver.continuous(on) for _, driver in self._live if driver.source.tier != "nvml"]
        return f"{says[0]}, on {len(says)} ranks" if says else self._shown.continuous(on)

    def burst(self) -> str:
        """Has a few steps of all ranks traced now; says so."""
        says = [driver.burst() for _, driver in self._live if driver.source.tier != "nvml"]
        return f"{says[0]}, on {len(says)} ranks" if says else self._shown.burst()

    def shapes(self) -> str:
        return self._shown.shapes()

    def save(self, path: str) -> str:
        """Writes the last minutes of the rank shown."""
        return self._shown.save(path)

    def close(self) -> None:
        """Lets go of all ranks at once, whatever happens to one of them: each may take seconds."""
        drivers = [driver for _, driver in self._live]
        with ThreadPoolExecutor(max(len(drivers), 1)) as pool:
            faults = [fault for fault in pool.map(_close, drivers) if fault is not None]
        if faults:
            raise faults[0]


def _close(driver: LiveSession) -> BrrrtopError | OSError | None:
    """What went wrong; None: nothing."""
    try:
        driver.close()
    except (BrrrtopError, OSError) as fault:
        return fault
    return None
