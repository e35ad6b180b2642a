"""The regime-shift log: what changed, when, and for how long. One line an event."""

from __future__ import annotations

from collections import deque

from brrrtop import units
from brrrtop.model import Estimate, Event, Regime, Span
from brrrtop.session.timeline import Timeline
from collectors.wire import MarkClass, Metric

KEPT = 500
STEADY = 3
"""Looks in a row that must agree before a change of regime is one."""
STALL_NS = 1_000_000_000
THROTTLE_BITS = {
    0x08: "hardware slowdown", 0x20: "software thermal limit", 0x40: "hardware thermal limit",
    0x80: "power brake",
}  # fmt: skip
"""NVML clocks-event reasons that take speed away; a software power cap (0x4) is normal at full load."""


class EventLog:
    """Turns a run of estimates and marks into events. Fed in order of time."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._regime: str | None = None
        self._since_ns = 0
        self._candidate: tuple[str, int, int] | None = None
        self._seen_ns = 0
        self._throttle = 0
        self._state: str | None = None

    @property
    def events(self) -> tuple[Event, ...]:
        """Oldest first."""
        return tuple(self._events)

    def look(self, timeline: Timeline, estimate: Estimate | None, now_ns: int) -> None:
        """Takes in one more instant."""
        if estimate is not None:
            self._shift(estimate, now_ns)
        self._marks(timeline, now_ns)
        self._throttled(timeline, now_ns)
        self._status(timeline, now_ns)
        self._seen_ns = now_ns

    def _add(self, t_ns: int, kind: str, says: str) -> None:
        self._events.append(Event(t_ns, kind, says))

    def _shift(self, estimate: Estimate, now_ns: int) -> None:
        if estimate.regime is Regime.UNKNOWN:
            return
        word = estimate.regime.value
        if estimate.regime is Regime.OVERHEAD and estimate.cause:
            word = f"{word} ({estimate.cause.replace('_', ' ')})"
        if word == self._regime:
            self._candidate = None
            return
        if self._candidate is None or self._candidate[0] != word:
            self._candidate = (word, now_ns, 0)
        held = (word, self._candidate[1], self._candidate[2] + 1)
        self._candidate = held
        if held[2] < STEADY and self._regime is not None:
            return
        if self._regime is None:
            self._add(now_ns, "regime", word)
        else:
            lasted = units.duration(held[1] - self._since_ns)
            self._add(held[1], "regime", f"{self._regime} → {word}, after {lasted}")
        self._regime, self._since_ns, self._candidate = word, held[1], None

    def _marks(self, timeline: Timeline, now_ns: int) -> None:
        span = Span(self._seen_ns, now_ns)
        for mark_class, kind, least_ns, what in (
            (MarkClass.COMPILE, "compile", 0, "compiling"),
            (MarkClass.INPUT, "stall", STALL_NS, "waiting for the loader"),
            (MarkClass.CHECKPOINT, "checkpoint", 0, "saving a checkpoint"),
            (MarkClass.GC, "stall", STALL_NS // 5, "garbage collection"),
            (MarkClass.ALLOCATOR, "allocator", 0, "allocator retry"),
        ):
            marks = timeline.marks_between(span, mark_class)
            fresh = (marks.ends_ns > span.t0_ns) & (marks.ends_ns <= span.t1_ns)
            fresh &= marks.ends_ns - marks.starts_ns >= least_ns
            for start, end, name_id, value in zip(
                marks.starts_ns[fresh][-20:], marks.ends_ns[fresh][-20:],
                marks.name_ids[fresh][-20:], marks.values[fresh][-20:], strict=True,
            ):  # fmt: skip
                again = "re" if mark_class is MarkClass.COMPILE and value > 0 else ""
                name = timeline.names[int(name_id)]
                says = f"{again}{what} for {units.duration(int(end - start))}"
                self._add(
                    int(start), "recompile" if again else kind, f"{says}: {name}" if name else says
                )

    def _throttled(self, timeline: Timeline, now_ns: int) -> None:
        gauges = timeline.gauges_between(Span(self._seen_ns, now_ns))
        for t_ns, value in zip(
            gauges.times_ns[gauges.metrics == Metric.CLOCK_EVENT_REASONS],
            gauges.values[gauges.metrics == Metric.CLOCK_EVENT_REASONS],
            strict=True,
        ):
            bits = int(value) & sum(THROTTLE_BITS)
            if bits == self._throttle:
                continue
            reasons = ", ".join(says for bit, says in THROTTLE_BITS.items() if bits & bit)
            self._add(
                int(t_ns), "throttle", f"clocks lowered: {reasons}" if bits else "clocks free again"
            )
            self._throttle = bits

    def _status(self, timeline: Timeline, now_ns: int) -> None:
        says = timeline.ended or timeline.status.get("says")
        if says and says != self._state:
            self._add(now_ns, "trainer" if timeline.ended else "agent", str(says))
            self._state = says
