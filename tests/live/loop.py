"""A training loop made of numbers, to let the governor loose on. Time is simulated."""

import math
from dataclasses import dataclass, field

import numpy as np

from brrrtop.scheduling.burst import Act, Decision
from brrrtop.scheduling.governor import Governor

SECOND = 1_000_000_000
START_NS = 1_700_000_000 * SECOND


@dataclass
class Loop:
    """What the trainer does, and what tracing does to it.

    A traced step takes `cost_share` longer; the first of a burst also stalls. `cost_until_s`
    ends both.
    """

    step_s: float
    noise: float = 0.03
    cost_share: float = 0.1
    stall_s: float = 0.02
    outlier_share: float = 0.0
    drift: float = 0.0
    cost_until_s: float | None = None
    has_steps: bool = True
    answers: bool = True
    workers: int = 0
    """Of its loader; each makes a batch in `batch_s` and has two under way, as torch has."""
    batch_s: float = 0.0
    seed: int = 0


@dataclass
class Run:
    """What came of it. Seconds count from the start."""

    governor: Governor
    end_ns: int
    bursts_s: list[float] = field(default_factory=list)
    extra_s: list[float] = field(default_factory=list)
    """Truly added by each burst."""
    orders: list[tuple[float, Decision]] = field(default_factory=list)
    late_s: float = 0.0
    """How much earlier it would have been at its end without tracing, of a loop with workers."""
    traced_s: list[float] = field(default_factory=list)

    def true_share(self, from_s: float = 0.0, to_s: float = 1e18) -> float:
        """What tracing truly added between two times, over that time without it."""
        end_s = min(to_s, (self.end_ns - START_NS) / SECOND)
        pairs = zip(self.bursts_s, self.extra_s, strict=True)
        added = sum(extra for at, extra in pairs if from_s <= at < end_s)
        return added / (end_s - from_s)

    @property
    def gaps_s(self) -> list[float]:
        """Between the orders of bursts."""
        times = [at for at, decision in self.orders if decision.act is Act.BURST]
        return list(np.diff(times))


class Batches:
    """When batches of a loop with workers are there; none is awaited where it has none."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._rng = np.random.default_rng(loop.seed + 1)
        self._taken: list[float] = []
        self._ready: list[float] = []

    def next(self, now: float) -> float:
        """How long is waited for the next one, in s."""
        count, workers = len(self._taken), self._loop.workers
        if not workers:
            return 0.0
        asked = self._taken[count - 2 * workers] if count >= 2 * workers else 0.0
        begun = max(asked, self._ready[count - workers] if count >= workers else 0.0)
        self._ready.append(begun + self._loop.batch_s * math.exp(self._rng.normal(0, 0.05)))
        before = self._taken[-1] if count else 0.0
        waited = max(self._ready[-1] - now, 0.0)
        self._taken.append(max(now + waited, before))
        return waited


def run(loop: Loop, governor: Governor, seconds: float) -> Run:
    """Trains for that long, with the governor looking four times a second."""
    rng = np.random.default_rng(loop.seed)
    done = Run(governor, START_NS)
    now = palette = 0.0
    ends: list[int] = []
    reports: list[tuple[float, int, int, int]] = []
    ordered = left = 0
    began = extra = worked = 0.0
    waits: list[tuple[int, ...]] = []
    data, plain = Batches(loop), Batches(loop)
    while now < seconds:
        costs = loop.cost_until_s is None or now < loop.cost_until_s
        length = loop.step_s * (1 + loop.drift * math.sin(now / 20))
        length *= math.exp(rng.normal(0, loop.noise) - loop.noise**2 / 2)
        if rng.random() < loop.outlier_share:
            length *= rng.uniform(2, 10)
        waited_s, usual_s = data.next(now), length
        waits += [_ns(now, now + waited_s)] if waited_s else []
        done.late_s += waited_s - plain.next(now - done.late_s)
        now += waited_s
        if ordered and not left:
            left, ordered, began, extra, worked = ordered, 0, now, 0.0, 0.0
            extra += loop.stall_s * rng.uniform(0.3, 1.0) * costs
            length += extra
        if left:
            slower = length * loop.cost_share * costs
            length, extra, left = length + slower, extra + slower, left - 1
            worked += length
            if not left:
                done.bursts_s.append(began)
                done.extra_s.append(extra)
                done.traced_s.append(now + length - began)
                records = int(worked * loop.cost_share * 1e6)
                reports.append((now + length + 0.15, *_ns(began, now + length), records))
        now += length
        done.late_s += length - usual_s
        ends.append(START_NS + int(now * SECOND))
        while palette <= now:
            arrived = [wait for wait in waits if wait[1] <= _ns(palette)[0]]
            waits = waits[len(arrived) :]
            governor.add_waits(*np.array(arrived, np.int64).reshape(-1, 2).T)
            ends = _tell(loop, governor, palette, ends, reports)
            decision = governor.decide(START_NS + int(palette * SECOND))
            if decision is not None:
                done.orders.append((palette, decision))
                by_time = decision.longest_ns / SECOND / loop.step_s
                ordered = decision.steps or max(1, int(by_time))
            palette += 0.25
    done.end_ns = START_NS + int(now * SECOND)
    return done


def _ns(*seconds: float) -> tuple[int, ...]:
    return tuple(START_NS + int(one * SECOND) for one in seconds)


def _tell(
    loop: Loop, governor: Governor, value: float, ends: list[int],
    reports: list[tuple[float, int, int, int]],
) -> list[int]:  # fmt: skip
    """Reports what has arrived by now; returns the steps that have not."""
    now_ns = START_NS + int(value * SECOND)
    if loop.has_steps:
        governor.add_steps(np.array([end for end in ends if end <= now_ns], np.int64))
    for report in [one for one in reports if one[0] <= value]:
        reports.remove(report)
        if loop.answers:
            governor.add_records(*np.zeros((2, report[3]), np.int64))
            governor.add_observed(report[1], report[2])
    return [end for end in ends if end > now_ns]
