"""The regime-shift log: what changed, when, and for how long. One line an event.

Live lines are written into the recording as they come, so that a replay shows those that somebody
saw, a person's marks and what came of them among them. A line is told by its number: one that is
told again replaces itself, once it is known how long a regime lasted.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from brrrtop.model.advice import Comparison
from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.snapshot import Event
from brrrtop.model.tables import Span
from brrrtop.text import phrases, units
from brrrtop.timeline.timeline import Timeline
from collectors.protocol.bodies import EVENT_LINES
from collectors.protocol.frames import Frame, Kind
from collectors.vocabulary import MarkClass, Metric

KEPT = 500
STEADY = 3
"""Windows in a row that must agree before a change is one."""
STEADY_PART, PASSED_PART = 0.3, 0.6
"""Part of a window's length for which a regime must last to be told; mixed, which a window passes
through on its way between two others, must last longer."""
LATE_NS = 10_000_000_000
"""How long after its end a mark may still arrive, and be told once."""
STALL_NS = 1_000_000_000
_LOGGED_MARKS = (
    (MarkClass.COMPILE, "compile", 0, "compiling"),
    (MarkClass.INPUT, "stall", STALL_NS, "waiting for the loader"),
    (MarkClass.CHECKPOINT, "checkpoint", 0, "saving a checkpoint"),
    (MarkClass.GC, "stall", STALL_NS // 5, "garbage collection"),
    (MarkClass.ALLOCATOR, "allocator", 0, "allocator retry"),
)
"""Marks that are told, as which kind of event, from what length on, and in which words."""
THROTTLE_BITS = {
    0x08: "hardware slowdown", 0x20: "software thermal limit", 0x40: "hardware thermal limit",
    0x80: "power brake",
}  # fmt: skip
"""NVML clocks-event reasons that take speed away; a software power cap (0x4) is normal at full load."""


def noted(lines: Mapping[int, Event]) -> dict[str, Any]:
    """Lines as the body of a status frame."""
    return {EVENT_LINES: [[number, one.t_ns, one.kind, one.says] for number, one in lines.items()]}


def _read(rows: object) -> Iterator[tuple[int, Event]]:
    """Lines of a status frame; what makes no sense is left out."""
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, list) and [type(v) for v in row] == [int, int, str, str]:
            yield row[0], Event(*row[1:])


class _Row:
    """Windows in a row that say the same; one that is judged anew counts once."""

    def __init__(self) -> None:
        self.since_ns = 0
        self.count = 0
        self._says: object = None
        self._newest_ns = 0

    def add(self, message: object, t_ns: int) -> bool:
        """What one that ends then says; False: it has said so before."""
        if not self.count or message != self._says:
            self._says, self.since_ns, self.count = message, t_ns, 0
        elif t_ns <= self._newest_ns:
            return False
        self._newest_ns = t_ns
        self.count += 1
        return True


class EventLog:
    """Turns a run of estimates and marks into events. Fed in order of time.

    Args:
        before: Events of the trainer whose place this one took.
    """

    def __init__(self, before: Iterable[Event] = ()) -> None:
        self.lines = dict(enumerate(before))
        """Events by their numbers, to be recorded."""
        self._next = len(self.lines)
        self._replays = False
        self._regime: str | None = None
        self._why = ""
        self._since_ns = 0
        self._candidate = _Row()
        self._judged: Estimate | None = None
        self._logged: dict[tuple[int, int, int], int] = {}
        self._changes = _Row()
        self._seen_ns = 0
        self._known_ns = 0
        """Up to here all was told before a playhead went back."""
        self._throttle = 0
        self._state: str | None = None
        self._shapes: tuple[int | None, str] = (None, "")
        self._refused: list[object] = []

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(sorted(self.lines.values(), key=lambda event: event.t_ns))

    def until(self, now_ns: int) -> tuple[Event, ...]:
        """Those that a playhead at `now_ns` has passed; it may have been further before."""
        if now_ns >= self._known_ns:
            return self.events
        return tuple(event for event in self.events if event.t_ns <= now_ns)

    def rewound(self) -> None:
        """A playhead goes back: what it passes once more is told already. Recorded lines come again."""
        if self._replays:
            self.lines.clear()
            return
        self._known_ns = max(self._known_ns, self._seen_ns)

    def hear(self, frame: Frame) -> None:
        """Takes over recorded lines; from the first on none are made up from what is seen."""
        if frame.kind != Kind.STATUS or EVENT_LINES not in frame.body:
            return
        if not self._replays:
            self._replays = True
            self.lines.clear()
        for number, event in _read(frame.body[EVENT_LINES]):
            self.lines[number] = event
            self._next = max(self._next, number + 1)
        self._let_go()

    def update(self, timeline: Timeline, estimate: Estimate | None, now_ns: int) -> None:
        if self._replays or now_ns < self._known_ns:
            return
        if estimate is not None and estimate is not self._judged:
            self._judged = estimate
            self._shift(estimate, str(timeline.status.get("workers") or ""))
        self._marks(timeline, now_ns)
        self._log_throttling(timeline, now_ns)
        self._status(timeline, now_ns)
        self._log_shapes(timeline, estimate, now_ns)
        self._seen_ns = now_ns

    def _add(self, t_ns: int, kind: str, message: str, failed: bool = False) -> None:
        event = Event(t_ns, kind, message, failed)
        if self._known_ns and event in self.lines.values():
            return  # told before the playhead went back
        self.lines[self._next] = event
        self._next += 1
        self._let_go()

    def _let_go(self) -> None:
        while len(self.lines) > KEPT:
            del self.lines[next(iter(self.lines))]

    def clock_fell(self, now_ns: int) -> None:
        """What was about to be told has times that come to pass only much later."""
        self._candidate, self._changes, self._logged = _Row(), _Row(), {}
        self._seen_ns = min(self._seen_ns, now_ns)
        self._since_ns = min(self._since_ns, now_ns)

    def marked(self, t_ns: int, message: str) -> None:
        self._changes = _Row()
        self._add(t_ns, "baseline", message)

    def compared(self, comparison: Comparison, t_ns: int) -> None:
        counted = self._changes.add(comparison.changes, t_ns)
        if not counted or not comparison.changes or self._changes.count != STEADY:
            return
        message = f"{'; '.join(comparison.changes)}. Since the baseline: {comparison.says}"
        self._add(t_ns, "change", message)

    def advice_failed(self, t_ns: int, fault: Exception) -> None:
        """Tells once that there is no advice for a fault of our own."""
        message = f"no advice: a fault of brrrtop's own ({type(fault).__name__}: {fault})"
        if message not in (event.says for event in self.lines.values()):
            self._add(t_ns, "advice", message, failed=True)

    def _shift(self, estimate: Estimate, workers: str) -> None:
        if estimate.regime is Regime.UNKNOWN:
            return
        word = phrases.cause_badge(estimate)
        if word == self._regime:
            self._candidate = _Row()
            return
        t_ns, row = estimate.span.t1_ns, self._candidate
        row.add(word, t_ns)
        part = PASSED_PART if estimate.regime is Regime.MIXED else STEADY_PART
        lasting = t_ns - row.since_ns >= part * estimate.span.duration_ns and row.count >= STEADY
        # The first one is told at once, unless marks that are still on their way may name its cause.
        if not lasting and (self._regime is not None or estimate.cause == "unknown"):
            return
        if self._regime is not None:
            self._close_regime(row.since_ns)
        message = word if self._regime is None else f"{self._regime} → {word}"
        self._why = f", {workers}" if workers and estimate.cause == "input" else ""
        self._add(row.since_ns, "regime", message + self._why)
        self._regime, self._since_ns, self._candidate = word, row.since_ns, _Row()

    def _close_regime(self, t_ns: int) -> None:
        """Now it is known how long the last one lasted: its line says so."""
        for number, event in reversed(self.lines.items()):
            if event.kind == "regime":
                lasted = units.duration(t_ns - self._since_ns)
                message = event.says.removesuffix(self._why)
                sentence = f"{message} for {lasted}{self._why}"
                self.lines[number] = Event(event.t_ns, event.kind, sentence)
                return

    def _marks(self, timeline: Timeline, now_ns: int) -> None:
        span = Span(self._seen_ns - LATE_NS, now_ns)
        self._logged = {key: end for key, end in self._logged.items() if end > span.t0_ns}
        marks = timeline.marks_between(span, *(row[0] for row in _LOGGED_MARKS))
        lengths = marks.ends_ns - marks.starts_ns
        for mark_class, kind, least_ns, what in _LOGGED_MARKS if len(marks) else ():
            ended = (marks.ends_ns > span.t0_ns) & (marks.ends_ns <= span.t1_ns)
            ended &= (marks.classes == mark_class) & (lengths >= least_ns)
            for start, end, name_id, value in zip(
                marks.starts_ns[ended].tolist(), marks.ends_ns[ended].tolist(),
                marks.name_ids[ended].tolist(), marks.values[ended].tolist(), strict=True,
            ):  # fmt: skip
                if (mark_class, start, end) in self._logged:
                    continue
                self._logged[(mark_class, start, end)] = end
                again = "re" if mark_class is MarkClass.COMPILE and value > 0 else ""
                name = timeline.names[name_id]
                message = f"{again}{what} for {units.duration(end - start)}"
                message += f": {name}" if name else ""
                self._add(start, "recompile" if again else kind, message)

    def _log_throttling(self, timeline: Timeline, now_ns: int) -> None:
        gauges = timeline.gauges_between(Span(self._seen_ns, now_ns))
        rows = gauges.metrics == Metric.CLOCK_EVENT_REASONS
        for t_ns, value in zip(gauges.times_ns[rows], gauges.values[rows], strict=True):
            bits = int(value) & sum(THROTTLE_BITS)
            if bits == self._throttle:
                continue
            reasons = ", ".join(message for bit, message in THROTTLE_BITS.items() if bits & bit)
            message = f"clocks lowered: {reasons}" if bits else "clocks free again"
            self._add(int(t_ns), "throttle", message)
            self._throttle = bits

    def _log_shapes(self, timeline: Timeline, estimate: Estimate | None, now_ns: int) -> None:
        """What came of recording the ops of a step."""
        refused = timeline.status.get("shapes")
        if isinstance(refused, list) and len(refused) == 2 and refused != self._refused:
            self._refused = refused
            self._add(now_ns, "shapes", str(refused[1]), failed=True)
        shapes = timeline.shapes
        outcome = (shapes.learned_ns, shapes.message)
        if outcome == self._shapes or (estimate is None and not shapes.message):
            return
        self._shapes = outcome
        if estimate is None or shapes.message:
            self._add(now_ns, "shapes", shapes.message, failed=True)
            return
        share = units.share(estimate.evidence_shares.get("L2", 0.0))
        ops = f"{units.count(shapes.op_count)} ops"
        message = f"shapes of one step recorded: {ops}, {share} of kernel time now L2"
        self._add(now_ns, "shapes", message)

    def _status(self, timeline: Timeline, now_ns: int) -> None:
        message = timeline.ended or timeline.status.get("says")
        if message and message != self._state:
            self._add(now_ns, "trainer" if timeline.ended else "agent", str(message))
            self._state = message
