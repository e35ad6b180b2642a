"""A training step as a small graph: the host's way from launch to launch, and what the device does then.

Made from records that every source has: launching calls, activities, waits and what marks name. One
row is one node in the order the host met them: a launch with its activity, or a wait for the device.
Times are float nanoseconds of a trainer without a profiler (`simulate.unprofiled`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, replace

from brrrtop.analysis.estimate import Analysis
from brrrtop.analysis.facts.launches import blocking
from brrrtop.analysis.facts.table import (
    READ_BACK_BYTES,
    WORK,
    Facts,
    Group,
    figures_of_ops,
    of_sequences,
    rows_of_ops,
)
from brrrtop.analysis.facts.training import has_fused_form
from brrrtop.analysis.kernels.op_patterns import (
    DEPTHWISE,
    DEPTHWISE_16_BIT,
    is_converted_by_group,
    is_depthwise,
    is_wide,
    keeps_layout,
    last_over_first,
    written_attention,
)
from brrrtop.kernel_names.traits import Role, Trait, used
from brrrtop.model import intervals
from brrrtop.model.estimate import Estimate
from brrrtop.model.tables import F8, I8, Bool, edges
from brrrtop.whatif.iterations import (
    Iterations,
    Nodes,
    batch_ns,
    iterations,
    launch_times,
    named,
    without_back_pressure,
    without_calls,
)
from brrrtop.whatif.iterations import before as before_calls
from collectors.vocabulary import CopyKind, MarkClass, MemoryKind

MOST_NODES = 6_000
"""More steps than these nodes fill tell nothing new; one step is always taken whole."""
USUAL_LATENCY_NS = 4_000.0
"""From a launch to its kernel on an idle device, where no launch of the step found it idle."""
UNLIKE = 2.0
"""Steps in which the device is so many times as busy as in all do not stand for them."""
ALIKE = 0.1
"""So near to a whole number of usual steps, the nodes are that many."""
MOST_LATENCY_NS = 20_000.0
"""More is a wait on the device, not the way of a launch."""
SHORT_WAIT_NS = 2_000.0
"""What a wait costs the host when there is nothing to wait for."""


class Kernels(Struct, frozen=True, eq=False):
    """What the kernels of a step are, shape (n,) each; NaN: nobody knows."""

    roles: I8
    """`traits.Role`; -1: no kernel."""
    traits: I8
    flop: F8
    size_bytes: F8
    """Least bytes that it reads and writes in device memory."""
    elements: F8
    """Elements of the largest tensor that a kernel passes over, by its grid or its bytes."""
    waves: F8
    rates: F8
    """FLOP/s of the units that it runs on."""
    optimizer: Bool
    fusable: Bool
    """Of an optimizer that may have a fused form."""
    backward: Bool
    """Launched by another thread than the one that began the step, or backward by name."""
    uploads: Bool
    """Copies from pageable or pinned memory of the host."""
    pageable: Bool
    """Of those the ones from pageable memory."""
    depthwise: Bool
    """Convolutions of one channel a group by ATen's own kernels, which know channels-first images alone."""
    last_over_first: F8
    """Time over channels-last images over that over channels-first ones, where the name or shapes tell."""
    by_group: Bool
    """Kernels of convolutions whose channels-last images are converted one group at a time."""
    wide: Bool
    """Convolutions with windows that tensor cores of 16 bits leave to slower kernels."""
    batch_norm: Bool
    """Norms over whole batches of images, which need their statistics first."""
    group_norm: Bool
    """Norms over groups of channels."""
    interpolating: Bool
    """Backward of linear interpolation: each element is added to some others."""
    sorting: Bool
    """Sorts, which no compiler generates."""
    recurrent: Bool
    """Part of a recurrent layer of cuDNN, which no compiler looks into."""
    eager_attention: Bool
    """Part of attention that is written out."""
    captured: Bool
    """Nodes of CUDA graphs."""
    sequences: Bool
    """Of ops on tensors that are no batch of images, as far as shapes say."""
    keeps_layout: Bool
    """Convolutions for whose sake a compiler leaves images as they lie."""

    def take(self, kept: Bool | I8) -> Kernels:
        return Kernels(*(getattr(self, name)[kept] for name in self.__struct_fields__))

    def is_role(self, *roles: Role) -> Bool:
        wanted = np.zeros(max(Role) + 2, np.bool_)  # the last place is of -1
        wanted[[int(role) for role in roles]] = True
        return np.asarray(wanted[self.roles])

    def has(self, trait: int) -> Bool:
        return np.asarray((self.traits & int(trait)) != 0)


