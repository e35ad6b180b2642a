"""What named ranges tell: steps on the host, and phases of an inference engine.

Steps are the profiler's own (`ProfilerStep#7`); else from the end of one optimizer step to that of the next;
else the outermost ranges of one name that hold nearly all launches (`execute_context_…` of vLLM, NVTX
ranges, those of `record_function`).
"""

import re
from collections import defaultdict

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.table import Facts
from brrrtop.model.intervals import EMPTY, Nest, holders
from brrrtop.model.tables import I8, Marks, Window, picked
from collectors.vocabulary import MarkClass

LEAST_LAUNCH_SHARE = 0.9
"""Part of the launches that ranges must hold to be the steps."""
ALIKE = 0.1
"""By how much the launches of a step may differ from the median's, in four of five steps."""
_MOST_OPTIMIZERS = 4
"""Optimizers of one class in a step: their ranges share a name."""
MOST_BEFORE = 3.0
"""Median steps' launches before the first update: of a first step twice as many."""
WARM_UP = 2.0
"""Times the median step that the first one of a run lasts at least."""
_DIGITS = re.compile(r"\d+")
_VLLM = re.compile(
    r"execute_(?:\d+_)?context_(\d+)\((?:sq)?(\d+)[^)]*\)_generation_(\d+)\((?:sq)?(\d+)[^)]*\)"
)
"""Requests and tokens of each: `execute_context_2(4096)_generation_8(8)`, with squares of lengths
`execute_context_1(888_788544)_generation_0(0)`, with sums over queries and keys
`execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)`."""
_SGLANG = re.compile(r"\bstep\[(\w+)(?: bs=(\d+))?(?: toks=(\d+))?")
"""`step[EXTEND bs=15 toks=15360]`, `step[DECODE bs=32]`: SGLang's forward modes."""
_MODES = {"EXTEND": "prefill", "SPLIT_PREFILL": "prefill", "DECODE": "decode", "MIXED": "mixed"}
_WORDS = re.compile(r"\b_?(prefill|decode)_?\b|(?<![a-z])(prefill|decode)(?![a-z])", re.IGNORECASE)
ONE_FORWARD = re.compile(r"^execute_(model|(\d+_)?context)|^step\[")
"""vLLM's and SGLang's ranges of one forward pass: a step even where there is but one."""


class HostSteps(Struct, frozen=True, eq=False):
    """Steps in order, shape (n,)."""

    starts_ns: I8
    ends_ns: I8
    confidence: float

    def __len__(self) -> int:
        return len(self.starts_ns)


NONE = HostSteps(EMPTY, EMPTY, 0.0)


def host_steps(facts: Facts) -> HostSteps:
    window, marks, call_rows = facts.window, facts.window.marks, facts.call_rows
    long = marks.starts_ns < marks.ends_ns
    profiler = np.flatnonzero(long & (marks.classes == MarkClass.STEP))
    if len(profiler):
        order = profiler[np.argsort(marks.starts_ns[profiler], kind="stable")]
        return HostSteps(marks.starts_ns[order], marks.ends_ns[order], 1.0)
    optimizer = np.flatnonzero(long & (marks.classes == MarkClass.OPTIMIZER))
    named = np.flatnonzero(long & (marks.classes == MarkClass.ANNOTATION))
    if not len(optimizer) and not len(named):
        return NONE
    ran = np.zeros(len(window.calls), np.bool_)
    ran[call_rows[call_rows >= 0]] = True
    launches = window.calls.starts_ns[ran]
    if not len(launches):
        return NONE
    by_optimizer = _between_updates(marks, optimizer, launches)
    if len(by_optimizer):
        return by_optimizer
    return _of_one_name(window, _outermost(marks, named), launches)


def lies_within_ranges(window: Window, times: I8) -> bool:
    """Whether most of what recurs at these host times does so within single named ranges: layers do."""
    marks = window.marks
    named = np.isin(marks.classes, (MarkClass.ANNOTATION, MarkClass.OPTIMIZER))
    rows = np.flatnonzero((marks.starts_ns < marks.ends_ns) & named)
    outer = _outermost(marks, rows)
    times = np.sort(times)
    low, high = (np.searchsorted(times, t[outer]) for t in (marks.starts_ns, marks.ends_ns))
    within = high - low
    return bool(2 * within[within > 2].sum() > len(times))


