"""The part of a trace that stands for the run, and what is named instead of judged.

A trace of a few steps holds things that happen once: the first batch, a library that sets itself up, a
profiler that begins, one checkpoint. As a share of a second they are large, of a run they are nothing.
"""

import numpy as np

from brrrtop.analysis.facts.launches import loads
from brrrtop.analysis.facts.table import Facts
from brrrtop.model.intervals import Cover
from brrrtop.model.snapshot import LeftOut, Once
from brrrtop.model.tables import Span, Window
from collectors.vocabulary import PAINT, CopyKind

STARTUP_STEPS = 2.0
"""Median steps before the first whole one: less may be a part of a step."""
ODD = 2.0
"""Median steps that the one odd step lasts at least."""
LEAST_PART = 0.1
"""Of the window, that what is left out must be."""
MOST_PART = 0.5
"""Of the window and of the work of kernels, that a set-up may be: of more it is a trace of a start."""
MOVED_COPIES = 16
"""Uploads before the first kernel that are a model's."""
LEAST_STEPS = 3
"""Of fewer none is the odd one."""
HOLE_PART, HOLE_TIMES, HOLE_NS = 0.25, 5.0, 5_000_000
"""A single hole: at least this part of the window, so many times the next longest one, and so long."""
LEAST_ACTIVITIES = 8
COVERED = 0.5
"""Of a hole, that a mark or a call must cover to be its cause."""
RECURRING = ("input", "logging", "evaluation", "gc")
"""Causes that come again: a trace that holds one such wait is a sample of them."""


def steady_part(facts: Facts) -> tuple[Span, tuple[LeftOut, ...]]:
    """What to judge of a trace, and what is left out of it; all of it and nothing where no part is odd."""
    window, steps = facts.window, facts.steps
    if window.observed is not None or steps.source == "marks":
        return window.span, ()
    span, out = _without_startup(facts)
    if len(steps.spans) >= LEAST_STEPS:
        span, odd = _without_odd_step(facts, span)
        out = (*out, *odd)
    else:
        span, out = _without_set_up(facts)
        if not steps.warming_up and not out:  # a trace of a start is a trace of a start
            span, out = _without_hole(facts, span)
    rows = (window.activities.starts_ns < span.t1_ns) & (window.activities.ends_ns > span.t0_ns)
    return (span, out) if rows.sum() >= LEAST_ACTIVITIES else (window.span, ())


def _without_startup(facts: Facts) -> tuple[Span, tuple[LeftOut, ...]]:
    span, steps = facts.window.span, facts.steps
    if len(steps.spans) < LEAST_STEPS or not steps.step_ns or steps.source != "annotations":
        return span, ()
    begin = steps.spans[0].t0_ns
    before = begin - span.t0_ns
    if before < max(STARTUP_STEPS * steps.step_ns, LEAST_PART * span.duration_ns):
        return span, ()
    return Span(begin, span.t1_ns), (LeftOut(Span(span.t0_ns, begin), Once.START_UP),)


def _without_set_up(facts: Facts) -> tuple[Span, tuple[LeftOut, ...]]:
    """What follows a program's set-up, the uploads of a model, tensor by tensor, and the loads of kernels,
    where that is most of the window and of what kernels do."""
    span, acts = facts.window.span, facts.window.activities
    starts_ns, spent = acts.starts_ns[facts.kernels], (acts.ends_ns - acts.starts_ns)[facts.kernels]
    first = int(starts_ns.min(initial=span.t1_ns))
    _, ends = loads(facts)
    loaded = int(ends.max(initial=span.t0_ns))
    uploads = (acts.copy_kinds == CopyKind.HTOD) & (acts.ends_ns <= first)
    moves = first if uploads.sum() >= MOVED_COPIES else span.t0_ns
    for begin in (max(moves, loaded), moves):
        part = (begin - span.t0_ns) / max(span.duration_ns, 1)
        done = spent[starts_ns < begin].sum() / max(spent.sum(), 1)
        if LEAST_PART <= part <= MOST_PART and done <= MOST_PART:
            return Span(begin, span.t1_ns), (LeftOut(Span(span.t0_ns, begin), Once.START_UP),)
    return span, ()


def _without_odd_step(facts: Facts, span: Span) -> tuple[Span, tuple[LeftOut, ...]]:
    """The longer side of one step that is far longer than all others."""
    window, steps = facts.window, facts.steps
    lengths = np.array([one.duration_ns for one in steps.spans], np.int64)
    at = int(np.argmax(lengths))
    usual = float(np.median(np.delete(lengths, at)))
    others = np.delete(lengths, at).max()
    excess = float(lengths[at]) - usual
    if lengths[at] < ODD * max(usual, float(others)) or excess < LEAST_PART * span.duration_ns:
        return span, ()
    odd = steps.spans[at]
    cause = _cause(window, odd, excess)
    if cause in RECURRING:
        return span, ()
    saved = Cover(*facts.saves).between(np.array([odd.t0_ns]), np.array([odd.t1_ns]))[0] > 0
    what = Once.CHECKPOINT if saved else Once.ODD_STEP
    if at == 0 and what is Once.ODD_STEP:
        what = Once.START_UP
    left = LeftOut(odd, what, cause, at + 1)
    before, after = Span(span.t0_ns, odd.t0_ns), Span(odd.t1_ns, span.t1_ns)
    return (before if at > len(lengths) - 1 - at else after), (left,)


def _without_hole(facts: Facts, span: Span) -> tuple[Span, tuple[LeftOut, ...]]:
    """The busier side of the one gap that is most of what the device idles."""
    window, (_, begins, ends) = facts.window, facts.gaps
    within = begins > span.t0_ns  # what a step's mark begins with is the step's
    begins, ends = begins[within], ends[within]
    if not len(begins):
        return span, ()
    lengths = ends - begins
    at = int(np.argmax(lengths))
    hole = Span(int(begins[at]), int(ends[at]))
    second = int(np.delete(lengths, at).max(initial=0))
    least = max(HOLE_PART * span.duration_ns, HOLE_TIMES * second, HOLE_NS)
    cause = _cause(window, hole, COVERED * hole.duration_ns)
    if hole.duration_ns < least or cause in RECURRING or cause == "compile":
        return span, ()
    acts = window.activities
    spent = acts.ends_ns - acts.starts_ns
    before = int(spent[acts.starts_ns < hole.t0_ns].sum())
    sides = Span(span.t0_ns, hole.t0_ns), Span(hole.t1_ns, span.t1_ns)
    steady = sides[0] if before > int(spent.sum()) - before else sides[1]
    left = LeftOut(hole, Once.HOLE, cause, place=_call_in(window, hole))
    return steady, (left,)


def _cause(window: Window, span: Span, least_ns: float) -> str | None:
    """What marks say of most of so much time; None where they say nothing."""
    low, high = np.array([span.t0_ns]), np.array([span.t1_ns])
    for cause, classes in PAINT:
        if int(Cover(*window.marks.union(*classes)).between(low, high)[0]) >= COVERED * least_ns:
            return cause
    return None


def _call_in(window: Window, hole: Span) -> str | None:
    """The CUDA call that the host was in for most of a hole; None where it was in none."""
    calls = window.calls
    inside = np.minimum(calls.ends_ns, hole.t1_ns) - np.maximum(calls.starts_ns, hole.t0_ns)
    if not len(inside) or inside.max() < COVERED * hole.duration_ns:
        return None
    return window.names[int(calls.name_ids[int(np.argmax(inside))])]
