"""The fact table: one device's records of a window, joined once. Every judge starts from it.

Everything here is one pass of numpy over a window, made when it is first asked for; nothing is judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.ceilings import Ceilings
from brrrtop.analysis.facts import stack_samples
from brrrtop.kernel_names.facts import NameFacts
from brrrtop.kernel_names.families import Family
from brrrtop.kernel_names.traits import Role, by_name, role_of, traits_of
from brrrtop.model import intervals
from brrrtop.model.estimate import Side, Steps
from brrrtop.model.run import StackSamples
from brrrtop.model.tables import F8, I8, ActivityType, Bool, OpSignature, Window, edges, picked
from collectors.vocabulary import CopyKind, MarkClass, MemoryKind, Metric

READ_BACK_BYTES = 4096
"""A value, a flag or a few of them: a larger copy to the host is traffic."""
IMAGE_AXES = 4
"""Batch, channels, height, width; a volume has one more."""
REASONS: Mapping[str, int] = {
    "gpu idle": 0x1,
    "application clocks": 0x2,
    "power cap": 0x4,
    "hardware slowdown": 0x8,
    "software thermal": 0x20,
    "hardware thermal": 0x40,
    "power brake": 0x80,
}
"""Bits of NVML's clocks-event reasons (docs.nvidia.com/deploy/nvml-api)."""
SAVED_COPIES, SAVED_BYTES = 8, 1 << 20
"""To pageable memory with no kernel between, that are a save: state_dict's tensors one by one."""
EVIDENCE = ("L0", "L1", "L1.5", "L2", "L3")
NOTHING, NAME, BYTES, SHAPES, COUNTERS = range(5)
"""Into `EVIDENCE`."""
BUCKETS = ("compute", "memory", "underfilled", "unknown", "comm", "copy")
"""Where time of each side is booked, by the sides' names."""
WORK, COMM, TRANSFER = 0, 1, 2
"""Classes of the sweep line: kernels and on-device copies, collectives, host or peer copies."""


class Group(Struct, frozen=True):
    """Kernels of one name, geometry and op, and the verdict on them."""

    name: str
    family: Family
    facts: NameFacts
    count: int
    total_ns: int
    blocks: int
    waves: float | None
    fills: float
    """Share of the SMs its grid reaches; 1 for a full grid."""
    side: Side
    certainty: float
    """How sure its side is, 0..1 (`roofline`)."""
    level: int
    """Into `EVIDENCE`."""
    flop: float | None = None
    size_bytes: float | None = None
    precision: str | None = None
    compute_share_of_roof: float | None = None
    memory_share_of_roof: float | None = None
    inner: tuple[int, ...] = ()
    channels: int | None = None
    """Of a convolution's image; None for all else."""
    op: str | None = None

    @property
    def mean_ns(self) -> float:
        return max(self.total_ns / self.count, 1.0)

    @property
    def share_of_own_roof(self) -> float | None:
        """Of its side's ceiling, as its amounts count; None where none sets its time, or nobody tells."""
        if self.side is Side.COMPUTE:
            return self.compute_share_of_roof
        return self.memory_share_of_roof if self.side is Side.MEMORY else None


class Labels(Struct, frozen=True, eq=False):
    """Per activity of a window, shape (n,) each, plus the groups they index."""

    group_of: I8
    groups: tuple[Group, ...]
    buckets: npt.NDArray[np.int8]
    """Into `BUCKETS`."""
    weights: F8
    """For charging time that kernels share: share of the SMs."""

    @property
    def classes(self) -> npt.NDArray[np.int8]:
        return np.maximum(self.buckets - 3, WORK)  # the first four are work

    def take(self, rows: I8) -> Labels:
        return Labels(self.group_of[rows], self.groups, self.buckets[rows], self.weights[rows])


NO_LABELS = Labels(
    intervals.EMPTY, (), intervals.EMPTY.astype(np.int8), intervals.EMPTY.astype(np.float64)
)


class Readings(Struct, frozen=True):
    """Gauges of the device and of the host over the window; absent readings stay absent."""

    means: Mapping[int, float]
    """By `Metric`."""
    largest: Mapping[int, float]
    reason_shares: Mapping[str, float]
    """Share of the readings with each reason of `REASONS`; empty without any."""

    def mean(self, metric: Metric) -> float | None:
        return self.means.get(int(metric))


