"""Live trainers of one job, one rank or more: what the screens and `--once` ask for, in real time.

A session each; the bursts of several ranks come all at once.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Freshness, Snapshot, is_calm
from brrrtop.session.controller import Controller
from brrrtop.session.driver import Driver, Member
from brrrtop.session.events import noted
from brrrtop.session.restart import Succession
from brrrtop.session.session import Session
from brrrtop.sources.live import LiveSource
from brrrtop.sources.source import FELL_NS, malloc_trim
from collectors.protocol.frames import Frame, Kind

LOOK_S = 5.0
"""Between two searches for ranks that came, or came back."""
STEPS_LEAST, STEPS_MOST = 2, 8
"""Of a burst: orders reach ranks before and after a step's end, and one step of each may be two steps."""
RETRY_NS = 1_000_000_000
"""After the first bursts, until ranks were compared in enough of them, comes the next one."""
BURSTS_LEAST = 2
"""In which ranks are compared before one is called slow."""
TRIES_MOST = 5
TRIM_NS = 10_000_000_000
"""Between two returns of memory that a burst took and nothing uses: glibc keeps it, and more with each."""


def alone(controller: Controller, session: Session | None = None) -> Member:
    """One live trainer as the only rank."""
    source = controller.source
    session = session or Session(source)
    return Member(str(source.pid), source.info.label, None, session, controller=controller)


