"""The account of a phase, and of the run: what the ledger measured, filled in by what bursts are made of.

A traced step tells how much work the GPU has in a step; marks tell how many steps there were and how long
they took. So busy time is work a step × steps, and idle time is the rest: tracing makes a host slower, but
neither the GPU's work nor the marks of steps that nobody traced. Waits for data are the loader's marks. What
no burst has seen stays unknown: active by the GPU's counter, or idle. (Stratified sampling: Neyman 1934.)
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from brrrtop.analysis.account.account import BUSY
from brrrtop.analysis.estimate import estimate
from brrrtop.model import intervals
from brrrtop.model.account import IDLE_CAUSES, MECHANICAL_CLASSES, Account
from brrrtop.model.run import PhaseKind
from brrrtop.model.tables import I8, Span, Window, edges
from brrrtop.timeline.timeline import NEAR_STEPS_NS, Timeline
from collectors.vocabulary import CallClass, MarkClass

if TYPE_CHECKING:
    from brrrtop.ledger.sums import PhaseSums

PIECE_NS = 2_000_000_000
"""What is traced without pauses is taken in pieces of so much, or less: each belongs to one phase."""
SHORT_NS = 200_000_000
"""Shorter stretches are no piece of their own: samples know their ends no better, and the GPU is behind."""
SAME_CUT_NS = 40_000_000
"""Between two samples of the training thread."""
QUIET_NS = 700_000_000
"""So long after a burst all of it has come: an agent drains for half a second at most."""
SETTLED_NS = NEAR_STEPS_NS + 3_000_000_000
"""So long after a burst nothing more comes of it, nor of the steps around it."""
UNTRACED = 0.05
"""Part of a step outside its burst: tracing is switched on and off where a step ends."""
MOST_STEPS = 12
"""So many of the last ones tell whether steps are alike."""
MEASURED = {
    MarkClass.GC: "gc",
    MarkClass.LOGGING: "logging",
    MarkClass.ALLOCATOR: "allocator",
}
"""Pauses that marks measure inside a phase, and their cause."""
_HOST = {
    PhaseKind.SAVING: "checkpoint",
    PhaseKind.COMPILE: "compile",
    PhaseKind.DATA: "input",
}
"""What a phase that no burst has seen idles for; others: nobody knows."""


class Burst(Struct, frozen=True, eq=False):
    span: Span
    account: Account
    steps: int
    """Whole steps; 0: it is a stretch of time."""
    waits_ns: int
    """Of its time, in which the training thread waited for a batch."""
    launches: tuple[int, ...] = ()
    """Of each of its last whole steps."""


class Bursts:
    """The bursts of one device, each judged at its beginning, when it is over, and once it is settled."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[tuple[object, ...], Burst | None]] = {}
        self._cuts: list[int] = []
        """Of bursts, in order, as they were first told."""

    def within(
        self,
        timeline: Timeline,
        span: Span,
        device_id: int,
        cuts: I8,
        apart: tuple[I8, I8] = (intervals.EMPTY, intervals.EMPTY),
    ) -> list[Burst]:
        """Those that begin in the span, in order.

        Args:
            cuts: Where the program begins to do something else.
            apart: From step end to step end, what holds something beside the step.
        """
        learned = timeline.shapes.learned_ns
        result = []
        for piece in self._pieces(timeline, span, cuts, apart):
            key = (piece.t0_ns, device_id)
            known = self._known.get(key)
            ago_ns = (timeline.newest_ns or 0) - piece.t1_ns
            due = (learned, piece.t1_ns if ago_ns > QUIET_NS else 0, ago_ns > SETTLED_NS)
            if known is None or known[0][0] != due:
                seen = learned, piece.t1_ns, timeline.rows_in(piece)
                same = known is not None and known[0][1] == seen
                burst = known[1] if known and same else _burst(timeline, piece, device_id)
                known = self._known[key] = ((due, seen), burst)
            if known[1] is not None:
                result.append(known[1])
        return result

    def forget(self, before_ns: int) -> None:
        """What ends before: it is in somebody's sums."""
        self._known = {key: one for key, one in self._known.items() if key[0] >= before_ns}
        self._cuts = [cut_ns for cut_ns in self._cuts if cut_ns >= before_ns]

    def _pieces(self, timeline: Timeline, span: Span, cuts: I8, apart: tuple[I8, I8]) -> list[Span]:
        """Long bursts cut where something else begins, short ones without what is apart of steps."""
        result = []
        for traced in timeline.observed or ():
            if not span.t0_ns <= traced.t0_ns < span.t1_ns:
                continue
            count = max(1, traced.duration_ns // PIECE_NS)
            bounds = {traced.t0_ns + PIECE_NS * i for i in range(count)} | {traced.t1_ns}
            if 2 * traced.duration_ns > PIECE_NS:
                ends = traced.t0_ns + SHORT_NS, traced.t1_ns - SHORT_NS
                low, high = np.searchsorted(cuts, ends)
                bounds.update(map(self._first_told, cuts[low:high].tolist()))
            elif len(apart[0]):
                middle = np.array([(traced.t0_ns + traced.t1_ns) // 2])
                steps = list(zip(*intervals.subtract(*edges((traced,)), apart), strict=True))
                if steps and intervals.holders(*apart, middle)[0] < 0:
                    result += [Span(int(a), int(b)) for a, b in steps]
                    continue
            result += [Span(a, b) for a, b in itertools.pairwise(sorted(bounds))]
        return result

    def _first_told(self, cut_ns: int) -> int:
        """The cut as it was when it was new: looks differ by less than samples know, and a piece that begins
        elsewhere would be judged again."""
        at = bisect.bisect(self._cuts, cut_ns - SAME_CUT_NS)
        if at < len(self._cuts) and self._cuts[at] < cut_ns + SAME_CUT_NS:
            return self._cuts[at]
        self._cuts.insert(at, cut_ns)
        return cut_ns


def _burst(timeline: Timeline, span: Span, device_id: int) -> Burst | None:
    """None where no time of it was traced."""
    analysis = estimate(timeline.window(span, device_id), with_kernels=False)
    result, window = analysis.estimate, analysis.facts.window
    if result.account.duration_ns <= 0:
        return None
    seen = edges(window.observed) if window.observed else edges((result.span,))
    waits = intervals.Cover(*window.marks.union(MarkClass.INPUT))
    whole = result.steps.count if result.steps.source == "marks" else 0
    waits_ns = int(waits.between(*seen).sum())
    return Burst(result.span, result.account, whole or 0, waits_ns, _launches(window, whole or 0))


def _launches(window: Window, steps: int) -> tuple[int, ...]:
    """Of each of the last steps that were traced from beginning to end; none where no launches are known.

    Args:
        steps: That the device did in it: calls of the last one may be lost.
    """
    marks, calls = window.marks, window.calls
    ends = np.unique(
        np.append(window.near_steps_ns, marks.ends_ns[marks.classes == MarkClass.STEP])
    )
    made = np.sort(calls.starts_ns[calls.classes == CallClass.LAUNCH])
    opened, closed = edges(window.traced)
    if not len(made) or not len(opened):
        return ()
    opened[0] = min(opened[0], made[0])  # the host is ahead of what runs
    traced = intervals.Cover(opened, closed).between(ends[:-1], ends[1:])
    whole = traced >= (1 - UNTRACED) * np.diff(ends)
    counts = np.diff(np.searchsorted(made, ends))[whole]
    return tuple(counts[counts > 0].tolist()[:steps][-MOST_STEPS:])


def account_of(known: PhaseSums) -> Account:
    whole = [one for one in known.bursts if one.steps]
    if whole and known.steps and known.key[0] is PhaseKind.TRAIN:
        return _by_steps(known, whole)
    if known.bursts:
        return _by_time(known, known.bursts)
    return _unseen(known)


def _by_steps(known: PhaseSums, bursts: Sequence[Burst]) -> Account:
    """Work of a traced step × steps."""
    steps = sum(one.steps for one in bursts)
    busy = {name: known.steps * _sum(bursts, name) / steps for name in BUSY}
    rest_ns = (known.duration_ns - known.waits_ns) / known.steps
    traced_rest_ns = (_sum(bursts, "duration_ns") - sum(one.waits_ns for one in bursts)) / steps
    idle = {c: known.steps * ns / steps for c, ns in _idle(bursts).items()}
    # A traced host is slower: what its steps took beyond the others is idle time that tracing made.
    made_ns = known.steps * max(0.0, traced_rest_ns - rest_ns)
    return _settle(known, busy, _less(idle, made_ns))


def _by_time(known: PhaseSums, bursts: Sequence[Burst]) -> Account:
    """Where no steps are told apart: the counter says how much, bursts say of what."""
    traced_ns = max(1, _sum(bursts, "duration_ns"))
    longer = known.duration_ns / traced_ns
    busy = {name: longer * _sum(bursts, name) for name in BUSY}
    active_ns = sum(busy.values()) - busy["exposed_copy_ns"]
    if known.active is not None and active_ns:
        scale = known.active * known.duration_ns / active_ns
        busy = {n: ns * (1.0 if n == "exposed_copy_ns" else scale) for n, ns in busy.items()}
    elif known.active is not None:
        busy["unknown_ns"] = known.active * known.duration_ns
    outside_ns = max(1, traced_ns - sum(one.waits_ns for one in bursts))
    rest_ns = known.duration_ns - known.waits_ns
    idle = {c: ns / outside_ns * rest_ns for c, ns in _idle(bursts).items()}
    return _settle(known, busy, idle)


def _unseen(known: PhaseSums) -> Account:
    """No burst: active by the counter, and not of what; idle for what the phase is."""
    busy = dict.fromkeys(BUSY, 0.0)
    if known.active is None:
        waits_ns = min(known.waits_ns, known.duration_ns)
        busy["unknown_ns"] = float(known.duration_ns - waits_ns)
    else:
        busy["unknown_ns"] = known.active * known.duration_ns
    return _settle(known, busy, {})


def _settle(known: PhaseSums, busy: dict[str, float], idle: dict[str, float]) -> Account:
    """Makes the parts add up to the phase.

    Args:
        busy: By bucket.
        idle: By cause, outside of waits for data and measured pauses, by bursts.
    """
    most = float(known.duration_ns)
    total = sum(busy.values())
    if total > most:
        busy = {name: ns * most / total for name, ns in busy.items()}
    left = max(0.0, most - sum(busy.values()))
    pauses = {MEASURED[m]: float(ns) for m, ns in known.pauses_ns.items() if m in MEASURED}
    pauses = _fit(pauses, left)
    left -= sum(pauses.values())
    idle = {c: ns for c, ns in idle.items() if c not in pauses}
    beside = sum(idle.values())
    # Where a loop makes a batch bursts see a host that is elsewhere: what is too much is that.
    over = min(idle.get("host", 0.0), known.sampled_ns, max(0.0, beside + known.waits_ns - left))
    idle, beside = {**idle, "host": idle.get("host", 0.0) - over}, beside - over
    # The GPU may work on while the loop waits: that part of a wait is not idle.
    input_ns = min(float(known.waits_ns), max(0.0, left - beside))
    if beside > left - input_ns:
        idle = _fit(idle, left - input_ns)
    left = max(0.0, left - input_ns - sum(idle.values()))
    if sum(idle.values()) and known.key[0] is not PhaseKind.TRAIN:  # more of the same
        most_idle = sum(idle.values()) + left
        idle, left = _fit_to(idle, most_idle), 0.0
    # A slow host takes long from launch to launch: that it is elsewhere in such a gap is a guess by length.
    # Samples say where it stands, also in the steps that nobody traced.
    dispatching = idle.get("host", 0.0) * known.launching
    later = 0.0 if known.key[0] in _HOST else left * known.launching
    if dispatching or later:
        idle = {**idle, "host": idle.get("host", 0.0) - dispatching}
        idle["launch"] = idle.get("launch", 0.0) + dispatching + later
        left -= later
    causes = dict.fromkeys(IDLE_CAUSES, 0.0)
    reading_ns = input_ns * known.reading_ns / known.waits_ns if known.waits_ns else 0.0
    data = {"input": input_ns - reading_ns, "io": reading_ns}
    for part in (idle, pauses, data, {_HOST.get(known.key[0], "unknown"): left}):
        for cause, ns in part.items():
            causes[cause] += ns
    return _rounded(known.duration_ns, busy, causes)


def _idle(bursts: Sequence[Burst]) -> dict[str, float]:
    """Idle time of bursts by cause, but for what is measured all the time, and what nobody knows."""
    left_out = ("unknown", "input", "io", "checkpoint", "evaluation", *MEASURED.values())
    return {
        cause: float(sum(one.account.idle_ns[cause] for one in bursts))
        for cause in IDLE_CAUSES
        if cause not in left_out
    }


def _sum(bursts: Sequence[Burst], name: str) -> int:
    return sum(int(getattr(one.account, name)) for one in bursts)


def _less(parts: dict[str, float], taken: float) -> dict[str, float]:
    """The parts, so much less of them in all."""
    total = sum(parts.values())
    kept = max(0.0, total - taken) / total if total else 0.0
    return {name: ns * kept for name, ns in parts.items()}


def _fit(parts: dict[str, float], most: float) -> dict[str, float]:
    """The parts, made smaller where they are more than that together."""
    return _less(parts, max(0.0, sum(parts.values()) - most))


def _fit_to(parts: dict[str, float], whole: float) -> dict[str, float]:
    """The parts in proportion, that much together."""
    total = sum(parts.values())
    return {name: ns * whole / total for name, ns in parts.items()} if total else parts


def _rounded(duration_ns: int, busy: dict[str, float], causes: dict[str, float]) -> Account:
    """An account in whole nanoseconds that add up; what rounding leaves is the largest part's."""
    buckets = {name: int(ns) for name, ns in busy.items()}
    idle = {cause: int(ns) for cause, ns in causes.items()}
    short = duration_ns - sum(buckets.values()) - sum(idle.values())
    largest = max(causes, key=lambda cause: causes[cause])
    if causes[largest] >= max(busy.values()):
        idle[largest] += short
    else:
        buckets[max(busy, key=lambda name: busy[name])] += short
    mechanical = dict.fromkeys(MECHANICAL_CLASSES, 0)
    for cause, ns in idle.items():
        mechanical[_MECHANICAL.get(cause, "host_late")] += ns
    return Account(
        duration_ns=duration_ns, **buckets, idle_ns=idle, mechanical_ns=mechanical,
        busy_ns=sum(buckets.values()),
    )  # fmt: skip


_MECHANICAL = {
    "launch": "launch", "device": "device_wait", "other_process": "device_wait", "unknown": "unknown",
}  # fmt: skip
"""How idle time of a cause came about; of others the host was late."""