class Step(Struct, frozen=True, eq=False):
    """Nodes of one or more whole steps, shape (n,) each, in the order the host met them."""

    count: int
    """Steps that the nodes are."""
    measured_ns: float
    """Time of these steps on the clock, per step."""
    undisturbed_ns: float | None
    """Of steps that nobody recorded; None: unknown."""
    profiled: bool
    """A profiler recorded ops."""
    before_ns: F8
    """Host time from the end of the call before to the start of this one."""
    call_ns: F8
    """Host time inside the call, without waiting for the device."""
    waits: Bool
    """The host goes on only when the device has finished this node and all before it."""
    latency_ns: F8
    """From the start of the call to the start on an idle device; -inf: nothing runs on the device."""
    gap_ns: F8
    """Idle time of the device ahead of the node although the node before it had ended."""
    device_ns: F8
    """Time by which the node makes the device's busy time longer."""
    batch_ns: float
    """Time that others take for a step's batch where the loop waits for it: no step is shorter. Or 0."""
    named_ns: dict[str, F8]
    """Parts of `before_ns` by cause, by `vocabulary.PAINT`."""
    rows: I8
    """Row of the activity in the window; -1: a wait."""
    kernels: Kernels
    strays: float = 0.0
    """How far the run's own pace strays, as a share."""

    def __len__(self) -> int:
        return len(self.before_ns)

    @property
    def marked_ns(self) -> F8:
        """What marks name of `before_ns`."""
        return sum(self.named_ns.values(), np.zeros(len(self)))

    @property
    def launches(self) -> Bool:
        """Nodes with something to run on the device."""
        return np.asarray(np.isfinite(self.latency_ns))

    def without(self, gone: Bool) -> Step:
        """The step without these nodes. The host's way to them is then part of that to what follows, from
        the end round to the beginning."""
        kept = np.flatnonzero(~gone)

        def carried(times_ns: F8) -> F8:
            spent = np.concatenate(([0.0], np.cumsum(times_ns)))
            reached = spent[kept + 1]
            whole: F8 = times_ns.copy()
            whole[kept] = np.diff(reached, prepend=reached[-1] - spent[-1]) if len(kept) else 0.0
            return whole

        return replace(
            self,
            before_ns=carried(self.before_ns),
            named_ns={cause: carried(part) for cause, part in self.named_ns.items()},
        ).take(kept)

    def take(self, kept: Bool | I8) -> Step:
        if kept.dtype == np.bool_:
            kept = np.flatnonzero(kept)
        columns = {n: c[kept] for n, c in asdict(self).items() if isinstance(c, np.ndarray)}
        named = {cause: part[kept] for cause, part in self.named_ns.items()}
        return replace(self, **columns, named_ns=named, kernels=self.kernels.take(kept))


def step_of(analysis: Analysis) -> Step | None:
    """The steps of a judged window that stand for it; None where no whole step is known."""
    repeats = iterations(analysis.facts, MOST_NODES)
    if repeats is None:
        return None
    nodes = _nodes(analysis.facts, repeats)
    if not (nodes.rows >= 0).any():
        return None
    launched = float((nodes.calls[nodes.rows >= 0] >= 0).mean())
    step = _of_all_steps(_with_times(analysis, nodes, repeats), launched)
    return step if _is_usual(step, analysis.estimate) else None


def _is_usual(step: Step, estimate: Estimate) -> bool:
    """Whether the device is as busy in these steps as in all that was judged: the one after a loader's late
    batch says nothing of the others."""
    account = estimate.account
    if step.measured_ns <= 0:  # its records lie at one moment
        return False
    busy = step.device_ns.sum() / (step.count * step.measured_ns)
    usual = 1 - account.idle_total_ns / max(1, account.duration_ns)
    return bool(busy <= UNLIKE * usual)


def _of_all_steps(step: Step, launched: float) -> Step:
    """The step with every step of the device counted that its nodes are.

    A host that is far ahead launches in a burst what runs after it: of the steps that the device does
    meanwhile often only some have their launches in it, and their nodes hold the work of the others too.

    Args:
        launched: Share of what runs on the device whose launch was recorded: the host's time is of as
            many steps as have their launches in it.
    """
    usual = step.undisturbed_ns
    each = round(step.measured_ns / usual) if usual else 1
    if usual is None or each < 2 or abs(step.measured_ns / (each * usual) - 1) > ALIKE:
        return step
    unseen = min(each, round(1 / launched)) if launched else each
    return replace(
        step,
        count=step.count * each,
        measured_ns=step.measured_ns / each,
        before_ns=step.before_ns * unseen,
        call_ns=step.call_ns * unseen,
        named_ns={cause: part * unseen for cause, part in step.named_ns.items()},
    )