class Facts(Struct, frozen=True, eq=False, dict=True):
    """Columns of shape (n,), rows as in `Window.activities`."""

    window: Window
    call_rows: I8
    """Row of the launching call in `Window.calls`; -1: unknown."""
    ceilings: Ceilings | None = None
    """Of the device; None where nobody knows them."""
    labels: Labels = NO_LABELS
    """What each kernel is; empty until they are judged."""
    steps: Steps = Steps()

    def of(self, window: Window, call_rows: I8) -> Facts:
        """The facts of other records of the same device, without labels."""
        return Facts(window, call_rows, self.ceilings, steps=self.steps)

    def labelled(self, labels: Labels) -> Facts:
        """The same with what kernels were judged to be."""
        return self._with(replace(self, labels=labels))

    def stepped(self, steps: Steps) -> Facts:
        return self._with(replace(self, steps=steps))

    def _with(self, other: Facts) -> Facts:
        vars(other).update(vars(self))  # what was worked out already
        return other

    def take(self, rows: I8) -> Facts:
        window = replace(self.window, activities=self.window.activities.take(rows))
        return Facts(
            window, self.call_rows[rows], self.ceilings, self.labels.take(rows), self.steps
        )

    @cached_property
    def durations_ns(self) -> I8:
        """Clipped to the window."""
        acts, span = self.window.activities, self.window.span
        low, high = intervals.clip(acts.starts_ns, acts.ends_ns, span.t0_ns, span.t1_ns)
        return high - low

    @cached_property
    def lengths_ns(self) -> I8:
        acts = self.window.activities
        lengths: I8 = np.maximum(acts.ends_ns - acts.starts_ns, 0)
        return lengths

    @cached_property
    def roles_by_name(self) -> I8:
        return by_name(self.window.names, self.window.activities.name_ids, role_of)

    @cached_property
    def traits_by_name(self) -> I8:
        return by_name(self.window.names, self.window.activities.name_ids, traits_of)

    @cached_property
    def roles(self) -> I8:
        return self.roles_by_name[self.window.activities.name_ids]

    @cached_property
    def traits(self) -> I8:
        return self.traits_by_name[self.window.activities.name_ids]

    @cached_property
    def launched_ns(self) -> I8:
        return picked(self.window.calls.starts_ns, self.call_rows, self.window.activities.starts_ns)

    @cached_property
    def sides(self) -> I8:
        """Into `BUCKETS`; unknown where nothing was judged."""
        if not self.labels.groups:
            return np.full(len(self.call_rows), BUCKETS.index(Side.UNKNOWN.value), np.int64)
        return self.labels.buckets.astype(np.int64)

    @cached_property
    def roof_shares(self) -> F8:
        """Over the roof of each row's side; NaN: nobody knows."""
        shares = [group.share_of_own_roof for group in self.labels.groups]
        roofs = np.array([np.nan if one is None else min(one, 1.0) for one in shares], np.float64)
        return roofs[self.labels.group_of] if shares else np.full(len(self.call_rows), np.nan)

    @property
    def known_launches(self) -> tuple[I8, I8, I8, I8]:
        """The launches that are known.

        Returns:
            Rows of their activities, and threads, starts and ends (ns) of their calls; each (m,).
        """
        rows = np.flatnonzero(self.call_rows >= 0)
        at, table = self.call_rows[rows], self.window.calls
        return rows, table.tids[at], table.starts_ns[at], table.ends_ns[at]

    @cached_property
    def in_optimizer(self) -> Bool:
        return np.asarray((self.call_rows >= 0) & _in_optimizer(self))

    @cached_property
    def saves(self) -> tuple[I8, I8]:
        """Saves of the training state, merged: of marks, and tensor after tensor copied to pageable memory,
        with no kernel between, in half of the steps at most."""
        starts, ends = self.window.marks.union(MarkClass.CHECKPOINT)
        low, high = _copied_states(self)
        return intervals.merge_unsorted(np.concatenate((starts, low)), np.concatenate((ends, high)))

    @cached_property
    def in_save(self) -> Bool:
        """Launched within a save of the training state."""
        return np.asarray(intervals.holders(*self.saves, self.launched_ns) >= 0)

    @cached_property
    def gaps(self) -> tuple[I8, I8, I8]:
        """Idle gaps before and between activities; time that was not traced is none.

        Returns:
            Row of the activity that ends each gap, its start and its end in ns; each of shape (g,).
        """
        starts, ends = self.window.activities.starts_ns, self.window.activities.ends_ns
        if not len(starts):
            return intervals.EMPTY, intervals.EMPTY, intervals.EMPTY
        observed = self.window.observed
        begin = self.window.span.t0_ns if observed is None else int(starts[0])
        reach = np.concatenate(([begin], np.maximum.accumulate(ends)[:-1]))
        rows = np.flatnonzero(starts > reach)
        low, high = reach[rows], starts[rows]
        if observed is not None:
            cover = intervals.Cover(*intervals.merge(*edges(observed)))
            seen = cover.between(low, high) == high - low
            rows, low, high = rows[seen], low[seen], high[seen]
        return rows, low, high

    @cached_property
    def kernels(self) -> Bool:
        return np.asarray(self.window.activities.types == ActivityType.KERNEL)

    @cached_property
    def migrations(self) -> Bool:
        """Pages of managed memory that moved, at a fault or ahead of one."""
        acts, managed = self.window.activities, MemoryKind.MANAGED
        return np.asarray((acts.src_kinds == managed) & (acts.dst_kinds == managed))

    @cached_property
    def readings(self) -> Readings:
        gauges = self.window.gauges
        here = np.isin(gauges.device_ids, (self.window.device.device_id, -1))
        means: dict[int, float] = {}
        largest: dict[int, float] = {}
        here &= np.abs(gauges.values) < 1 << 62  # neither missing nor garbled
        for metric in np.unique(gauges.metrics[here]):
            values = gauges.values[here & (gauges.metrics == metric)]
            means[int(metric)] = float(values.mean())
            largest[int(metric)] = float(values.max())
        bits = gauges.values[here & (gauges.metrics == Metric.CLOCK_EVENT_REASONS)]
        shares = {
            name: float(((bits.astype(np.int64) & bit) != 0).mean())
            for name, bit in REASONS.items()
            if len(bits)
        }
        return Readings(means, largest, shares)

    @cached_property
    def stack_samples(self) -> StackSamples | None:
        """Where stack samples found the training thread outside waits that have a name, and outside ops on
        the way to a launch, where a launch-bound loop is most of the time."""
        marks = self.window.marks
        rows = np.flatnonzero(marks.classes == MarkClass.STACK)
        if len(rows) and (marks.classes == MarkClass.OP).any():
            on_way = intervals.holders(*self.dispatch, marks.starts_ns[rows]) >= 0
            kept = np.ones(len(marks.classes), np.bool_)
            kept[rows[on_way]] = False
            marks = marks.take(kept)
        return stack_samples.read_samples(self.window.names, marks, True)

    @cached_property
    def dispatch(self) -> tuple[I8, I8]:
        """Ops and updates, merged, but for ops that began and ended in one gap before its launch: those ran
        on the CPU."""
        marks, (rows, begins, _) = self.window.marks, self.gaps
        ops = marks.classes == MarkClass.OP
        if len(rows) and ops.any():
            at = np.maximum(np.searchsorted(begins, marks.starts_ns, "right") - 1, 0)
            within = marks.starts_ns >= begins[at]
            ops &= ~(within & (marks.ends_ns <= self.launched_ns[rows][at]))
        updates = marks.classes == MarkClass.OPTIMIZER
        starts, ends = marks.take(ops | updates).union(MarkClass.OP, MarkClass.OPTIMIZER)
        return starts, ends

    @property
    def clock_ratio(self) -> float:
        """`Ceilings.clock_ratio` at the mean SM clock; 1 where nobody knows."""
        clock = self.readings.mean(Metric.SM_CLOCK_HZ)
        return self.ceilings.clock_ratio(clock) if self.ceilings else 1.0

    def has(self, trait: int) -> Bool:
        return np.asarray((self.traits & int(trait)) != 0)

    def is_role(self, *roles: int) -> Bool:
        return np.isin(self.roles, [int(role) for role in roles])

    def named(self, pattern: str, rows: Bool | None = None) -> Bool:
        """Rows, of `rows` where given, whose name has a pattern."""
        ids, has = self.window.activities.name_ids, re.compile(pattern).search
        some = ids if rows is None else ids[rows]
        every = by_name(self.window.names, some, lambda name: has(name) is not None)[ids] > 0
        return np.asarray(every if rows is None else every & rows)

    def total_ns(self, rows: Bool) -> int:
        return int(self.durations_ns[rows].sum())


