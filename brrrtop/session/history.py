"""What each window added: points of the graph."""

from collections import deque

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.account import account
from brrrtop.analysis.estimate import Analysis
from brrrtop.model.account import Account
from brrrtop.model.run import Run
from brrrtop.model.snapshot import HistoryPoint
from brrrtop.model.tables import Span

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