def _nodes(facts: Facts, repeats: Iterations) -> Nodes:
    """Launches of the iterations, and the waits of the threads that launch."""
    acts, calls, call_rows = facts.window.activities, facts.window.calls, facts.call_rows
    known = call_rows >= 0
    at = np.maximum(call_rows, 0)
    starts, ends = launch_times(facts)
    waiting = blocking(facts)
    buffered = known & waiting[at] if len(calls) else known
    if not known.any():  # a value that is copied back is wanted at once
        buffered = (acts.copy_kinds == CopyKind.DTOH) & (acts.size_bytes <= READ_BACK_BYTES)
        ends = np.where(buffered, acts.ends_ns, ends)
    launching = np.unique(calls.tids[at[known]]) if known.any() else np.empty(0, np.int64)
    launched = np.zeros(len(calls), np.bool_)
    launched[call_rows[known]] = True
    lone = np.flatnonzero(waiting & ~launched & np.isin(calls.tids, launching))
    lone = lone[repeats.holds(calls.starts_ns[lone])]
    held = np.flatnonzero(repeats.holds(starts))
    rows = np.concatenate((held, np.full(len(lone), -1, np.int64)))
    call = np.concatenate((call_rows[held], lone))
    begun = np.concatenate((starts[held], calls.starts_ns[lone]))
    ended = np.concatenate((ends[held], calls.ends_ns[lone]))
    waits = np.concatenate((buffered[held], np.ones(len(lone), np.bool_)))
    order = np.lexsort((rows, begun))
    return Nodes(begun[order], ended[order], rows[order], call[order], waits[order])


def _with_times(analysis: Analysis, nodes: Nodes, repeats: Iterations) -> Step:
    """The nodes with the host's and the device's part of their time."""
    window = analysis.facts.window
    n = len(nodes.rows)
    launch = nodes.rows >= 0
    added, idle_from = _device(analysis)
    begun, row = nodes.starts_ns, np.maximum(nodes.rows, 0)
    started = window.activities.starts_ns[row]
    finished = np.where(launch, window.activities.ends_ns[row], np.iinfo(np.int64).min)
    reach = np.maximum.accumulate(finished)
    waits = nodes.waits & (
        nodes.ends_ns >= reach
    )  # not those after which the device still had work
    # Nodes of one CUDA graph share a call: only the first one takes the host's time.
    first = np.ones(n, np.bool_)
    first[1:] = (nodes.calls[1:] != nodes.calls[:-1]) | (nodes.calls[1:] < 0)
    before, previous = before_calls(nodes, repeats)
    before = np.where(first, before, 0.0)
    call = np.where(first, (nodes.ends_ns - begun).astype(np.float64), 0.0)
    call = np.where(nodes.waits, np.minimum(call, SHORT_WAIT_NS), call)
    call = without_back_pressure(call, first & launch & ~waits, nodes, started)
    late = launch & (begun > idle_from[row])
    latency = (started - begun).astype(np.float64)
    usual = float(np.median(latency[late])) if late.any() else USUAL_LATENCY_NS
    usual = min(max(usual, 0.0), MOST_LATENCY_NS)
    gap = np.where(launch & ~late, np.maximum(started - idle_from[row], 0), 0).astype(np.float64)
    if not (nodes.calls >= 0).any():
        before, gap = without_calls(nodes, idle_from[row], repeats, window)
    gap = np.where(added[row] > 0, gap, 0.0)
    return Step(
        count=repeats.count,
        measured_ns=repeats.measured_ns,
        undisturbed_ns=_undisturbed_ns(analysis),
        profiled=bool((window.marks.classes == MarkClass.OP).any()),
        before_ns=before,
        call_ns=call,
        waits=waits,
        latency_ns=np.where(launch, np.where(late, latency, usual), -np.inf),
        gap_ns=gap,
        device_ns=np.where(launch, added[row], 0.0),
        batch_ns=batch_ns(window, repeats),
        named_ns=named(window, previous, begun, before),
        rows=nodes.rows,
        kernels=_kernels(analysis, nodes),
    )


