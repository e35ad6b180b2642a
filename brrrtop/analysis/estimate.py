"""The method's table of contents: a window in, an estimate out; and the picture of one of its steps."""

from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.account import account, idle_causes
from brrrtop.analysis.ceilings import ceilings_for
from brrrtop.analysis.facts import launches, steps
from brrrtop.analysis.facts.table import BUCKETS, COMM, TRANSFER, WORK, Facts
from brrrtop.analysis.kernels import counters, table
from brrrtop.analysis.kernels.compute_or_memory import label
from brrrtop.kernel_names.facts import least_capability
from brrrtop.kernel_names.traits import used
from brrrtop.model import intervals
from brrrtop.model.account import IDLE_CAUSES
from brrrtop.model.estimate import Estimate, Roofs
from brrrtop.model.snapshot import Bars, Lane, StepPicture
from brrrtop.model.tables import I8, U1, Calls, Marks, Span, Window, picked
from brrrtop.timeline import correlation
from collectors.vocabulary import PAINT, CallClass, MarkClass


class Analysis(Struct, frozen=True, eq=False):
    """An estimate with the facts behind it, for what digs deeper."""

    estimate: Estimate
    facts: Facts


def facts_of(window: Window) -> Facts:
    call_rows = correlation.call_of(window.activities, window.calls, window.observed)
    return Facts(window, call_rows, ceilings_for(window.device))


def estimate(window: Window, with_kernels: bool = True) -> Analysis:
    """Account, kernel table and verdict of one device's window.

    Args:
        with_kernels: False where nobody sees them: see `kernel_by_kernel`.
    """
    uncut = facts_of(window)
    found = steps.find_steps(uncut)
    facts, whole = steps.whole_steps(uncut)
    facts = facts.labelled(label(facts)).stepped(found)
    booked = account.book(facts)
    facts = facts.stepped(steps.on_device(found, whole, booked.duration_ns))
    split = account.split_of(booked)
    shared = idle_causes.is_shared(facts)
    verdict = account.judge(
        booked, split, table.uncertainty_by_bound(facts), len(facts.call_rows),
        facts.steps.warming_up, shared,
    )  # fmt: skip
    roofs = facts.ceilings
    whole_ns = window.span.duration_ns
    result = Estimate(
        span=window.span,
        device=window.device,
        account=booked,
        split=split,
        regime=verdict.regime,
        cause=verdict.cause,
        confidence=verdict.confidence,
        runner_up=verdict.runner_up,
        launch=launches.launch_lead(facts),
        steps=facts.steps,
        batch=steps.samples_of_step(facts),
        kernels=(),
        evidence_shares=table.evidence_shares(facts),
        observed_share=booked.duration_ns / whole_ns if whole_ns else 1.0,
        roofs=Roofs(roofs.flop_per_s, roofs.bytes_per_s, roofs.source) if roofs else None,
        capability_at_least=_named_capability(window),
        sampled=counters.summary(window),
        stack_samples=facts.stack_samples,
        shared=shared,
    )
    analysis = Analysis(result, facts)
    return kernel_by_kernel(analysis) if with_kernels else analysis


def kernel_by_kernel(analysis: Analysis) -> Analysis:
    """The same with a row for each kernel, and what runs around it."""
    rows = table.rows_of(analysis.facts)
    near = table.find_neighbours(analysis.facts, [row.name for row in rows])
    return replace(analysis, estimate=replace(analysis.estimate, kernels=rows, neighbours=near))


def _named_capability(window: Window) -> tuple[int, int] | None:
    if window.device.capability is not None or window.device.name is not None:
        return None
    return least_capability(window.names[i] for i in used(window.activities.name_ids))


