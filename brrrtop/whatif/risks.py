"""What the records of a run say against an edit: the range of its gain then reaches down to what it may cost.

A simulated step has the kernels of the one that was recorded. Where steps differ, a compiler compiles and a
CUDA graph is captured again and again, which no simulation of one step shows.
"""

import re
from enum import Enum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.estimate import Analysis
from brrrtop.analysis.facts.training import optimizer
from brrrtop.kernel_names.traits import Role, by_name, role_of, used
from brrrtop.ledger.account import MOST_STEPS
from brrrtop.model.advice import WhatIf
from brrrtop.model.run import Phase
from brrrtop.model.tables import F8, I8, ActivityType, Window
from brrrtop.whatif.iterations import whole_steps
from collectors.vocabulary import MarkClass

SAME_STEP = 0.02
"""Steps whose launches, or blocks, differ by less than this part are one kind of step: a sort of more
elements takes a launch more."""
FEW_KINDS = 2
"""Kinds of steps that are captured and compiled once each, where each came again: two models that are trained
in turns."""
NEW_SHARE = 0.2
"""Steps that are the only one of their kind, of all: about so many of the steps to come are of a new kind."""
ENOUGH_STEPS = 3
"""Steps of one window that are compared, at least."""
STEPS_OF_RUN = 4
"""From which steps that look alike are taken for all. Of twelve layers that are each dropped one time in ten,
as HuBERT's, two steps look alike 28 times in 100, three 9, four 3: three alike were met on the second look
(H100, 2026-11), and CUDA graphs led with which it took nine times as long. Two in 80 public models measured
here drop layers or branch."""
STEADY, BLOCK = 0.01, 8
"""Steps of a run whose lengths, averaged over so many in turn, differ by less than that from each to the next
have the same kernels: a host's jitter is gone then, layers that are dropped still show 2.7 %."""
TIMED_STEPS = 30
"""So many of them say so."""


class Risk(Enum):
    KERNELS_DIFFER = "kernels-differ"
    """Each step launches other kernels: layers that are dropped at random, control flow."""
    SHAPES_DIFFER = "shapes-differ"
    """The same kernels over other sizes."""
    SOLVERS = "solvers"
    """Factorizations, which no compiler takes and which read back whether they went well."""
    OWN_FUNCTIONS = "own-functions"
    """Autograd functions of the program's own."""
    TWO_UPDATES = "two-updates"
    """A step has several, as of a GAN: a model runs again before its outputs were used."""
    BIASED_ATTENTION = "biased-attention"
    """Attention with a mask or a bias, by the kernel that takes one: from Ampere on little else in
    16 bits does."""
    FEW_STEPS = "few-steps"
    """Live, too few were traced until now to rule out that they differ."""


class Cost(Struct, frozen=True):
    """What an edit may cost under a risk, as a gain: negative."""

    low: float
    most_likely: float = 1.0
    """A larger gain than this is not predicted."""


COMPILE, GRAPHS = "compile", "compile-reduce-overhead"
COSTS: dict[tuple[Risk, str], Cost] = {
    (Risk.KERNELS_DIFFER, COMPILE): Cost(-0.4, 0.0),
    (Risk.KERNELS_DIFFER, GRAPHS): Cost(-9.0, -4.0),
    (Risk.SHAPES_DIFFER, COMPILE): Cost(-0.4),
    (Risk.SHAPES_DIFFER, GRAPHS): Cost(-9.0, -1.0),
    (Risk.SOLVERS, COMPILE): Cost(-0.4, 0.0),
    (Risk.SOLVERS, GRAPHS): Cost(-0.4, 0.0),
    (Risk.OWN_FUNCTIONS, COMPILE): Cost(-0.2),
    (Risk.OWN_FUNCTIONS, GRAPHS): Cost(-0.2),
    (Risk.TWO_UPDATES, GRAPHS): Cost(-0.1),
    (Risk.BIASED_ATTENTION, COMPILE): Cost(-0.1),
    (Risk.BIASED_ATTENTION, GRAPHS): Cost(-0.1),
    (Risk.FEW_STEPS, COMPILE): Cost(-0.1),
    (Risk.FEW_STEPS, GRAPHS): Cost(-0.1),
}
"""Seen on an H100 (torch 2.11, 2026-11): HuBERT with dropped layers took 8.8 times as long with CUDA graphs,
17 % longer compiled; a Gaussian process by Cholesky factors 29 % longer. A CoAtNet's learned bias came to
attention in a layout that it refuses (as in PyTorch's issues 109607, 124289, 138317 and 139424). A GAN failed
with graphs (H200). The others are guesses."""
_SOLVERS = re.compile(r"potrf|getrf|geqrf|syev|sytrd|gesvd|trsm", re.IGNORECASE)
_BIASED = re.compile(r"fmha_cutlassF_b?f16_\w*sm80")


def risks_of(analysis: Analysis) -> tuple[Risk, ...]:
    """The risks that the records of a run show, worst first."""
    window = analysis.facts.window
    names = "\n".join(window.names[i] for i in used(window.activities.name_ids))
    risks = (
        _differences(analysis),
        Risk.SOLVERS if _SOLVERS.search(names) else None,
        Risk.OWN_FUNCTIONS if own_functions(window) else None,
        Risk.TWO_UPDATES if _updates_twice(analysis) else None,
        Risk.BIASED_ATTENTION if _BIASED.search(names) else None,
    )
    return tuple(risk for risk in risks if risk is not None)