def _undisturbed_ns(analysis: Analysis) -> float | None:
    """Median length of the steps around bursts, by the marks of a live trainer."""
    steps = analysis.estimate.steps
    live = steps.source == "marks" and analysis.facts.window.observed is not None
    return float(steps.step_ns) if live and steps.step_ns else None


def _kernels(analysis: Analysis, nodes: Nodes) -> Kernels:
    launch = nodes.rows >= 0
    rows, at = np.unique(nodes.rows[launch], return_inverse=True)
    place = np.zeros(len(nodes.rows), np.int64)
    place[launch] = at
    seen = analysis.facts.take(rows)
    groups, of_row = seen.labels.groups, seen.labels.group_of
    acts = seen.window.activities
    on_device = acts.copy_kinds == CopyKind.DTOD

    def rate(group: Group) -> float | None:
        if analysis.facts.ceilings is None or group.precision is None:
            return None
        return analysis.facts.ceilings.rate(group.precision, group.facts.tensor_cores)

    def known(value: Callable[[Group], float | None]) -> F8:
        column = np.full(len(groups), np.nan)
        for group in used(of_row):
            figure = value(groups[group])
            column[group] = np.nan if figure is None else figure
        return np.where(launch, column[of_row][place], np.nan)

    uploads = launch & (acts.copy_kinds == CopyKind.HTOD)[place]
    # A group of copies has labels of a few bytes in it beside a batch: each has its own size.
    copies = uploads | (launch & (acts.copy_kinds == CopyKind.DTOH)[place])
    bytes_known = known(lambda group: group.size_bytes)
    return Kernels(
        roles=np.where(launch, np.where(on_device, int(Role.POINTWISE), seen.roles)[place], -1),
        traits=np.where(launch, seen.traits[place], 0),
        flop=known(lambda group: group.flop),
        size_bytes=np.where(copies, acts.size_bytes[place], bytes_known),
        elements=_elements(seen, place, launch),
        waves=known(lambda group: group.waves),
        rates=known(rate),
        optimizer=launch & seen.in_optimizer[place],
        fusable=launch & has_fused_form(seen)[place],
        backward=launch & (seen.has(Trait.BACKWARD)[place] | _elsewhere(seen, nodes)),
        uploads=uploads,
        pageable=launch & (acts.src_kinds == MemoryKind.PAGEABLE)[place],
        depthwise=launch & seen.named(_DEPTHWISE)[place],
        last_over_first=np.where(launch, _last_over_first(seen)[place], np.nan),
        by_group=launch & rows_of_ops(seen, is_converted_by_group)[place],
        wide=launch & rows_of_ops(seen, is_wide)[place],
        batch_norm=launch & seen.named(_BATCH_NORM)[place],
        group_norm=launch & seen.named(_GROUP_NORM)[place],
        interpolating=launch & seen.named(_INTERPOLATING)[place],
        sorting=launch & seen.named(_SORTING)[place],
        recurrent=launch & stretches(seen.named(_RECURRENT), NEAR)[place],
        eager_attention=launch & _written_out(seen)[place],
        captured=launch & (acts.graph_ids != 0)[place],
        sequences=launch & of_sequences(seen)[place],
        keeps_layout=launch & rows_of_ops(seen, keeps_layout)[place],
    )


_DEPTHWISE = r"conv_depthwise[23]d"
_GROUP_NORM = r"group_?norm|GroupNorm|ComputeFusedParams|ComputeInternalGradients"
_BATCH_NORM = r"batch_norm|\bbn_(fw|bw)|BatchNorm"
_INTERPOLATING = r"upsample_(bi|tri)?linear\w*backward"
_SORTING = r"[sS]ort|Radix|topk|TopK|cub::|unique"
_RECURRENT = r"LSTM|GRU|RNN"
_POOLS = {r"max_?pool": 0.9, r"avg_?pool|average": 1.25, r"upsample_bi": 0.4, r"upsample_near": 2.2}
"""`Kernels.last_over_first` of poolings and interpolations, measured as `convolutions.last_over_first`."""
NEAR = 8
"""Kernels of one recurrent layer between two that name it."""


def _last_over_first(seen: Facts) -> F8:
    """`Kernels.last_over_first`, shape of the activities."""
    half, depthwise = seen.has(Trait.HALF), seen.named(_DEPTHWISE)
    ratio = np.where(depthwise, np.where(half, DEPTHWISE_16_BIT, DEPTHWISE[0]), np.nan)
    for pattern, known in _POOLS.items():
        ratio = np.where(seen.named(pattern) & ~seen.named("nhwc"), known, ratio)
    # Those that ATen's kernels do not run have channels-last images already.
    in_depth = rows_of_ops(seen, is_depthwise)
    for bits, rows in ((32, ~half), (16, half)):
        by_op = figures_of_ops(seen, partial(last_over_first, bits=bits))
        own = rows & np.isfinite(by_op) & (depthwise | ~in_depth)
        ratio = np.where(own, by_op, ratio)
    return np.asarray(ratio)


