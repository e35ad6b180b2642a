"""The one object with state: reads a source, keeps its timeline, and makes snapshots of it.

Single-threaded by contract: whoever calls it owns it. A live socket, a recording and an imported
trace go through the same lines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from brrrtop.advisories.context import Context
from brrrtop.advisories.steady import Steady, TriedProgram, with_tried
from brrrtop.analysis.estimate import Analysis, estimate, kernel_by_kernel
from brrrtop.errors import BrrrtopError, report_survived
from brrrtop.ledger.account import PIECE_NS, QUIET_NS
from brrrtop.ledger.ledger import NOW_NS, OPEN_NS, Ledger
from brrrtop.ledger.verdict import of_run
from brrrtop.model.advice import Baseline
from brrrtop.model.estimate import Estimate
from brrrtop.model.run import Run
from brrrtop.model.snapshot import Freshness, LeftOut, Overhead, Snapshot
from brrrtop.model.tables import Gauges, Span, Window
from brrrtop.scheduling.phases import PhaseWatch
from brrrtop.session import verdict as verdicts
from brrrtop.session.analyze import steady_analyses
from brrrtop.session.baseline import BaselineTracker
from brrrtop.session.events import EventLog
from brrrtop.session.verdict import History, Verdict
from brrrtop.sources.source import Source
from brrrtop.timeline.timeline import Timeline
from collectors.protocol.frames import Frame, Kind
from collectors.vocabulary import Metric

GAUGE_POINTS = 120
STALE_NS = 5_000_000_000
KEEP_NS = 120_000_000_000
"""How much of a live timeline is kept in columns; the frames themselves are kept longer."""

RUN_NS, RUN_LOOKS = 1_000_000_000, 12
"""Between two looks at all of the run, once there is a verdict; and in all of what is looked at. When the
trainer does something else, the next look is at once."""


class Session:
    """A source, what it said so far, and the verdict on it."""

    def __init__(
        self, source: Source, *, window_ns: int = verdicts.WINDOW_NS, keep_ns: int | None = KEEP_NS,
        silenced: frozenset[str] = frozenset(), device_id: int | None = None,
        baseline: Baseline | None = None, tried: tuple[TriedProgram, ...] = (),
    ) -> None:  # fmt: skip
        self.source = source
        self._window_ns = window_ns
        self._keep_ns = keep_ns
        self.silenced = silenced
        """Ids of advice that is not given."""
        self.device_id = device_id
        """The device that was asked for; None: the busiest."""
        self._marking = BaselineTracker(baseline)
        self._tried = tried
        self.in_view = True
        """Whether each snapshot has all that can be shown; if not, see `in_full`."""
        self.follows = True
        """Whether each snapshot has the run up to now, or only one with a new verdict."""
        self._latest: Snapshot | None = None
        self._history = History()
        self.log = EventLog()
        self._begin()

    def _begin(self) -> None:
        """Reads anew, from wherever the source is. What was seen before stays in history and log."""
        self.timeline = Timeline(self._keep_ns)
        self._steady = Steady()
        self._judged_to_ns = 0
        self._read_to_ns = 0
        self._learned = False
        """Something that the newest verdict did not know."""
        self._over = False
        """The run is judged whole, at its end."""
        self._left_out: tuple[LeftOut, ...] = ()
        self.analysis: Analysis | None = None
        """What the newest verdict rests on, of the GPU shown; None before there is one."""
        self._judged: tuple[Analysis, ...] = ()
        """All of the newest analyses."""
        self._lack_kernels = False
        self._ledgers: dict[int | None, Ledger] = {}
        self._watch = PhaseWatch()
        self._followed: tuple[int, object] = (-1, None)
        self._followed_ns = 0
        self._runs: dict[int | None, Run] = {}
        """Of each GPU at work; before there is a verdict, of none in particular."""
        self._advised_of: Run | None = None
        self._before: Verdict | None = None
        """On the newest analysis, whatever the run was: simulated edits are its largest part."""
        self._priced: Context | None = None
        """What the newest advice rests on."""
        self._verdict: Verdict | None = None
        """On the newest analysis; None until somebody wants to see it."""
        self._again = False
        """The newest analysis is of the span of the one before."""
        self._seen_verdicts = 0
        self.verdicts = 0
        """How many there were: a span is judged again when more is known of it."""

    def select_device(self, device_id: int | None) -> None:
        if device_id != self.device_id:
            self.device_id = device_id
            self._history = History()
            self._steady.forget()
            self._judged_to_ns, self._priced = 0, None

    def recorded(self, reach_ns: int) -> Window | None:
        """What was recorded of the device shown, the last `reach_ns` of it; None before a verdict."""
        last = self.timeline.last_ns
        if self.analysis is None or last is None:
            return None
        first = max(self.timeline.first_ns or 0, last - reach_ns)
        return self.timeline.window(Span(first, last), self.analysis.estimate.device.device_id)

    @property
    def baseline(self) -> Baseline | None:
        return self._marking.baseline

    def succeeded_by(self, source: Source) -> Session:
        """A session on the trainer that takes this one's place: log, graph, silence and baseline go on."""
        heir = Session(
            source, window_ns=self._window_ns, keep_ns=self._keep_ns,
            silenced=self.silenced, device_id=self.device_id,
            baseline=self._marking.baseline, tried=self._tried,
        )  # fmt: skip
        heir.log = EventLog(self.log.events)
        heir._history = self._history
        return heir

    def silence(self, kind: str) -> str:
        """Gives no advice `kind` from now on, or gives it again where it was silenced; says which."""
        self.silenced ^= {kind}
        if kind not in self.silenced:
            return f"{kind} is given again when it stands"
        return f"{kind} is silenced for this session; for good: --silence {kind}"

    def mark(self, shown: Snapshot | None = None, label: str | None = None) -> str:
        """Makes what is shown (None: the newest snapshot) the baseline; says so.

        Args:
            label: What it is called; None: by its time.

        Raises:
            BrrrtopError: Nothing is judged yet.
        """
        if shown is None and self._latest is not None:
            shown = self.in_full(self._latest)
        if shown is None:
            raise BrrrtopError("nothing has been judged yet", "wait for the first verdict")
        message = self._marking.mark(shown, self._part, label)
        self.log.marked(shown.now_ns, message)
        return message

    def advance(self, now_ns: int | None = None, wall_ns: int | None = None) -> Snapshot:
        """The state at `now_ns` in the source's time.

        Args:
            now_ns: Frames up to here are read; None: all there are. Earlier than before: the
                source is read again from its start.
            wall_ns: The present on the source's clock, to tell how old its newest frame is; None
                for sources that are not live.
        """
        if now_ns is not None and now_ns < self._read_to_ns:
            if wall_ns is None:
                self.source.seek(now_ns)
                self.log.rewound()
                self._begin()
            else:
                self._clock_fell(now_ns)
        for frame in self.source.frames(now_ns):
            self._take(frame)
        now = now_ns if now_ns is not None else (wall_ns or self.timeline.newest_ns or 0)
        self._read_to_ns = now
        span = verdicts.current(self.timeline, now, self._window_ns)
        if span is not None and self.timeline.observed is not None and self._is_over(now):
            span = self._whole(span)
        try:
            self._judge_new(span)
            self._follow_run(now)
        except Exception as fault:  # noqa: BLE001  raised where it is not an agent's
            self._refuse(fault)
        self.log.update(self.timeline, self.analysis.estimate if self.analysis else None, now)
        self._latest = self._snapshot(now, wall_ns)
        return self.in_full(self._latest) if self.in_view else self._latest

    def _whole(self, latest: Span) -> Span:
        """All of a run at its end: as a report of its recording is, not as what came last says. Of a long
        one that was traced without pauses the latest part: more would hold the screen up."""
        span = verdicts.whole(self.timeline)
        if self.source.span is None and verdicts.is_long(self.timeline, span):
            return latest
        if not self._over:
            self._over, self._judged_to_ns, self._priced = True, 0, None
            if self.source.span is not None:  # live, what is old is in the ledger alone
                self._ledgers.clear()
            for ledger in self._ledgers.values():
                ledger.judge_anew()
            self._steady.forget()
        return span

    def in_full(self, at: Snapshot) -> Snapshot:
        """The newest snapshot with what is made only for somebody who sees it: kernels, advice, what-ifs,
        tables and the picture of a step."""
        if self.analysis is None:
            return at
        try:
            if self._lack_kernels:
                self._keep(tuple(map(kernel_by_kernel, self._judged)))
                at = replace(at, **self._estimates())
            kept = self._verdict = self._verdict or self._advised(self.analysis)
        except Exception as fault:
            if not hasattr(self.source, "refuse"):
                raise
            report_survived(fault)
            self.log.advice_failed(at.now_ns, fault)
            self._lack_kernels = False
            self._steady.forget()
            kept = self._verdict = verdicts.NOTHING
        self._latest = verdicts.showing(at, kept, self._steady.shown, self.silenced)
        return self._latest

    def _keep(self, every: tuple[Analysis, ...], with_kernels: bool = True) -> None:
        self.analysis = verdicts.of_device(every, self.device_id)
        self._judged, self._lack_kernels = every, not with_kernels
        self._before = None

    def _advised(self, shown: Analysis) -> Verdict:
        before = self._before
        made = verdicts.verdict(self.timeline, shown, None, self._run, before, self._priced)
        self._before, self._priced = made, made.advice.priced
        gpu = shown.estimate.device.name
        made = replace(made, advice=with_tried(made.advice, self._tried, gpu))
        self._advised_of = self._run
        unseen = self.verdicts - self._seen_verdicts > 1
        if unseen:  # advice of before is old, and what came since did not count
            self._steady.forget()
        again = (self._again or self.verdicts == self._seen_verdicts) and not unseen
        self._steady.update(made.advice.given, again=again, t_ns=shown.estimate.span.t1_ns)
        self._seen_verdicts = self.verdicts
        return made

    def _judge_new(self, span: Span | None) -> None:
        """Judges the span where there is something new in it, a short burst once all of it has come: marks of
        its last steps come after its kernels. For the first verdict nobody waits."""
        self._learned |= self.timeline.learn() | self.timeline.take_new_samples()
        if span is None or not (self._learned or span.t1_ns > self._judged_to_ns):
            return
        *before, traced = (self.timeline.observed or (span,))[-2:]
        is_short = traced.duration_ns < PIECE_NS and not (
            before and before[0].t1_ns > self._judged_to_ns
        )
        goes_on = is_short and self._read_to_ns - traced.t1_ns < QUIET_NS
        over = self._is_over(self._read_to_ns)
        if self.analysis is None or over or not goes_on:
            self._learned = goes_on and not over
            self._judge(span)

    def _follow_run(self, now: int) -> None:
        """The runs up to now, between two looks at them the last seconds alone; advice on one that has become
        another is made anew."""
        self._watch.tick(now)
        goes_on = self._watch.goes_on
        is_told = self._followed == (self.verdicts, goes_on)
        if self.timeline.observed is None or (is_told and not self.follows):
            return
        now = min(now, self.timeline.newest_ns or now)
        known = self.verdicts or (self._run and self._run.duration_ns > NOW_NS)
        watched_ns = min(self._run.duration_ns, OPEN_NS) if self._run else 0
        often_ns = max(RUN_NS, watched_ns // RUN_LOOKS)
        soon = is_told and known and 0 <= now - self._followed_ns < often_ns
        look = Ledger.moved if soon and not self._is_over(now) else Ledger.run
        if look is Ledger.run:
            self._followed, self._followed_ns = (self.verdicts, goes_on), now
        batches: dict[int | None, int | None] = {
            one.estimate.device.device_id: one.estimate.batch for one in self._judged
        }
        for device_id, known in (batches or {None: None}).items():
            ledger = self._ledgers.setdefault(device_id, Ledger())
            run, before = look(ledger, self.timeline, device_id, now), self._runs.get(device_id)
            if run is not None:
                told = known or (before and before.batch)  # by the last step with shapes
                self._runs[device_id] = replace(run, batch=told)
        if self._run is None:
            return
        self._history.follow(self._run, now)
        if self._run.differs(self._advised_of) or not self._run.reads_like(self._advised_of):
            self._verdict = None

    @property
    def _run(self) -> Run | None:
        """Of the GPU shown."""
        return self._runs.get(self.analysis.estimate.device.device_id if self.analysis else None)

    def _estimates(self) -> dict[str, Any]:
        """Of a snapshot: each GPU's estimate with its run in it, and that of the one shown."""
        devices = [
            of_run(one, self._runs.get(one.estimate.device.device_id)) for one in self._judged
        ]
        at = [one is self.analysis for one in self._judged]
        return {"estimate": devices[at.index(True)] if devices else None, "devices": tuple(devices)}

    def _take(self, frame: Frame) -> None:
        try:
            self.timeline.add(frame)
            self.log.hear(frame)
            if frame.kind == Kind.MARKS:
                self._watch.add_marks(frame.body)
            elif frame.kind == Kind.NAMES:
                self._watch.add_names(frame.body)
        except Exception as fault:  # noqa: BLE001  as above
            self._refuse(fault)

    def _refuse(self, fault: Exception) -> None:
        """A live source goes on without its agent and what that sent; a file's fault is raised."""
        refuse = getattr(self.source, "refuse", None)
        if refuse is None or not refuse(fault):
            raise fault
        report_survived(fault)
        self.timeline.begin_anew()

    def _clock_fell(self, now_ns: int) -> None:
        """The clock of a live source was set back: what was seen lies in a future that is none."""
        self.timeline.begin_anew()
        self._ledgers.clear()
        self._judged_to_ns = 0
        self._history.clear_points()
        self.log.clock_fell(now_ns)

    def _judge(self, span: Span) -> None:
        with_kernels = self._over or self.in_view or self.baseline is not None
        if self._over:
            every, self._left_out = steady_analyses(self.timeline, self.device_id)
        else:
            every = verdicts.analyses(self.timeline, span, with_kernels)
        if not every:
            return
        shown = verdicts.of_device(every, self.device_id)
        steps, now = shown.estimate.steps.count, self._read_to_ns
        if verdicts.lacks_whole_step(self.timeline, now, steps) and not self._is_over(now):
            return
        self._keep(every, with_kernels)
        self._verdict = None
        self.verdicts += 1
        self._history.add(shown)
        self._again = span.t1_ns <= self._judged_to_ns
        self._marking.compare(shown.estimate, self._part)
        if self._marking.comparison is not None:
            self.log.compared(self._marking.comparison, span.t1_ns)
        self._judged_to_ns = span.t1_ns

    def _part(self, span: Span, device_id: int) -> Estimate:
        return estimate(self.timeline.window(span, device_id)).estimate

    def _snapshot(self, now: int, wall_ns: int | None) -> Snapshot:
        history = _history(self._gauges(now))
        latest = {metric: values[-1] for metric, values in history.items()}
        span = self.source.span
        newest, rss = self.timeline.newest_ns, latest.get(Metric.MONITOR_RSS_BYTES)
        age = None if newest is None or wall_ns is None else max(0, wall_ns - newest)
        shown = self._estimates()
        return Snapshot(
            source=self.source.info,
            freshness=self._freshness(age, now),
            now_ns=now,
            age_ns=age,
            progress=_progress(span, now),
            **shown,
            run=self._run,
            left_out=self._left_out,
            lost_records=self.timeline.losses.get("records", 0),
            zero_timestamps=self.timeline.losses.get("zero_timestamps", 0),
            gauges=latest,
            gauge_history=history,
            history=self._history.until(now),
            whole_ns=None if span is None else span.duration_ns,
            events=self.log.until(now),
            overhead=Overhead(
                latest.get(Metric.STEP_COST_SHARE),
                latest.get(Metric.STEP_COST_ERROR_SHARE),
                latest.get(Metric.MONITOR_CPU_SHARE),
                None if rss is None else int(rss),
            ),
            baseline=self._marking.baseline,
            comparison=self._marking.of_run(shown["estimate"]) if self.analysis else None,
        )

    def _gauges(self, now: int) -> Gauges:
        """Readings of the last minute for the device shown and for no device in particular."""
        table = self.timeline.gauges_between(Span(now - 60_000_000_000, now + 1))
        shown = self.analysis.estimate.device.device_id if self.analysis else self.device_id
        if shown is None and len(table):
            shown = int(table.device_ids.max())
        here = (table.device_ids == (shown or 0)) | (table.device_ids < 0)
        kept: Gauges = table.take(here)
        return kept

    def _is_over(self, now: int) -> bool:
        span = self.source.span
        ended = bool(self.source.ended or self.timeline.ended)
        return ended and (span is None or now >= span.t1_ns)

    def _freshness(self, age: int | None, now: int) -> Freshness:
        if self._is_over(now):
            return Freshness.ENDED
        if self.timeline.newest_ns is None:
            return Freshness.WAITING
        if age is not None and age > STALE_NS:
            return Freshness.STALE
        return Freshness.LIVE if self.analysis or self.timeline.gauges_seen else Freshness.WAITING


def _progress(span: Span | None, now: int) -> float | None:
    if span is None or span.duration_ns <= 0:
        return None
    return min(1.0, max(0.0, (now - span.t0_ns) / span.duration_ns))


def _history(gauges: Gauges) -> dict[int, tuple[float, ...]]:
    return {
        metric: tuple(gauges.values[gauges.metrics == metric][-GAUGE_POINTS:].tolist())
        for metric in np.unique(gauges.metrics).tolist()
    }