STRETCH_NS = 100_000_000
"""Length of the picture where no steps are known."""
LEAST_GAP_NS = 1_000
"""Shorter gaps are the device's own, between one kernel and the next."""
HOST = ("launching", "optimizer", "annotation", "host")
KINDS = (
    *BUCKETS,
    *(f"idle_{cause}" for cause in IDLE_CAUSES), *HOST,
)  # fmt: skip
_KIND = {kind: number for number, kind in enumerate(KINDS)}
_MARKS = {
    **{int(one): f"idle_{cause}" for cause, classes in PAINT for one in classes},
    int(MarkClass.PYTHON_SYNC): "idle_sync",
    int(MarkClass.OPTIMIZER): "optimizer",
    int(MarkClass.ANNOTATION): "annotation",
    int(MarkClass.OP): "launching",
}
"""What Python's lane shows, the most specific in front."""
_CALLS = {
    int(CallClass.LAUNCH): "launching",
    int(CallClass.GRAPH_LAUNCH): "launching",
    int(CallClass.SYNC): "idle_sync",
    int(CallClass.ALLOC): "idle_allocator",
    int(CallClass.COPY): "copy",
    int(CallClass.MODULE): "idle_compile",
}
_LAYERS = {"annotation": 0, "launching": 1, "optimizer": 2}
"""Of Python's lane, from the back to the front; what names a cause is before all of them."""


def step_picture(
    analysis: Analysis, until_ns: int | None = None, mean_ns: int | None = None
) -> StepPicture | None:
    """A step of usual length; None for a window without activity.

    Args:
        until_ns: The last step that ended by then, however long, else the first.
        mean_ns: Of the run's steps; None: the median of those here is usual.
    """
    window = analysis.facts.window
    if not len(window.activities):
        return None
    span, number = _choose(analysis, until_ns, mean_ns)
    names: dict[str, int] = {}
    lanes = (
        Lane("Python", _python(window, span, names)),
        Lane("calls", _calls(window, span, names)),
        *_device(analysis, span, names),
        Lane("gaps", _gaps(analysis, span)),
    )
    return StepPicture(
        span=span,
        lanes=tuple(lane for lane in lanes if len(lane.bars)),
        kinds=KINDS,
        names=tuple(names),
        step=number,
        steps=len(analysis.estimate.steps.spans),
    )


def _choose(
    analysis: Analysis, until_ns: int | None, mean_ns: int | None
) -> tuple[Span, int | None]:
    """The newest of the steps that are about as long as the usual one, and its number."""
    spans = analysis.estimate.steps.spans
    usual = mean_ns or analysis.estimate.steps.step_ns or 0
    if spans and until_ns is not None:
        passed = max(1, sum(one.t1_ns <= until_ns for one in spans))
        return spans[passed - 1], passed
    if spans:
        near = min(abs(one.duration_ns - usual) for one in spans) + usual // 20
        alike = [i for i, one in enumerate(spans) if abs(one.duration_ns - usual) <= near]
        # A host that is far ahead makes its last calls before the last steps.
        best = max(alike, key=lambda i: (len(_touching(analysis.facts.window.calls, spans[i])), i))
        return spans[best], best + 1
    whole = _observed_span(analysis.facts.window, analysis.facts.window.span.t1_ns - 1)
    end_ns = min(whole.t1_ns, int(analysis.facts.window.activities.ends_ns.max()))
    return Span(max(whole.t0_ns, end_ns - STRETCH_NS), max(end_ns, whole.t0_ns + 1)), None


def _observed_span(window: Window, at_ns: int) -> Span:
    """The traced stretch that holds a time, else the last before it."""
    if not window.observed:
        return window.span
    before = [one for one in window.observed if one.t0_ns <= at_ns]
    return before[-1] if before else window.observed[0]


def _touching(table: Calls | Marks, span: Span) -> I8:
    return np.flatnonzero((table.ends_ns > span.t0_ns) & (table.starts_ns < span.t1_ns))


def _bars(
    starts: I8, ends: I8, kinds: U1, labels: Iterable[str], names: dict[str, int],
    launched: I8 | None = None,
) -> Bars:  # fmt: skip
    ids = [names.setdefault(label, len(names)) if label else -1 for label in labels]
    given = np.full(len(starts), -1, np.int64) if launched is None else launched
    return Bars(starts, ends, kinds, np.array(ids, np.int32), given)


