"""One burst from its order on: what it was to be, and what the agent has reported of it."""

import numpy as np

from brrrtop.model import intervals
from brrrtop.model.tables import I8
from brrrtop.scheduling.limits import Limits

_NONE = np.zeros(0, np.int64)


class Burst:
    """Ordered; then its spans and records in, and whether it is over out.

    Args:
        steps: To trace; 0: by time.
        longest_ns: It may take.
        phase: Of `PhaseWatch`, in which it was ordered.
        aside: That phase has no steps, though the program has.
        disturbed: The ops of a step are recorded in it, so that its steps measure nothing.
        free: Waits are to absorb what it adds.
        charged_ns: What it was taken to cost.
    """

    def __init__(
        self, asked_ns: int, steps: int, longest_ns: int, phase: str | None = None, aside: bool = False,
        disturbed: bool = False, free: bool = False, charged_ns: float = 0.0,
    ) -> None:  # fmt: skip
        self.asked_ns, self.steps, self.longest_ns = asked_ns, steps, longest_ns
        self.phase, self.free, self.charged_ns = phase, free, charged_ns
        self.measures = not (disturbed or aside)
        """Its steps can be compared with those around it."""
        self.span: tuple[int, int] | None = None
        """What was traced, as far as reported."""
        self._seen_ns = asked_ns
        self.traced = False
        """The agent says that it is over and all of it is reported."""
        self.records = 0
        self.over = False
        self._busy: list[tuple[I8, I8]] = []

    def add_span(self, start_ns: int, end_ns: int, now_ns: int) -> None:
        before = self.span or (start_ns, end_ns)
        self.span = min(before[0], start_ns), max(before[1], end_ns)
        self._seen_ns = now_ns

    def add_records(self, starts_ns: I8, ends_ns: I8) -> None:
        self.records += len(starts_ns)
        self._busy.append((starts_ns, ends_ns))

    def ends(self, now_ns: int, limits: Limits) -> bool:
        """Whether it is over: said, not reported of any more, or without an answer for too long."""
        if self.span is not None:
            self.over = self.traced or now_ns - self._seen_ns >= limits.quiet_ns
        else:
            self.over = self.traced or now_ns - self.asked_ns > self.longest_ns + limits.answer_ns
        return self.over

    def whole(self, now_ns: int) -> tuple[int, int]:
        """Start and end; where nothing ran until now, no longer than it may take."""
        return self.span or (self.asked_ns, min(now_ns, self.asked_ns + self.longest_ns))

    def busy_ns(self) -> int:
        if self.span is None or not self._busy:
            return 0
        starts, ends = (np.concatenate(side) for side in zip(*self._busy, strict=True))
        return intervals.total(*intervals.merge_unsorted(*intervals.clip(starts, ends, *self.span)))

    def clock_fell(self, now_ns: int) -> None:
        """CLOCK_REALTIME was set back: it counts from now."""
        self.asked_ns = self._seen_ns = now_ns
        self.span = None