def with_risks(row: WhatIf, risks: tuple[Risk, ...]) -> WhatIf:
    """The row with the first of these that concerns its edits, and with what that may cost."""
    edits = row.edit.split("+")
    for risk in risks:
        costs = [cost for edit in edits if (cost := COSTS.get((risk, edit))) is not None]
        if not costs:
            continue
        cost = min(costs, key=lambda one: one.low)
        saves = min(row.saves, cost.most_likely)
        quiet = row.unprofiled
        if quiet is not None and quiet.saves > cost.most_likely:
            now_ns = quiet.step_ns / (1 - quiet.saves)
            quiet = replace(quiet, saves=cost.most_likely, step_ns=now_ns * (1 - cost.most_likely))
        low = min(row.saves_low, cost.low, saves)
        return replace(
            row,
            step_ns=row.present_ns * (1 - saves),
            saves=saves,
            saves_low=low,
            saves_high=max(row.saves_high, saves),
            unprofiled=quiet,
            risk=risk.value,
        )
    return row


def own_functions(window: Window) -> tuple[str, ...]:
    """Names of Python autograd functions: a node `NameBackward` without a number, and an op `Name`."""
    marks = window.marks
    ids = used(marks.name_ids[marks.classes == MarkClass.OP])
    names = {window.names[i] for i in ids} | {op.name for op in window.ops.values()}
    bare = {name.rpartition(" ")[2] for name in names}
    nodes = {name.removesuffix("Backward") for name in bare if name.endswith("Backward")}
    return tuple(sorted(name for name in nodes & bare if not name.startswith(COMPILED_FUNCTION)))


COMPILED_FUNCTION = "CompiledFunction"
"""AOTAutograd's: the code is compiled."""


def _updates_twice(analysis: Analysis) -> bool:
    """Whether steps have two updates and more, by the ranges of optimizers; live, by the marks of others than
    the one whose updates are the steps."""
    known, marks = optimizer(analysis.facts), analysis.facts.window.marks
    updates = (known.updates if known is not None else None) or 0
    others = (marks.classes == MarkClass.OPTIMIZER) & (marks.starts_ns == marks.ends_ns)
    steps = int((marks.classes == MarkClass.STEP).sum())
    twice = updates > 1.5 * (analysis.estimate.steps_covered or np.inf)
    return bool(twice or 2 * others.sum() > steps)


def _differences(analysis: Analysis) -> Risk | None:
    """Whether whole steps of the window differ in their kernels, or in what these work on."""
    window, launched = analysis.facts.window, analysis.facts.call_rows >= 0
    launched |= not launched.any()  # what was launched before the trace is of an earlier step
    steps = whole_steps(analysis.facts)[-MOST_STEPS:]
    rows = [_model_rows(window, step[launched[step]]) for step in steps]
    acts = window.activities
    count = len(window.names)
    launches = np.array([np.bincount(acts.name_ids[r], minlength=count) for r in rows], np.float64)
    if differ(launches):
        same_count = not differ(launches.sum(axis=1)[:, None])
        return Risk.SHAPES_DIFFER if same_count else Risk.KERNELS_DIFFER
    blocks = np.array([acts.blocks[r].sum() for r in rows], np.float64)[:, None]
    return Risk.SHAPES_DIFFER if differ(blocks) else None


def risk_of_run(phase: Phase, window: Window) -> Risk | None:
    """What all steps that were traced of a phase say; the window has the last ones."""
    if differ(np.array(phase.launches, np.float64)[:, None]):
        return Risk.KERNELS_DIFFER
    few = phase.traced_steps > 0 and len(phase.launches) < STEPS_OF_RUN
    return Risk.FEW_STEPS if few and not _are_steady(window) else None


def _are_steady(window: Window) -> bool:
    """Whether the steps of the last minute, traced or not, take the same time."""
    paces = _paces(window)
    if not len(paces):
        return False
    return bool(np.median(np.abs(np.diff(paces))) < STEADY * np.median(paces))


def unrest(window: Window) -> float:
    """How far the run's own pace strays, as a share: half of what lies between the 10th and the 90th
    percentile. 0: too few steps are known."""
    paces = _paces(window)
    if not len(paces):
        return 0.0
    low, middle, high = np.percentile(paces, (10, 50, 90))
    return float((high - low) / 2 / middle)


def _paces(window: Window) -> F8:
    """Lengths of the steps of the last minute, averaged over a few in turn; empty where they are few."""
    marks = window.watched if window.watched is not None else window.marks
    lengths = np.diff(np.sort(marks.ends_ns[marks.classes == MarkClass.STEP]))
    if len(lengths) < TIMED_STEPS:
        return np.empty(0)
    size = min(BLOCK, len(lengths) // 10)
    return np.asarray(lengths[: len(lengths) // size * size].reshape(-1, size).mean(axis=1))


def _model_rows(window: Window, rows: I8) -> I8:
    """Kernels of forward, backward and loss among these rows."""
    roles = by_name(window.names, window.activities.name_ids, role_of)
    outside = np.isin(roles[window.activities.name_ids[rows]], _NOT_THE_MODELS)
    kernel = window.activities.types[rows] == ActivityType.KERNEL
    return np.asarray(rows[kernel & ~outside])


_NOT_THE_MODELS = np.array([int(Role.OPTIMIZER), int(Role.COMM), int(Role.COPY), int(Role.SET)])


def differ(steps: F8) -> bool:
    """Whether more kinds of steps are to be expected than these, one row each: there are many, or one that
    did not come again. Rows that are nearly alike are of one kind."""
    seen: list[F8] = []
    times: list[int] = []
    for row in steps:
        like = (np.abs(row - one).sum() <= SAME_STEP * max(row.sum(), 1.0) for one in seen)
        at = next((i for i, one in enumerate(like) if one), len(seen))
        if at == len(seen):
            seen.append(row)
            times.append(0)
        times[at] += 1
    if len(steps) < ENOUGH_STEPS or len(seen) == 1:
        return False
    return len(seen) > FEW_KINDS or times.count(1) > NEW_SHARE * len(steps)