def stretches(rows: Bool, apart: int) -> Bool:
    """Rows, and those between two of them that are near each other."""
    at = np.flatnonzero(rows)
    edge = np.zeros(len(rows) + 1, np.int64)
    near = np.flatnonzero(np.diff(at) <= apart)
    np.add.at(edge, at[near], 1)
    np.add.at(edge, at[near + 1], -1)
    return np.asarray((np.cumsum(edge[:-1]) > 0) | rows)


def _elements(seen: Facts, place: I8, launch: Bool) -> F8:
    """By the grid where a kernel's name tells the elements of a thread, else half of its bytes."""
    groups, of_row, acts = seen.labels.groups, seen.labels.group_of, seen.window.activities
    per_thread, per_byte = np.full(len(groups), np.nan), np.full(len(groups), np.nan)
    for at in used(of_row):
        facts = groups[at].facts
        per_thread[at] = facts.elements_per_thread or np.nan
        if groups[at].size_bytes:
            per_byte[at] = groups[at].size_bytes / (2 * (facts.element_bytes or 4))
    by_grid = per_thread[of_row] * acts.blocks * acts.threads
    elements = np.where(np.isfinite(by_grid), by_grid, per_byte[of_row])
    return np.where(launch, elements[place], np.nan)


def _written_out(seen: Facts) -> Bool:
    """Activities that belong to attention written out, shape of the activities."""
    inside = np.zeros(len(seen.call_rows), np.bool_)
    attention = written_attention(seen)
    if attention is not None:
        inside[attention.rows] = True
    return inside


def _elsewhere(seen: Facts, nodes: Nodes) -> Bool:
    """Launched by a thread that is not the one with most waits and steps: autograd's own."""
    calls, marks = seen.window.calls, seen.window.marks
    if not len(calls):
        return np.zeros(len(nodes.rows), np.bool_)
    tids = np.where(nodes.calls >= 0, calls.tids[np.maximum(nodes.calls, 0)], 0)
    stepping = marks.tids[np.isin(marks.classes, (MarkClass.STEP, MarkClass.OPTIMIZER))]
    own = stepping[np.isin(stepping, tids)]
    if len(own):
        main = np.bincount(np.unique(own, return_inverse=True)[1]).argmax()
        return np.asarray((tids != np.unique(own)[main]) & (tids != 0))
    return np.asarray((tids != tids[0]) & (tids != 0))


def _device(analysis: Analysis) -> tuple[F8, I8]:
    """By activity: the time by which it lengthens the busy time, and when the device was free for it.

    Kernels that do the work come first: a collective or copy counts where nothing else runs.
    """
    acts = analysis.facts.window.activities
    n = len(acts)
    added = np.zeros(n, np.float64)
    work = analysis.facts.labels.classes == WORK
    reach = np.maximum.accumulate(acts.ends_ns)
    free = np.concatenate((acts.starts_ns[:1], reach[:-1])).astype(np.int64)
    if (
        analysis.facts.window.observed
    ):  # what ran before a burst was not traced: the device is free with it
        begun, _ = edges(analysis.facts.window.observed)
        burst = np.searchsorted(begun, acts.starts_ns, "right") - 1
        free = np.where(burst >= 0, np.maximum(free, begun[np.maximum(burst, 0)]), free)
    rows = np.flatnonzero(work)
    starts, ends = acts.starts_ns[rows], acts.ends_ns[rows]
    if len(rows):
        busy_until = np.maximum.accumulate(ends)
        low = np.maximum(starts, np.concatenate((starts[:1], busy_until[:-1])))
        added[rows] = np.maximum(ends - low, 0)
    others = np.flatnonzero(~work)
    if len(others):
        busy = intervals.Cover(*intervals.merge_unsorted(starts, ends))
        begins, stops = acts.starts_ns[others], acts.ends_ns[others]
        begins = np.maximum(begins, np.concatenate((begins[:1], np.maximum.accumulate(stops)[:-1])))
        alone = np.maximum(stops - begins, 0)
        added[others] = np.where(
            alone > 0, alone - busy.between(begins, np.maximum(begins, stops)), 0
        )
    return added, free
