"""The one step whose ops were recorded with shapes: its ops, what it lets us say, what it disturbed."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Many

import numpy as np
from msgspec import Struct

from brrrtop.model.host_tables import NO_FRAMES, NO_MEMORY, HostDetails, HostOps
from brrrtop.model.intervals import Nest, holders, subtract
from brrrtop.model.tables import I8, Activities, Bool, Calls, Links, Marks, OpSignature, Span, edges
from brrrtop.scheduling.requests import RECOVERY_NS, with_recovery
from brrrtop.timeline import columns
from brrrtop.timeline.correlation import NONE, Launched, Sequence, launches_in_order
from brrrtop.timeline.op_inference import half_of, signature
from collectors.vocabulary import MarkClass

LEAD_NS = 2_000_000_000
"""A host is not further ahead than that: queues hold about 1,024 launches."""
PATIENCE_NS = 15_000_000_000
"""Records of a burst arrive within a second of its end."""
FIRST_ID = 1 << 40
"""Ids of ops with what their kernels' names add; the wire's own have 32 bits."""
MOST_THREADS = 64
"""Threads of each kind that are compared with each other; a trainer launches from a few."""
_WITHIN_OPS, _CLEARLY = 0.1, 3.0
"""A thread is a recorded one when so many of its launches lie within that one's ops (compiled code
launches many outside of any), and so much more than those of any other."""


class RecordedStep(Struct, frozen=True, eq=False):
    span: Span
    marks: Marks
    tids: I8
    """CUPTI's number of each op's thread; 0 where it cannot be told."""

    def details(
        self, acts: Activities, calls: Calls, ops: Mapping[int, OpSignature]
    ) -> HostDetails:
        marks = self.marks
        nest = Nest(self.tids, marks.starts_ns, marks.ends_ns)
        here = launches_in_order(acts, calls)
        rows = nest.holder(here.tids, here.middles_ns, here.middles_ns)
        correlations, first = np.unique(acts.correlations[here.rows], return_index=True)
        used, ids = np.unique(marks.values[nest.order], return_inverse=True)
        known = [ops.get(one, OpSignature("")) for one in used.tolist()]
        names = {op.name: None for op in known}
        name_ids = {name: row for row, name in enumerate(names)}
        count = len(marks)
        return HostDetails(
            names=tuple(names),
            signatures={row: (op.name, op.dims) for row, op in enumerate(known)},
            ops=HostOps(
                marks.starts_ns[nest.order], marks.ends_ns[nest.order], self.tids[nest.order],
                np.array([name_ids[op.name] for op in known], np.int64)[ids], ids.astype(np.int64),
                nest.parents, np.full(count, -1, np.int64), np.zeros(count, np.bool_),
            ),
            launches=Links(correlations, rows[first]),
            frames=NO_FRAMES,
            memory=NO_MEMORY,
            recorded_step=True,
        )  # fmt: skip


class StepShapes:
    """Marks of recordings in; signatures and links out."""

    def __init__(self) -> None:
        self.cuts: list[Span] = []
        """Spans that the recording disturbed, sorted and disjoint: no statistic may use them."""
        self.message = ""
        """Why the newest recording came to nothing."""
        self.op_count = 0
        """Ops of the recording that is in use."""
        self.learned_ns: int | None = None
        """End of the recorded step; None before there was one."""
        self.recorded: RecordedStep | None = None
        """The ops of that step; None before there was one."""
        self._sequence: Sequence | None = None
        self._ops: list[Marks] = []
        self._due: tuple[Span, int, int] | None = None
        self._next_id = FIRST_ID

    # --- in -------------------------------------------------------------------

    def add(self, marks: Marks) -> bool:
        recorded = marks.classes == MarkClass.RECORDED_OP
        if recorded.any():
            self._ops.append(marks.take(recorded))
        disturbed = np.flatnonzero(marks.classes == MarkClass.PERTURBED)
        for row in disturbed.tolist():
            span = Span(int(marks.starts_ns[row]), int(marks.ends_ns[row]))
            if span.duration_ns < 0:
                continue
            insert(self.cuts, with_recovery(span))
            if marks.values[row] > 0:
                self._due = (span, int(marks.values[row]), int(marks.tids[row]))
        return len(disturbed) > 0

    def forget(self, before_ns: int) -> None:
        self.cuts = [cut for cut in self.cuts if cut.t1_ns >= before_ns]

    def due(self, traced: Iterable[Span] | None, newest_ns: int) -> Span | None:
        """The recorded step whose kernels have all arrived and wait to be joined with its ops."""
        if self._due is None:
            return None
        end_ns = self._due[0].t1_ns
        # On the device the step may lie later than on the host; its launches are all told by then.
        if traced is None or any(s.t0_ns - LEAD_NS < end_ns <= s.t1_ns for s in traced):
            return self._due[0]
        if newest_ns > end_ns + PATIENCE_NS:
            self._fail("no kernels were traced in the step that was recorded")
        return None

    def learn(
        self, acts: Activities, calls: Calls, names: Many[str], ops: dict[int, OpSignature]
    ) -> None:
        """Joins kernels and ops of the recorded step; adds their signatures to `ops`."""
        assert self._due is not None
        step, count, main_tid = self._due
        marks = columns.concat(self._ops, Marks)
        marks = marks.take((marks.starts_ns >= step.t0_ns) & (marks.ends_ns <= step.t1_ns))
        self._ops = []
        here = launches_in_order(acts, calls)
        inside = (here.times_ns >= step.t0_ns) & (here.times_ns < step.t1_ns)
        if len(marks) != count:
            return self._fail("a part of the recorded ops was lost")
        if not inside.any():
            return self._fail("no kernels were traced in the step that was recorded")
        if not (here.times_ns < step.t0_ns).any():
            return self._fail("tracing began only after the step that was recorded")
        here = here.take(inside)
        tids = _threads(here, marks, main_tid)
        op_ids = self._signature_ids(_op_of(here, marks, tids), here, acts, names, ops)
        self.recorded = RecordedStep(step, marks, tids)
        self._sequence = Sequence(here.keys, here.times_ns, op_ids)
        ran_ns = int(acts.ends_ns[here.rows].max())
        insert(self.cuts, Span(step.t0_ns, ran_ns + RECOVERY_NS))
        self._due, self.message = None, ""
        self.op_count, self.learned_ns = count, step.t1_ns

    def _fail(self, why: str) -> None:
        self._due, self.message, self._ops = None, f"no shapes: {why}", []

    def _signature_ids(
        self,
        raw_ids: I8,
        here: Launched,
        acts: Activities,
        names: Many[str],
        ops: dict[int, OpSignature],
    ) -> I8:
        """Ops with the types that the names of their kernels tell; -1 where those say too little."""
        name_ids = acts.name_ids[here.rows]
        pairs, inverse = np.unique(np.stack([raw_ids, name_ids]), axis=1, return_inverse=True)
        known = [op for op in (ops.get(int(i)) for i in np.unique(raw_ids)) if op is not None]
        half = half_of(names[i] for i in np.unique(name_ids).tolist())
        ids: dict[OpSignature, int] = {}
        ids_of_pairs = np.full(pairs.shape[1], -1, np.int64)
        for index, (raw_id, name_id) in enumerate(pairs.T.tolist()):
            op = ops.get(raw_id)
            full = signature(op, names[name_id], known, half) if op is not None else None
            if full is None:
                continue
            if full not in ids:
                ids[full] = self._next_id
                ops[self._next_id] = full
                self._next_id += 1
            ids_of_pairs[index] = ids[full]
        return ids_of_pairs[inverse.ravel()]

    # --- out ------------------------------------------------------------------

    def links(self, acts: Activities, calls: Calls, steps_ns: I8, traced: list[Span]) -> Links:
        """What the recorded step says of these kernels, sorted by correlation."""
        if self._sequence is None:
            return NONE
        return self._sequence.links(acts, calls, steps_ns, traced)

    def undisturbed(self, spans: list[Span]) -> list[Span]:
        """The parts of sorted, disjoint spans in which nothing was recorded."""
        parts = subtract(*edges(spans), edges(self.cuts))
        return [Span(*part) for part in np.stack(parts, axis=1).tolist()]

    def disturbed(self, times_ns: I8) -> Bool:
        """Which of the instants lie where something was recorded."""
        return np.asarray(holders(*edges(self.cuts), times_ns) >= 0)


def _op_of(here: Launched, marks: Marks, tids: I8) -> I8:
    """Id of the innermost op around each launch; -1: none. `tids` are CUPTI's, of the marks."""
    nest = Nest(tids, marks.starts_ns, marks.ends_ns)
    rows = nest.holder(here.tids, here.middles_ns, here.middles_ns)
    ids = marks.values[nest.order]
    return np.where(rows >= 0, ids[np.maximum(rows, 0)], -1)