def _python(window: Window, span: Span, names: dict[str, int]) -> Bars:
    """What the launching thread was seen doing: nested marks behind those that name a cause."""
    marks = window.marks.take(_touching(window.marks, span))
    marks = marks.take(
        np.isin(marks.classes, np.array(list(_MARKS))) & (marks.ends_ns > marks.starts_ns)
    )
    main = _main_thread(window)
    if main is not None and (marks.tids == main).any():
        marks = marks.take((marks.tids == main) | (marks.classes != MarkClass.OP))
    kinds = np.array([_KIND[_MARKS[one]] for one in marks.classes.tolist()], np.uint8)
    depth = np.array([_LAYERS.get(KINDS[one], len(_LAYERS)) for one in kinds.tolist()], np.int64)
    order = np.lexsort((marks.starts_ns, depth))
    labels = [window.names[i] for i in marks.name_ids[order].tolist()]
    return _bars(marks.starts_ns[order], marks.ends_ns[order], kinds[order], labels, names)


def _main_thread(window: Window) -> int | None:
    """The thread that makes most of the launches."""
    launching = window.calls.classes == CallClass.LAUNCH
    tids, counts = np.unique(window.calls.tids[launching], return_counts=True)
    return int(tids[counts.argmax()]) if len(tids) else None


def _calls(window: Window, span: Span, names: dict[str, int]) -> Bars:
    calls = window.calls.take(_touching(window.calls, span))
    kinds = np.array([_KIND[_CALLS.get(one, "host")] for one in calls.classes.tolist()], np.uint8)
    labels = [window.names[i] for i in calls.name_ids.tolist()]
    return _bars(calls.starts_ns, calls.ends_ns, kinds, labels, names)


def _device(analysis: Analysis, span: Span, names: dict[str, int]) -> Iterable[Lane]:
    acts, labels, calls = (
        analysis.facts.window.activities,
        analysis.facts.labels,
        analysis.facts.window.calls,
    )
    rows = np.flatnonzero((acts.ends_ns > span.t0_ns) & (acts.starts_ns < span.t1_ns))
    kinds = labels.buckets.astype(np.uint8)  # `KINDS` begins with the buckets
    for name, kind in (("kernels", WORK), ("communication", COMM), ("copies", TRANSFER)):
        shown = rows[labels.classes[rows] == kind]
        launched = picked(calls.starts_ns, analysis.facts.call_rows[shown], -1)
        yield Lane(
            name,
            _bars(
                acts.starts_ns[shown], acts.ends_ns[shown], kinds[shown],
                [analysis.facts.window.names[i] for i in acts.name_ids[shown].tolist()], names, launched,
            ),
        )  # fmt: skip


def _gaps(analysis: Analysis, span: Span) -> Bars:
    """Idle stretches of the device, each by what most of it was lost to."""
    window, acts = analysis.facts.window, analysis.facts.window.activities
    around = _observed_span(window, span.t0_ns)
    low, high = min(around.t0_ns, span.t0_ns), max(around.t1_ns, span.t1_ns)
    busy = intervals.merge(*intervals.clip(acts.starts_ns, acts.ends_ns, low, high))
    others = idle_causes.others_there(window)
    gaps = idle_causes.by_gap(analysis.facts, busy, (low, high), others)
    shown = (gaps.ends_ns > span.t0_ns) & (gaps.starts_ns < span.t1_ns)
    shown &= gaps.ends_ns - gaps.starts_ns >= LEAST_GAP_NS
    causes = tuple(gaps.causes_ns)
    if not shown.any() or not causes:
        empty = np.zeros(0, np.int64)
        return _bars(empty, empty, empty.astype(np.uint8), (), {})
    largest = np.stack([gaps.causes_ns[cause][shown] for cause in causes]).argmax(axis=0)
    named = [_io_or_host(analysis, causes[i]) for i in largest.tolist()]
    kinds = np.array([_KIND[f"idle_{cause}"] for cause in named], np.uint8)
    return _bars(gaps.starts_ns[shown], gaps.ends_ns[shown], kinds, [""] * len(named), {})


def _io_or_host(analysis: Analysis, cause: str) -> str:
    """Samples part the two for the window as a whole: a gap is what most of that time is."""
    idle = analysis.estimate.account.idle_ns
    return "io" if cause == "host" and idle.get("io", 0) > idle.get("host", 0) else cause
