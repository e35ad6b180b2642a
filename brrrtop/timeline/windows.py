"""Which stretch of a timeline to judge now, and which marks outside of it still speak of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brrrtop.model.tables import Span
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