def _threads(here: Launched, marks: Marks, main_tid: int) -> I8:
    """CUPTI's number of each op's thread; 0 where it cannot be told.

    torch numbers its threads by itself. Those of the backward pass are recognised by their launches.
    """
    tids = np.zeros(len(marks), np.int64)
    tids[marks.tids == main_tid] = main_tid
    launching = _busiest(here.tids[here.tids != main_tid])
    for number in _busiest(marks.tids[marks.tids != main_tid]):
        rows = np.flatnonzero(marks.tids == number)
        nest = Nest(np.zeros(len(rows), np.int64), marks.starts_ns[rows], marks.ends_ns[rows])
        shares = []
        for tid in launching:
            middles = here.middles_ns[here.tids == tid]
            is_inside = nest.holder(np.zeros(len(middles), np.int64), middles, middles) >= 0
            shares.append((float(is_inside.mean()), tid))
        best, second = (*sorted(shares, reverse=True), (0.0, 0), (0.0, 0))[:2]
        if best[0] >= _WITHIN_OPS and best[0] >= _CLEARLY * second[0]:
            tids[rows] = best[1]
    return tids


def _busiest(tids: I8) -> list[int]:
    """Numbers of the threads that come most often, by number."""
    numbers, counts = np.unique(tids, return_counts=True)
    return sorted(numbers[np.argsort(-counts, kind="stable")[:MOST_THREADS]].tolist())


def insert(spans: list[Span], new: Span) -> None:
    low = bisect_left(spans, new.t0_ns, key=lambda span: span.t1_ns)
    high = bisect_right(spans, new.t1_ns, key=lambda span: span.t0_ns)
    if low < high:
        new = Span(min(new.t0_ns, spans[low].t0_ns), max(new.t1_ns, spans[high - 1].t1_ns))
    spans[low:high] = [new]
