"""A baseline, and what is compared with it as a session goes on."""

from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from brrrtop.advisories.compare import compare
from brrrtop.analysis.facts.steps import between_steps
from brrrtop.errors import BrrrtopError
from brrrtop.model.advice import Baseline, Comparison
from brrrtop.model.estimate import Estimate
from brrrtop.model.snapshot import Snapshot
from brrrtop.model.tables import Span
from brrrtop.text import phrases, units

Part = Callable[[Span, int], Estimate]
"""Estimates a span of a device."""
LEAST_STEPS = 2
ENOUGH_NS = 8_000_000_000
"""With so much judged and still no steps, shares are compared."""
GREW = 0.1
"""Part of a run's steps from which it is compared again."""
EPOCH_NS = 10**18
"""Smaller times do not count from 1970: the source has a clock of its own."""


def baseline_of(snapshot: Snapshot, label: str, *, here: bool = False) -> Baseline:
    """What a snapshot says, to compare with.

    Raises:
        BrrrtopError: It has no verdict.
    """
    if snapshot.estimate is None:
        raise BrrrtopError("nothing has been judged yet", "wait for the first verdict")
    return Baseline(
        label=label,
        t_ns=snapshot.estimate.span.t1_ns,
        estimate=snapshot.estimate,
        advisories=snapshot.advisories,
        devices=snapshot.devices,
        here=here,
    )


def compared_whole(base: Baseline, now: Estimate) -> Comparison:
    """A source judged whole, however little it is, beside the baseline."""
    return compare(base.estimate, now, base.advisories)


class BaselineTracker:
    """Keeps the baseline over seeks and restarts, and the newest comparison with it."""

    def __init__(self, baseline: Baseline | None = None) -> None:
        self.baseline = baseline
        self.comparison: Comparison | None = None
        """By traced steps."""
        self._of_run: Comparison | None = None
        self._of_run_steps = 0

    def of_run(self, now: Estimate) -> Comparison | None:
        """The same of all steps of the run where it is another than the baseline's: a burst's are few."""
        base, run = self.baseline, now.run
        if base is None or base.here or self.comparison is None or run is None:
            return self.comparison
        if self._of_run is None or not 0 <= run.steps - self._of_run_steps <= GREW * run.steps:
            self._of_run_steps = run.steps
            promised = (
                base.advisories if now.device.device_id == base.estimate.device.device_id else ()
            )
            self._of_run = compare(base.of(now.device.device_id), now, promised)
        return self._of_run if self._of_run.per_step else self.comparison

    def mark(self, snapshot: Snapshot, part: Part, label: str | None = None) -> str:
        """Makes what is shown the baseline, by its whole steps; says so."""
        baseline = baseline_of(snapshot, label or _mark_label(snapshot), here=True)
        devices = tuple(trimmed(one, part) for one in baseline.devices)
        kept = replace(baseline, estimate=trimmed(baseline.estimate, part), devices=devices)
        self.baseline, self.comparison, self._of_run = kept, None, None
        steps = baseline.estimate.steps
        pace = f", {units.duration(steps.step_ns)} a step" if steps.step_ns else ""
        return f"baseline {baseline.label}: {phrases.cause_badge(baseline.estimate)}{pace}"

    def compare(self, now: Estimate, part: Part) -> None:
        """Compares one more window.

        Args:
            now: Its estimate.
            part: Estimates another span of a device.
        """
        base = self.baseline
        if base is None:
            return
        self.comparison = self._of_run = None
        span = after_baseline(now.span, base)
        if span is None:
            return
        after = now if span == now.span else part(span, now.device.device_id)
        before = base.of(now.device.device_id)
        if not _enough(before, after):
            return
        promised = base.advisories if before.device == base.estimate.device else ()
        # Of the run before a mark and since then bursts alone tell the parts.
        if base.here or after.traced_ns is None:
            after = trimmed(after, part)
        self.comparison = compare(before, after, promised)


def trimmed(estimate: Estimate, part: Part) -> Estimate:
    """The same judged over its whole steps alone, where it has some."""
    span = between_steps(estimate.steps)
    return estimate if span is None else part(span, estimate.device.device_id)


def after_baseline(span: Span, base: Baseline) -> Span | None:
    """The part of a window that the baseline was not judged on; None: there is none yet."""
    begin_ns = base.estimate.span.t0_ns
    if not base.here or span.t1_ns <= begin_ns or span.t0_ns >= base.t_ns:
        return span
    return Span(base.t_ns, span.t1_ns) if span.t1_ns > base.t_ns else None


def _enough(before: Estimate, after: Estimate) -> bool:
    """Whether the after says something: steps where the baseline has some, and not a warm-up."""
    if not after.account.duration_ns or after.steps.warming_up:
        return False
    length, old, new = after.account.duration_ns, before.steps, after.steps
    if not old.count or length >= ENOUGH_NS:
        return True
    if (new.count or 0) < LEAST_STEPS:
        return False
    # The period of a stretch shorter than a step is that of something else.
    sure = old.source == "period" and length >= LEAST_STEPS * (old.step_ns or 0)
    return sure or new.source != "period"


def _mark_label(snapshot: Snapshot) -> str:
    now_ns = snapshot.now_ns
    if now_ns < EPOCH_NS:
        place = "" if snapshot.progress is None else f" at {units.share(snapshot.progress)}"
        return f"marked{place}"
    return f"marked {datetime.fromtimestamp(now_ns / 1e9).astimezone().strftime('%H:%M:%S')}"