def _between_updates(marks: Marks, rows: I8, launches: I8) -> HostSteps:
    """From update to update of the rarest optimizer whose updates are as much work apart.

    What came before the first update is a part of a step, or a run's warm-up; if more, work of another kind,
    as a rollout, of which updates are no steps. Beside other optimizers two
    updates are too few to tell a step.
    """
    names = [rows[marks.name_ids[rows] == name] for name in np.unique(marks.name_ids[rows])]
    for own in sorted(names, key=len):
        ends = np.sort(marks.ends_ns[own])
        for each in range(1, _MOST_OPTIMIZERS + 1):
            times = ends[each - 1 :: each]
            at = np.searchsorted(launches, times)
            counts = np.diff(at)
            if len(counts) >= min(2, len(names)) and _are_alike(counts):
                if at[0] > MOST_BEFORE * np.median(counts):
                    return NONE
                return HostSteps(times[:-1], times[1:], 0.95)
    return NONE


def _are_alike(counts: I8) -> bool:
    usual = float(np.median(counts))
    return usual > 0 and float(np.mean(np.abs(counts - usual) <= ALIKE * usual)) >= 0.8


def _of_one_name(window: Window, rows: I8, launches: I8) -> HostSteps:
    """Ranges of one name but for its numbers, one after another, that hold nearly all launches."""
    marks = window.marks
    named: dict[str, list[int]] = defaultdict(list)
    for row in rows[np.argsort(marks.starts_ns[rows], kind="stable")].tolist():
        named[_DIGITS.sub("#", window.names[int(marks.name_ids[row])])].append(row)
    for own in named.values():
        if len(own) < 2 and not ONE_FORWARD.match(window.names[int(marks.name_ids[own[0]])]):
            continue
        starts, ends = marks.starts_ns[own], marks.ends_ns[own]
        launch_counts = np.searchsorted(launches, ends) - np.searchsorted(launches, starts)
        if (starts[1:] < ends[:-1]).any() or launch_counts.sum() < LEAST_LAUNCH_SHARE * len(
            launches
        ):
            continue
        lengths = ends - starts
        first = int(len(own) > 2 and lengths[0] >= WARM_UP * np.median(lengths[1:]))
        return HostSteps(starts[first:], ends[first:], 0.9)
    return NONE


def _outermost(marks: Marks, rows: I8) -> I8:
    """The ranges that no other one of their thread holds."""
    nest = Nest(marks.tids[rows], marks.starts_ns[rows], marks.ends_ns[rows])
    return rows[nest.order[nest.parents < 0]]


def phase_of(name: str) -> tuple[str, int | None] | None:
    """Phase of inference and tokens of a range; None: its name tells of none."""
    if engine := _VLLM.search(name):
        contexts, read, generations, generated = (int(text[:12]) for text in engine.groups())
        phase = "mixed" if contexts and generations else "prefill" if contexts else "decode"
        return phase, read + generated
    if mode := _SGLANG.search(name):
        phase = _MODES.get(mode[1], "")
        count = mode[3] or (mode[2] if phase == "decode" else None)
        return (phase, int(count[:12]) if count else None) if phase else None
    if named := _WORDS.search(name):
        return (named[1] or named[2]).lower(), None
    return None


def decode_tokens(facts: Facts) -> I8 | None:
    """Tokens of the decode pass that launched each activity, shape (n,), 0 outside any; None without one.

    Each sequence adds one token: a product in there has as many rows as tokens, however many weights.
    """
    window, marks = facts.window, facts.window.marks
    rows = np.flatnonzero(marks.classes == MarkClass.ANNOTATION)
    tokens = np.zeros(len(rows), np.int64)
    for name_id in np.unique(marks.name_ids[rows]).tolist():
        phase = phase_of(window.names[name_id])
        if phase is not None and phase[0] == "decode" and phase[1]:
            tokens[marks.name_ids[rows] == name_id] = phase[1]
    rows, tokens = rows[tokens > 0], tokens[tokens > 0]
    if not len(rows):
        return None
    order = np.argsort(marks.starts_ns[rows], kind="stable")
    starts, ends, tokens = marks.starts_ns[rows[order]], marks.ends_ns[rows[order]], tokens[order]
    outer = np.concatenate(([True], starts[1:] >= np.maximum.accumulate(ends)[:-1]))
    launched = picked(window.calls.starts_ns, facts.call_rows, -1)
    at = holders(starts[outer], ends[outer], launched)
    return picked(tokens[outer], at, 0)
