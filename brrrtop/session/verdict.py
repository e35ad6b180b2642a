"""From a timeline to the snapshot that shows a span of it, one way for a live trainer, for a playhead and for
a file as a whole: which span to judge now, and which marks outside of it still speak of it; estimate and
advice put together; the points of the graph over time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.advisories.advise import Advice, advise, leading, split_silenced
from brrrtop.advisories.context import Context
from brrrtop.analysis.account import account
from brrrtop.analysis.estimate import Analysis, estimate, step_picture
from brrrtop.analysis.tables.host_tables import host_tables
from brrrtop.model.account import Account
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.model.host_tables import NO_TABLES, HostDetails, HostTables
from brrrtop.model.run import PhaseKind, Run
from brrrtop.model.snapshot import HistoryPoint, Snapshot, StepPicture
from brrrtop.model.tables import Span
from brrrtop.timeline.timeline import Timeline
from collectors.vocabulary import MarkClass

if TYPE_CHECKING:
    from brrrtop.timeline.timeline import Timeline

WINDOW_NS = 10_000_000_000
"""Long enough for a stable verdict over several bursts, short enough to follow a change."""
TRAILING_NS = 1_000_000_000
"""A pause shorter than this at the end of the window may simply not have been reported yet."""
STUMP_NS = 10_000_000_000
"""So long a burst of whole steps is waited for: less than `--once` waits for a verdict."""
MOST_ACTIVITIES = 200_000
"""More are not needed for a verdict, and looking twice a second must stay cheap."""
QUEUED_NS = 1_000_000
"""Between a launch and the kernel on an idle device there are microseconds; a large copy may take longer."""


def current(timeline: Timeline, now_ns: int, window_ns: int = WINDOW_NS) -> Span | None:
    """The span to judge at `now_ns`; None while nothing was traced.

    With bursts it ends with the last of them, so that it is never empty because of a pause, and
    holds that one whole: it may be a single long step. What is traced without pauses is cut.
    """
    if timeline.first_ns is None or timeline.last_ns is None:
        return None
    if timeline.observed is not None:
        seen = [s for s in timeline.observed if s.t0_ns < now_ns]
        if not seen:
            return None
        end = min(seen[-1].t1_ns, now_ns)
        unbroken = timeline.status.get("tier") == "continuous"
        last_ns = end if unbroken else seen[-1].t0_ns
        start = max(seen[0].t0_ns, min(end - window_ns, last_ns))
        return _limit(timeline, Span(start, end))
    last = min(timeline.last_ns, now_ns)
    end = now_ns if now_ns - last > TRAILING_NS else last
    start = max(timeline.first_ns, end - window_ns)
    return _limit(timeline, Span(start, end)) if end > start else None


def whole(timeline: Timeline) -> Span:
    """All of a finished source: from the first device activity's start to the last one's end.

    In a trace a step whose work was recorded begins and ends with its mark: the host's work before the
    first kernel, such as the first batch, is a part of it. Not where that kernel lay in the queue: the device
    was at work on what nobody recorded.
    """
    first, last = timeline.first_ns or 0, timeline.last_ns or 0
    if timeline.observed is not None or timeline.queued_ns() > QUEUED_NS:
        return Span(first, last)
    marks = timeline.marks_between(Span(0, last), MarkClass.STEP)
    rows = (marks.ends_ns > marks.starts_ns) & (marks.ends_ns > first)
    begin = marks.starts_ns[rows].min(initial=first)
    return Span(int(begin), int(marks.ends_ns[rows].max(initial=last)))


def lacks_whole_step(timeline: Timeline, now_ns: int, steps: int | None) -> bool:
    """Whether all that was traced are the beginnings of a trainer that steps, without a whole step.

    The first look at a running trainer may be a part of a step in which the GPU is busy, or idle,
    from end to end: a loader's wait of 100 ms is not in 2 ms of kernels. The next burst is of whole
    steps and comes at once (`Governor`), but is told in parts; where it is long in coming, or holds
    none either, parts must do.

    Args:
        steps: Whole steps that were told apart in it.
    """
    if steps or timeline.observed is None or timeline.status.get("tier") == "continuous":
        return False
    seen = [span for span in timeline.observed if span.t0_ns < now_ns]
    if not seen or now_ns - seen[0].t1_ns > STUMP_NS:
        return False
    return len(timeline.marks_between(Span(0, now_ns + 1), MarkClass.STEP)) > 0


def _limit(timeline: Timeline, span: Span) -> Span:
    """The latest part of the span that holds no more than `MOST_ACTIVITIES`."""
    if not is_long(timeline, span):
        return span
    length = max(1, span.duration_ns * MOST_ACTIVITIES // timeline.activity_count(span))
    return Span(span.t1_ns - length, span.t1_ns)


def is_long(timeline: Timeline, span: Span) -> bool:
    """Whether it holds more than `MOST_ACTIVITIES`."""
    return timeline.activity_count(span) > MOST_ACTIVITIES


OTHER_KIND = 0.3
"""Steps that are so much longer or shorter are others, not the same ones of another pace."""


class Verdict(Struct, frozen=True, eq=False):
    advice: Advice
    tables: HostTables
    picture: StepPicture | None
    """Of the last whole step."""
    sample: Analysis | None = None
    """The steps that edits are simulated on."""


NOTHING = Verdict(Advice(), NO_TABLES, None)


def analyses(timeline: Timeline, span: Span, with_kernels: bool = True) -> tuple[Analysis, ...]:
    ids = timeline.active_devices(span)
    return tuple(estimate(timeline.window(span, i), with_kernels) for i in ids)


def of_device(every: tuple[Analysis, ...], device_id: int | None) -> Analysis:
    """That of the GPU asked for; of the busiest where that one did nothing, or nobody asked."""
    return next((one for one in every if one.estimate.device.device_id == device_id), every[0])


def verdict(
    timeline: Timeline,
    shown: Analysis,
    details: HostDetails | None = None,
    run: Run | None = None,
    before: Verdict | None = None,
    earlier: Context | None = None,
) -> Verdict:
    """What follows from the analysis of the GPU shown.

    Args:
        details: Of a trace: what it holds beyond a timeline.
        run: That the analysis is a sample of; None: it is all there is.
        before: An earlier verdict on the same analysis.
        earlier: What advice on an earlier analysis rests on.
    """
    if before is not None:
        sample = before.sample and _at_usual_pace(timeline, before.sample, run)
        advice = advise(shown, run, sample, before.advice.priced)
        return replace(before, advice=advice, tables=replace(before.tables, loaders=advice.loaders))
    sample = _of_one_loop(timeline, shown, run)
    recorded = timeline.recorded_step(shown.estimate.device.device_id)
    advice = advise(shown, run, _at_usual_pace(timeline, sample, run), earlier=earlier)
    tables = replace(host_tables(shown.facts, details, recorded), loaders=advice.loaders)
    mean_ns = run.step_ns if run is not None else None
    return Verdict(advice, tables, step_picture(sample, mean_ns=mean_ns), sample)


def _of_one_loop(timeline: Timeline, shown: Analysis, run: Run | None) -> Analysis:
    """The part of the analysis that lies in one training loop, where the run has several: the steps of two
    are no steps of one."""
    window = shown.facts.window
    held = run.loop_in(window.observed or ()) if run is not None else None
    if held is None or held[1] is None:
        return shown
    low, high = max(window.span.t0_ns, held[1].t0_ns), min(window.span.t1_ns, held[1].t1_ns)
    return estimate(timeline.window(Span(low, high), shown.estimate.device.device_id))


def _at_usual_pace(timeline: Timeline, sample: Analysis, run: Run | None) -> Analysis:
    """The sample with the run's usual step in place of one around its burst, when the host was quicker or
    slower: gains are then those of the report at any time."""
    steps, usual_ns = sample.estimate.steps, timeline.usual_step_ns()
    if run is None or not usual_ns or steps.source != "marks" or not steps.step_ns:
        return sample
    if sum(one.kind is PhaseKind.TRAIN for one in run.phases) > 1:  # whose usual step is it?
        return sample
    if abs(usual_ns / steps.step_ns - 1) >= OTHER_KIND:
        return sample
    steps = replace(steps, step_ns=int(usual_ns))
    return replace(sample, estimate=replace(sample.estimate, steps=steps))


def showing(
    at: Snapshot, verdict: Verdict, given: Sequence[Advisory], silenced: Collection[str]
) -> Snapshot:
    """A judged snapshot with what follows from its verdict: its advice in the order to make it,
    by the cause that it names. Steps of what-ifs are those of the run now."""
    step_ns = at.run.step_ns if at.run is not None else None
    ordered = leading(given, at.estimate.cause if at.estimate is not None else None)
    shown, quiet = split_silenced(ordered, silenced)
    return replace(
        at,
        advisories=shown,
        silenced=quiet,
        whatif=tuple(of_step(row, step_ns) for row in verdict.advice.whatif),
        whatif_after=verdict.advice.after,
        tables=verdict.tables,
        picture=verdict.picture,
    )


def of_step(row: WhatIf, step_ns: int | None) -> WhatIf:
    """The same gain of a step of that length; None: no steps are known."""
    if not step_ns or not row.present_ns > 0:
        return row
    return replace(row, step_ns=row.step_ns / row.present_ns * step_ns)


POINTS = 600
EACH_NS = 450_000_000
"""Between two points of a run: twice a second, as screens are drawn."""


class History:
    """Fed with judged windows in order of time, which may overlap."""

    def __init__(self) -> None:
        self._points: deque[HistoryPoint] = deque(maxlen=POINTS)
        self._to_ns = 0
        """What is before it is in the points."""
        self._steps_ns: tuple[int, ...] = ()
        """Of bursts since the last point of the run."""

    def until(self, now_ns: int) -> tuple[HistoryPoint, ...]:
        return tuple(point for point in self._points if point.t_ns <= now_ns)

    def clear_points(self) -> None:
        """After a clock was set back, points of the future would be in the way."""
        self._points.clear()
        self._to_ns = 0

    def add(self, analysis: Analysis) -> None:
        """One more window: the part of it that is new, once that says something."""
        span = analysis.estimate.span
        fresh = Span(min(max(span.t0_ns, self._to_ns), span.t1_ns), span.t1_ns)
        steps = tuple(
            one.duration_ns for one in analysis.estimate.steps.spans
            if fresh.t0_ns < one.t1_ns <= fresh.t1_ns
        )  # fmt: skip
        if analysis.facts.window.observed is not None:  # a burst: the run's points are the ledger's
            self._steps_ns, self._to_ns = (*self._steps_ns, *steps), fresh.t1_ns
            return
        part = analysis.estimate.account if fresh == span else _account_between(analysis, fresh)
        if not part.duration_ns:
            return
        self._points.append(HistoryPoint(fresh.t1_ns, part, steps))
        self._to_ns = fresh.t1_ns

    def follow(self, run: Run, t_ns: int) -> None:
        """What the ledger says of the last seconds, at most twice a second."""
        newest = self._points[-1].t_ns if self._points else 0
        if run.now is None or not run.now.account.duration_ns or t_ns - newest < EACH_NS:
            return
        self._points.append(HistoryPoint(t_ns, run.now.account, self._steps_ns))
        self._steps_ns = ()


def _account_between(analysis: Analysis, fresh: Span) -> Account:
    """The account of a part of a window, whose activities are labelled already."""
    facts, window = analysis.facts, analysis.facts.window
    acts = window.activities
    rows = np.flatnonzero((acts.ends_ns > fresh.t0_ns) & (acts.starts_ns < fresh.t1_ns))
    part = facts.take(rows)
    return account.book(replace(part, window=replace(part.window, span=fresh)))