class Live(Driver):
    """Implements what the screens ask of a driver, for all ranks of a job on this host.

    Args:
        ranks: Those that run now.
        newcomers: Ranks that were not there before, asked every `look_s` seconds. None: none can come.
        succession: Of a single trainer: how to go on when it ends. None: reports end with it.
        all_in_view: As of `Driver`.
        now_ns: CLOCK_REALTIME.
    """

    def __init__(
        self,
        ranks: Sequence[Member],
        newcomers: Callable[[], Sequence[Member]] | None = None,
        silenced: frozenset[str] = frozenset(),
        *,
        succession: Succession | None = None,
        look_s: float = LOOK_S,
        all_in_view: bool = False,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__(
            ranks, silenced, of_job=newcomers is not None, least_bursts=BURSTS_LEAST,
            all_in_view=all_in_view,
        )  # fmt: skip
        self._newcomers = newcomers
        self._succession = succession
        self._now_ns = now_ns
        self.last_ns = 0
        self._looked_ns = self._trimmed_ns = now_ns()
        self._look_ns = look_s * 1e9
        self._bursts = self._turn = 0
        self._steps_least = STEPS_LEAST
        self._tries = 0
        """Bursts that were asked for since ranks were compared in too few."""
        self._compared = 0
        """Bursts in which ranks were compared when the last one was asked for."""
        self._burst_ns = 0
        """When some rank was last tracing."""
        self._leader: Controller | None = None
        self.snapshots: dict[str, Snapshot] = {}
        """The newest of each rank that is watched, by key."""

    @property
    def live(self) -> list[tuple[Member, Controller]]:
        return [(one, one.controller) for one in self.members if one.controller is not None]

    @property
    def shown(self) -> Controller:
        controller = self._shown[0].controller
        assert controller is not None
        return controller

    @property
    def capabilities(self) -> frozenset[str]:
        more = {"ranks"} if self.of_job else set()
        if self.shown.tier != "nvml":
            more.add("continuous")
        if self._succession is not None and self._succession.successors is not None:
            more.add("follow")
        return frozenset(more)

    @property
    def ended(self) -> str | None:
        reasons = [one.ended for one, _ in self.live]
        return reasons[0] if reasons and all(reasons) else None

    @property
    def recordings(self) -> list[str]:
        """What became of the files of `--record`: why one ends early, else its size."""
        tees = (controller.source.tee for _, controller in self.live)
        return [outcome for tee in tees if (outcome := tee.stopped or tee.size)]

    # --- time -----------------------------------------------------------------------

    def advance(self) -> Snapshot:
        """The rank shown as of now, with all others beside it; while paused, as when that began."""
        snapshot = self.look()
        return self._succession.follow_end(self, snapshot) if self._succession else snapshot

    def look(self) -> Snapshot:
        # A clock that was set back a little must not look like a wish to go back in time.
        now_ns = self._now_ns()
        fell = now_ns < self.last_ns - FELL_NS
        self.last_ns = now_ns if fell else max(now_ns, self.last_ns + 1)
        if abs(now_ns - self._trimmed_ns) >= TRIM_NS:
            self._trimmed_ns = now_ns
            malloc_trim()
        self._take_newcomers()
        self._burst_together()
        snapshots: dict[str, Snapshot] = {}
        self._turn += 1
        for place, (one, controller) in enumerate(self.live):
            try:
                assert one.session is not None
                in_turn = self._turn % len(self.live) == place
                one.session.follows = self._all_in_view or in_turn or one is self._shown[0]
                snapshots[one.key] = self._advance_rank(one, controller)
            except BrrrtopError as fault:  # one rank's end is not that of the others
                if len(self.live) == 1:
                    raise
                self.lose(one.key, fault.message)
        self.snapshots = snapshots
        whole = self.combine(snapshots)
        self._retry(whole)
        if self.of_job and self.ended is None and whole.freshness is Freshness.ENDED:
            whole = replace(whole, freshness=Freshness.LIVE)
        if self._frozen is None:
            return whole
        return replace(
            self._frozen, freshness=whole.freshness, paused=True, baseline=whole.baseline,
            comparison=whole.comparison,
        )  # fmt: skip

    def _advance_rank(self, member: Member, controller: Controller) -> Snapshot:
        session = member.session
        assert session is not None
        controller.poll()
        snapshot = session.advance(self.last_ns, self.last_ns)
        controller.requests.on_estimate(snapshot.estimate, session.timeline.shapes.learned_ns)
        self.note_log(member)
        # Once calm, half the samples of a stack tell the same; ranks of a job share them.
        controller.source.feeds.share(max(len(self._able), 1 + is_calm(snapshot)))
        return snapshot

    def note_log(self, member: Member) -> None:
        """Records lines of a rank's log that are new or were told anew."""
        assert member.session is not None and member.controller is not None
        lines = dict(member.session.log.lines)
        fresh = {n: line for n, line in lines.items() if member.noted.get(n) != line}
        if fresh:
            member.noted = lines
            tee = member.controller.source.tee
            tee.add(Frame(Kind.STATUS, noted(fresh), self.last_ns))
            if member.ended is not None:  # a recording closes with its end
                tee.add(Frame(Kind.END, {"reason": member.ended}, self.last_ns))

    def pause(self) -> None:
        if self._frozen is None:
            self._frozen = self.advance()

    def resume(self) -> None:
        self._frozen = None

    def step(self, count: int = 1) -> None:
        """The present has no next picture but now."""
        self._frozen = None
        self._frozen = self.advance()

    def select_rank(self, key: str) -> None:
        super().select_rank(key)
        if self._frozen is not None:
            self.step()

    # --- ranks that come and go -------------------------------------------------------

    def lose(self, key: str, why: str) -> None:
        for one, controller in self.live:
            if one.key == key:
                one.session, one.controller, one.why = None, None, why
                controller.source.close()

    def _take_newcomers(self) -> None:
        if self._newcomers is None or abs(self.last_ns - self._looked_ns) < self._look_ns:
            return
        self._looked_ns = self.last_ns
        for one in self._newcomers():
            self._replace_ended(one)
            self._join(one)

    def _replace_ended(self, newcomer: Member) -> None:
        """A rank that came back takes the row of the one that ended."""
        for old in list(self.members):
            over = old.controller is None or old.ended is not None
            if over and old.rank is not None and old.rank == newcomer.rank:
                self.members.remove(old)
                if old.controller is not None:
                    old.controller.source.close()

    def exited(self, message: str) -> None:
        """Takes the word of whoever waited for the job; what its ranks sent before is read first."""
        for _, controller in self.live:
            controller.exited(message)

    def follow(self) -> str:
        """Goes on with the successor that was found; says so.

        Raises:
            BrrrtopError: There is none, or it cannot be entered.
        """
        if self._succession is None:
            raise BrrrtopError("this source ends here")
        return self._succession.follow(self)

    def enter(self, member: Member, controller: Controller) -> None:
        """A rank's next trainer: its log, graph, silence and baseline go on."""
        assert member.session is not None
        member.session = member.session.succeeded_by(controller.source)
        member.controller, member.noted, self._frozen = controller, {}, None

    def close(self) -> None:
        sources = [controller.source for _, controller in self.live]
        with ThreadPoolExecutor(max(len(sources), 1)) as pool:
            faults = [fault for fault in pool.map(_close, sources) if fault is not None]
        if faults:
            raise faults[0]

    # --- bursts -----------------------------------------------------------------------

    def _burst_together(self) -> None:
        """Orders the others' bursts in the moment in which the first rank's governor orders its own.

        One decides for all, so that all are traced in the same steps; who decides pays for its own.
        """
        able = self._able
        if not able or not self.of_job:
            return
        leader = able[0]
        if leader is not self._leader:
            self._leader, self._bursts = leader, leader.governor.burst_count
        for one in able:
            one.governor.follows = one is not leader
            one.governor.steps_least = self._steps_least if len(able) > 1 else 1
        if len(able) > 1:
            leader.governor.charge(max(one.governor.held_ns for one in able))
        leader.poll()
        if leader.governor.burst_count != self._bursts:
            self._bursts = leader.governor.burst_count
            for one in able[1:]:
                one.governor.want_burst(leader.governor.plan)
                one.poll()

    @property
    def _able(self) -> list[Controller]:
        return [controller for _, controller in self.live if controller.tier == "bursts"]

    def _retry(self, whole: Snapshot) -> None:
        """Has further bursts made until ranks are compared in enough of them, of twice the steps where one
        led to nothing: a step may hold a single collective, or be recorded of each rank at another time."""
        able = self._able
        compared = whole.job.bursts if whole.job is not None else 0
        if compared >= BURSTS_LEAST:
            self._tries = TRIES_MOST
        if self._tries >= TRIES_MOST or len(able) < 2 or not self._bursts:
            return
        if any(one.governor.tracing for one in able):
            self._burst_ns = self.last_ns
        elif abs(self.last_ns - self._burst_ns) >= RETRY_NS:
            if compared <= self._compared:
                self._steps_least = min(2 * self._steps_least, STEPS_MOST)
            self._tries, self._compared = self._tries + 1, compared
            able[0].governor.steps_least = self._steps_least
            able[0].governor.want_burst()

    def continuous(self, on: bool) -> str:
        """Traces every step of all ranks, or in bursts again: one alone would slow the others unseen."""
        return self._of_all(lambda one: one.continuous(on))

    def burst(self) -> str:
        return self._of_all(Controller.burst)

    def _of_all(self, ask: Callable[[Controller], str]) -> str:
        message = [ask(one) for _, one in self.live if one.tier != "nvml"]
        if not message:
            return ask(self.shown)  # which says why not
        return f"{message[0]}, on {len(message)} ranks" if self.of_job else message[0]

    def shapes(self) -> str:
        """Has the op shapes of one step recorded; what came of it is told in the log."""
        return self.shown.shapes()


def _close(source: LiveSource) -> BrrrtopError | OSError | None:
    """What went wrong; None: nothing."""
    try:
        source.close()
    except (BrrrtopError, OSError) as fault:
        return fault
    return None