def _copied_states(facts: Facts) -> tuple[I8, I8]:
    """Copies of a state_dict in turn: from the call of each row's first one to the last one's end."""
    acts, spans = facts.window.activities, facts.steps.spans
    down = (acts.copy_kinds == CopyKind.DTOH) & (acts.dst_kinds == MemoryKind.PAGEABLE)
    rows = np.flatnonzero(down)
    rows = rows[np.argsort(acts.starts_ns[rows], kind="stable")]
    kernels = np.sort(acts.starts_ns[facts.kernels])
    _, first, counts = np.unique(
        np.searchsorted(kernels, acts.starts_ns[rows]), return_index=True, return_counts=True
    )
    if not len(rows) or len(spans) < 2:
        return intervals.EMPTY, intervals.EMPTY
    size_bytes = np.add.reduceat(acts.size_bytes[rows], first)
    long = (counts >= SAVED_COPIES) & (size_bytes >= SAVED_BYTES)
    starts = facts.launched_ns[rows[first[long]]]
    ends = np.maximum.accumulate(acts.ends_ns[rows])[(first + counts - 1)[long]]
    in_steps = sum(bool(((starts < one.t1_ns) & (ends > one.t0_ns)).any()) for one in spans)
    seldom = 2 * in_steps <= len(spans)
    return (starts, ends) if seldom else (intervals.EMPTY, intervals.EMPTY)


