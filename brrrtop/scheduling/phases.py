"""What the program does now, as far as it matters for when to trace, and of which of it too little is known.

A phase here is the function that the training thread is in besides the loop that steps: found by where
samples differ from the place of the step, within two seconds, and forgotten with the monitor. No clock.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from collectors.vocabulary import MarkClass

SECOND = 1_000_000_000
STEPS = "steps"
"""The phase in which an optimizer steps."""
ENOUGH_NS = SECOND
"""Traced of a phase: half of what it does is taken to be known."""
DOUBT_FROM = 0.15
"""Between the GPU's counter and bursts: less is what the counter itself is off by."""
WORTH = 0.02
"""Share times ignorance; for less nobody waits until a phase comes again."""
LATE_NS = 150_000_000
_GAPS = 3.0
"""Without a step for so many of the longer gaps between steps (nine tenths are shorter), and `LATE_NS`,
something else may go on: what did in such a gap before is known by its first sample."""
AWAY_NS = 700_000_000
_LEAST_SAMPLES = 3
"""Without a step for that long, and with so many samples, so may what never did."""
_FRESH_NS = SECOND
"""Samples as old as that still say what goes on."""
_KEPT = 64
_MOST = 32
"""Phases; a program with more has none that are worth a burst each."""


class Known(Struct, frozen=True):
    key: str
    share: float
    """Of the time watched."""
    traced_ns: int
    active: float | None = None
    """Share of it in which the GPU's counter saw a kernel."""
    busy: float | None = None
    """Share of its bursts in which one ran."""

    @property
    def ignorance(self) -> float:
        """1: nothing is known of its inside; towards 0 with what was traced, unless two witnesses differ."""
        little = ENOUGH_NS / (ENOUGH_NS + self.traced_ns)
        if self.active is None or self.busy is None:
            return little
        beyond = max(abs(self.active - self.busy) - DOUBT_FROM, 0.0)
        return max(little, min(1.0, 2 * beyond))

    @property
    def worth(self) -> float:
        """Share of the time of which a burst would tell something."""
        return self.share * self.ignorance


def next_target(phases: Iterable[Known]) -> Known | None:
    """The phase that the next burst tells most about; None where none is worth one."""
    best = max(phases, key=lambda phase: phase.worth, default=None)
    return best if best is not None and best.worth >= WORTH else None


class _Phase:
    """Sums over one phase, and when it went on last."""

    def __init__(self) -> None:
        self.took_ns = self.traced_ns = self.looks = 0
        self.seen_ns = 0
        self.active: list[float] = []
        self.busy_ns = 0


