"""What bursts are made of: the account of each, and the steps and waits in it."""

from __future__ import annotations

import itertools

from msgspec import Struct

from brrrtop.analysis.estimate import Analysis, estimate
from brrrtop.model import intervals
from brrrtop.model.account import Account
from brrrtop.model.tables import Span, edges
from brrrtop.timeline.timeline import Timeline
from collectors.vocabulary import MarkClass

PIECE_NS = 2_000_000_000
"""What is traced without pauses is taken in pieces of so much: each belongs to one phase."""


class Burst(Struct, frozen=True, eq=False):
    """One traced stretch; of whole steps where it holds some."""

    span: Span
    account: Account
    steps: int
    """Whole steps; 0: it is a stretch of time."""
    waits_ns: int
    """Of its time, in which the training thread waited for a batch."""
    kernels: int


class Bursts:
    """The bursts of one device, each judged once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int, int | None], Burst | None] = {}

    def within(self, timeline: Timeline, span: Span, device_id: int) -> list[Burst]:
        """Those that begin in the span, in order."""
        learned = timeline.shapes.learned_ns
        result = []
        for piece in _pieces(timeline, span):
            key = (piece.t0_ns, piece.t1_ns, device_id, learned)
            if key not in self._known:
                self._known[key] = _burst(timeline, piece, device_id)
            burst = self._known[key]
            if burst is not None:
                result.append(burst)
        return result

    def forget(self, before_ns: int) -> None:
        """What lies before is in somebody's sums."""
        self._known = {key: one for key, one in self._known.items() if key[1] >= before_ns}


def _pieces(timeline: Timeline, span: Span) -> list[Span]:
    result = []
    for traced in timeline.observed or ():
        if not span.t0_ns <= traced.t0_ns < span.t1_ns:
            continue
        count = max(1, round(traced.duration_ns / PIECE_NS))
        bounds = [traced.t0_ns + traced.duration_ns * i // count for i in range(count + 1)]
        result += [Span(a, b) for a, b in itertools.pairwise(bounds) if b > a]
    return result


def _burst(timeline: Timeline, span: Span, device_id: int) -> Burst | None:
    return of_analysis(estimate(timeline.window(span, device_id), with_kernels=False))


def of_analysis(analysis: Analysis) -> Burst | None:
    """None where no time of it was traced."""
    result, window = analysis.estimate, analysis.facts.window
    if result.account.duration_ns <= 0:
        return None
    seen = edges(window.observed) if window.observed else edges((result.span,))
    waits = intervals.Cover(*window.marks.union(MarkClass.INPUT))
    whole = result.steps.count if result.steps.source == "marks" else 0
    return Burst(
        span=result.span,
        account=result.account,
        steps=whole or 0,
        waits_ns=int(waits.between(*seen).sum()),
        kernels=len(window.activities),
    )