def _in_optimizer(facts: Facts) -> Bool:
    """Rows launched within an optimizer range, or between the backward pass and an update's end.

    A live trainer only marks where updates end. Autograd launches the backward pass from threads
    of its own, so what the marking thread launches between the last of those and the mark is the
    optimizer, with what little comes before it (clipping, unscaling).
    """
    marks, calls = facts.window.marks, facts.window.calls
    call_rows, launched = facts.call_rows, facts.launched_ns
    if ((marks.classes == MarkClass.OPTIMIZER) & (marks.ends_ns > marks.starts_ns)).any():
        union = marks.union(MarkClass.OPTIMIZER)
        return np.asarray(intervals.holders(*union, launched) >= 0)
    in_optimizer = np.zeros(len(launched), np.bool_)
    point = np.isin(marks.classes, (MarkClass.STEP, MarkClass.OPTIMIZER))
    point &= marks.starts_ns == marks.ends_ns
    if not point.any() or not len(calls):
        return in_optimizer
    stepping = marks.tids[np.flatnonzero(point)[-1]]
    points = marks.starts_ns[point & (marks.tids == stepping)]
    tids = calls.tids[np.maximum(call_rows, 0)]
    others = np.sort(launched[(call_rows >= 0) & (tids != stepping)])
    if not len(others):
        return in_optimizer
    ended = np.searchsorted(points, launched)
    within = ended < len(points)
    end = points[np.minimum(ended, len(points) - 1)]
    last = np.searchsorted(others, end) - 1
    backward = np.where(last >= 0, others[np.maximum(last, 0)], -1)
    before = np.where(ended > 0, points[np.maximum(ended - 1, 0)], -1)
    inside = within & (last >= 0) & (backward > before) & (launched > backward)
    return np.asarray(inside & (tids == stepping))


def _is_no_image(op: OpSignature) -> bool:
    """Whether its first tensor is no batch of images: a volume, or a sequence, 1 high for cuDNN."""
    first = op.dims[0] if op.dims else ()
    if not isinstance(first, tuple) or not first:
        return False
    return len(first) != IMAGE_AXES or 1 in first[2:]


def of_sequences(facts: Facts) -> Bool:
    """Rows whose op works on tensors that are no batch of images; none where shapes are unknown. Rows whose
    op began before the trace are as all convolutions of known shapes are."""
    known = figures_of_ops(facts, _is_no_image)
    convolutions = known[facts.is_role(Role.CONV)]
    none = (convolutions == 1).any() and not (convolutions == 0).any()
    return np.asarray((known == 1) | (np.isnan(known) & none))


def rows_of_ops(facts: Facts, wanted: Callable[[OpSignature], bool]) -> Bool:
    """Rows whose framework op is as wanted; none where ops were not recorded."""
    return np.asarray(figures_of_ops(facts, wanted) == 1)


def figures_of_ops(facts: Facts, figure: Callable[[OpSignature], float | None]) -> F8:
    """A figure of each row's framework op; NaN where the op has none or was not recorded."""
    window = facts.window
    if not len(window.links):
        return np.full(len(window.activities), np.nan)
    op_ids = window.links.ops_of(window.activities.correlations)
    ids, rows = np.unique(op_ids, return_inverse=True)
    ops = map(window.ops.get, ids.tolist())
    return np.array([figure(op) if op else None for op in ops], np.float64)[rows]