class PhaseWatch:
    """Marks, names and gauges in; the phase that goes on now, and what is known of each, out."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[str, ...]] = {}
        self._steps: deque[int] = deque(maxlen=_KEPT)
        self._step_place: tuple[str, ...] = ()
        self._loader_lines: set[str] = set()
        self._late, self._late_of = 0.0, 0
        self._booked = False
        """The gap since the last step is another phase's already."""
        self._samples: deque[tuple[int, int]] = deque(maxlen=_KEPT)
        self._phases: dict[str, _Phase] = {}
        self._now_ns: int | None = None
        self.key: str | None = None
        """What goes on; None: nobody knows yet."""

    # --- in -------------------------------------------------------------------

    def add_names(self, names: Mapping[int, str]) -> None:
        self._places.update(
            (name_id, _functions(name)) for name_id, name in names.items() if ".py:" in name
        )

    def add_marks(self, rows: Any) -> None:
        """Mark records of the wire, at any time in any order."""
        classes = rows["mark_class"]
        sampled = rows[classes == MarkClass.STACK]
        self._samples.extend(
            zip(sampled["end_ns"].tolist(), sampled["name_id"].tolist(), strict=True)
        )
        for row in rows[classes == MarkClass.PLACE]:
            place = self._places.get(int(row["name_id"]), ())
            if row["value"] == MarkClass.STEP:
                self._step_place = place or self._step_place
            elif place and len(self._loader_lines) < _MOST:
                self._loader_lines.add(place[-1])
        for end_ns in np.sort(rows["end_ns"][classes == MarkClass.STEP]).tolist():
            self._end_gap(end_ns)
            self._steps.append(end_ns)

    def add_active(self, share: float) -> None:
        """The GPU's own counter, of the moment."""
        if self.key is not None:
            active = self._phases[self.key].active
            active.append(share)
            del active[:-4096:2]  # of days, every other one

    def add_burst(self, key: str | None, traced_ns: int, busy_ns: int) -> None:
        phase = self._phases.get(key or "")
        if phase is not None:
            phase.looks += 1
            phase.traced_ns += traced_ns
            phase.busy_ns += busy_ns

    def tick(self, now_ns: int) -> None:
        """Books the time since the tick before."""
        before_ns, self._now_ns = self._now_ns, now_ns
        self.key = self._key(now_ns)
        if self.key is None:
            return
        phase = self._phases.setdefault(self.key, _Phase())
        phase.took_ns += min(max(now_ns - (before_ns or now_ns), 0), SECOND)
        phase.seen_ns = now_ns
        self._booked |= self.key != STEPS

    # --- out ------------------------------------------------------------------

    @property
    def goes_on(self) -> object:
        """What goes on now, and where the loop steps; None: nobody knows."""
        return self.key and (self.key, self._step_place)

    @property
    def unseen(self) -> bool:
        phase = self._phases.get(self.key or "")
        return phase is not None and not phase.looks

    @property
    def phases(self) -> Sequence[Known]:
        whole = max(sum(phase.took_ns for phase in self._phases.values()), 1)
        return [
            Known(
                key,
                phase.took_ns / whole,
                phase.traced_ns,
                float(np.mean(phase.active)) if phase.active else None,
                phase.busy_ns / phase.traced_ns if phase.traced_ns else None,
            )
            for key, phase in self._phases.items()
        ]

    def elsewhere(self, now_ns: int, patience_ns: int) -> bool:
        """Whether a burst tells most of a phase that does not go on now, but did that long ago at most."""
        target = next_target(self.phases)
        if target is None or self.key in (None, target.key):
            return False
        return now_ns - self._phases[target.key].seen_ns < patience_ns

    def _key(self, now_ns: int) -> str | None:
        """A step that is late is something else only where samples say what."""
        if not self._steps:
            return self._elsewhere(now_ns, 0) if self._samples else None
        last_ns = self._steps[-1]
        if now_ns - last_ns <= self._late_ns:
            return STEPS
        return self._elsewhere(now_ns, last_ns) or STEPS

    def _end_gap(self, end_ns: int) -> None:
        """A step ended: a long gap before it that is nobody's yet is booked by its samples."""
        booked, self._booked = self._booked, False
        last_ns = self._steps[-1] if self._steps else end_ns
        if booked or end_ns - last_ns <= LATE_NS or end_ns - last_ns <= self._late_ns:
            return
        key = self._most_seen(last_ns, end_ns)[0]
        if key in (None, STEPS) or (key not in self._phases and len(self._phases) >= _MOST):
            return
        phase, steps = (self._phases.setdefault(str(one), _Phase()) for one in (key, STEPS))
        phase.took_ns += end_ns - last_ns
        phase.seen_ns = end_ns
        steps.took_ns = max(steps.took_ns - (end_ns - last_ns), 0)

    @property
    def _late_ns(self) -> float:
        """So long after the last step it is late."""
        if self._late_of != self._steps[-1]:
            self._late_of, gaps = self._steps[-1], sorted(b - a for a, b in pairwise(self._steps))
            usual_ns = gaps[9 * len(gaps) // 10] if gaps else AWAY_NS
            self._late = max(LATE_NS, _GAPS * usual_ns)
        return self._late

    def _elsewhere(self, now_ns: int, since_ns: int) -> str | None:
        """What most of the newest samples are in, where it is known or has lasted."""
        key, count = self._most_seen(max(since_ns, now_ns - _FRESH_NS), now_ns)
        if key is None or key in self._phases:
            return key
        lasts = count >= _LEAST_SAMPLES and now_ns - since_ns > AWAY_NS
        return key if lasts and len(self._phases) < _MOST else None

    def _most_seen(self, from_ns: int, to_ns: int) -> tuple[str | None, int]:
        """The function that most samples of a time are in, beside the loop that steps, and how many are."""
        within = (name_id for at_ns, name_id in self._samples if from_ns < at_ns <= to_ns)
        named = Counter(self._beside(self._places.get(name_id, ())) for name_id in within)
        return named.most_common(1)[0] if named else (None, 0)

    def _beside(self, place: tuple[str, ...]) -> str:
        """The outermost function in which a place differs from that of the step; the loop's own line
        where it is in no other function: that of its loader is the loop's, which waits."""
        for ours, theirs in zip(place, self._step_place, strict=False):
            if _without_line(ours) != _without_line(theirs):
                return _without_line(ours)
        if len(place) > len(self._step_place):
            return _without_line(place[len(self._step_place)])
        if place and place[-1] in self._loader_lines:
            return STEPS
        return place[-1] if place else "unknown"


def _functions(name: str) -> tuple[str, ...]:
    frames = name.partition(" | ")[0].partition(" > ")[0]
    return tuple(reversed(frames.split(" < ")))


def _without_line(frame: str) -> str:
    """`main.py:88 main` → `main.py main`."""
    where, _, function = frame.rpartition(" ")
    return f"{where.rpartition(':')[0]} {function}"
