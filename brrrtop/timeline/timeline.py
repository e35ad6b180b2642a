"""Frames → bounded columns of the last minutes. Knows shapes, judges nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np

from brrrtop.model.host_tables import HostDetails
from brrrtop.model.tables import (
    BROKEN_OFF,
    I8,
    Activities,
    Calls,
    Device,
    Gauges,
    Links,
    Marks,
    OpSignature,
    Samples,
    Span,
    Window,
)
from brrrtop.sources.source import FELL_NS
from brrrtop.timeline import columns
from brrrtop.timeline.clocks import SampleClock
from brrrtop.timeline.columns import Track, in_order
from brrrtop.timeline.correlation import NONE as NO_LINKS
from brrrtop.timeline.correlation import launches_in_order
from brrrtop.timeline.op_shapes import StepShapes, insert
from collectors.protocol.frames import FARTHEST_NS, Frame, Kind, plausible
from collectors.vocabulary import MPS, MarkClass, Metric

REACH_NS = 2_000_000_000
"""How far before a window launches are looked for: hosts were seen 164 ms ahead, queues hold
about 1,024 launches, and a step of seconds may be queued at once."""
NEAR_STEPS_NS = 2_000_000_000
"""Before and after what is judged, steps tell the pace at which the trainer runs when nobody records it."""
COUNT_HOLDS_NS = 15_000_000_000
"""Other processes are counted every 5 s, a burst is shorter: the last count holds until then, and
where two more were missed nothing is known."""

MOST_NAMES = 1 << 22
"""Ids of names that are kept, and different names: an agent has 65,535, a trace of hours 100,000.
Beyond, kernels are nameless."""


WATCH_NS = 60_000_000_000
"""Long enough for hundreds of waits and samples, short enough to follow a change."""


class Timeline:
    def __init__(self, keep_ns: int | None = None) -> None:
        self._keep_ns = keep_ns
        self.traced: list[Span] | None = None
        """Spans in which device activity was recorded; None: nobody said, so all of it was."""
        self.begin_anew()
        self._reported: dict[str, int] = {}
        self._broken_records = 0
        self._names: list[str] = [""]
        self._by_name: dict[str, int] = {"": 0}
        self._wire_ids = np.zeros(1, np.int64)
        self._copy_ids: dict[tuple[int, int, int], int] = {}
        self._frozen_names: tuple[str, ...] = ("",)
        self.ops: dict[int, OpSignature] = {}
        self.devices: dict[int, Device] = {}
        self.hello: dict[str, Any] = {}
        self.status: dict[str, Any] = {}
        self.ended: str | None = None
        self.gauges_seen = False

    def begin_anew(self) -> None:
        """Forgets all that has a time; what was told of names, devices and the trainer stands."""
        self._activities = Track(Activities)
        self._calls = Track(Calls)
        self._marks = Track(Marks)
        self._links = Track(Links)
        self._gauges = Track(Gauges)
        self._samples = Track(Samples)
        self._clock = SampleClock()
        self._has_new_samples = False
        self.shapes = StepShapes()
        self.traced = None if self.traced is None else []
        self._observed: list[Span] | None = None
        self.first_ns: int | None = None
        """Start of the first device activity."""
        self.last_ns: int | None = None
        """End of the last device activity."""
        self.newest_ns: int | None = None
        """Time of the newest frame."""
        self._sent_ns = 0

    # --- in ---------------------------------------------------------------

    def add(self, frame: Frame) -> None:
        """Takes in one frame; kinds it does not know are skipped.

        A live timeline begins anew where the clock falls: what came before lies in a future that
        would be kept instead of the present.
        """
        self._sent_ns = frame.sent_ns
        if frame.sent_ns:
            if self._keep_ns and frame.sent_ns + FELL_NS < (self.newest_ns or 0):
                self.begin_anew()
            self.newest_ns = max(self.newest_ns or 0, frame.sent_ns)
        takers: dict[int, Callable[[Any], None]] = {
            Kind.KERNELS: self._add_kernels, Kind.COPIES: self._add_copies, Kind.CALLS: self._add_calls,
            Kind.MARKS: self._add_marks, Kind.LINKS: self._add_links, Kind.GAUGES: self._add_gauges,
            Kind.NAMES: self._add_names, Kind.OPS: self._add_ops, Kind.DEVICE: self._add_device,
            Kind.OBSERVED: self._add_observed, Kind.SAMPLES: self._add_samples,
        }  # fmt: skip
        take = takers.get(frame.kind)
        if take is not None:
            take(frame.body)
        elif frame.kind == Kind.HELLO:
            self.hello = {**self.hello, **frame.body}
        elif frame.kind == Kind.STATUS:
            self.status = {**self.status, **frame.body}
        elif frame.kind == Kind.LOSS:
            self._reported = {
                str(k): int(v) for k, v in frame.body.items() if isinstance(v, (int, float))
            }
        elif frame.kind == Kind.END:
            self.ended = str(frame.body.get("reason", "ended"))
        if self._keep_ns and self.newest_ns:
            self._forget(self.newest_ns - self._keep_ns)

    def sort(self) -> None:
        """To be called where no more frames will come, before large windows are asked for."""
        for track in (self._activities, self._calls, self._marks):
            track.sort("starts_ns")
        self._links.sort("correlations")

    def _forget(self, before_ns: int) -> None:
        for track in (
            self._activities, self._calls, self._marks, self._links, self._gauges, self._samples,
        ):  # fmt: skip
            track.forget(before_ns)
        self.shapes.forget(before_ns)
        if self.traced is not None:
            self.traced = [s for s in self.traced if s.t1_ns >= before_ns]
            self._observed = None

    def _intern(self, name: str) -> int:
        known = self._by_name.get(name)
        if known is None:
            if len(self._names) >= MOST_NAMES:
                return 0
            known = self._by_name[name] = len(self._names)
            self._names.append(name)
        return known

    def _add_names(self, names: dict[int, str]) -> None:
        names = {wire_id: name for wire_id, name in names.items() if wire_id < MOST_NAMES}
        most = max(names, default=0)
        if most >= len(self._wire_ids):
            grown = np.zeros(max(most + 1, 2 * len(self._wire_ids)), np.int64)
            grown[: len(self._wire_ids)] = self._wire_ids
            self._wire_ids = grown
        for wire_id, name in names.items():
            self._wire_ids[wire_id] = self._intern(name)

    def _translate(self, wire_ids: Any) -> I8:
        ids = np.asarray(wire_ids, np.int64)
        return self._wire_ids[np.where(ids < len(self._wire_ids), ids, 0)]

    def _copy_name(self, copy_kind: int, src: int, dst: int) -> int:
        key = (copy_kind, src, dst)
        if key not in self._copy_ids:
            self._copy_ids[key] = self._intern(columns.copy_name(*key))
        return self._copy_ids[key]

    def _plausible(self, rows: Any, key: str = "start_ns") -> Any:
        return plausible(rows, self._sent_ns, key)

    def _add_kernels(self, rows: Any) -> None:
        self._add_activities(rows, lambda kept: columns.kernels(kept, self._translate))

    def _add_copies(self, rows: Any) -> None:
        self._add_activities(rows, lambda kept: columns.copies(kept, self._copy_name))

    def _add_activities(self, rows: Any, table_of: Callable[[Any], Activities]) -> None:
        kept = self._plausible(rows)
        self._broken_records += len(rows) - len(kept)
        if not len(kept):
            return
        table = table_of(kept)
        self._activities.add(table, table.starts_ns, table.ends_ns)
        first, last = int(table.starts_ns.min()), int(table.ends_ns.max())
        self.first_ns = first if self.first_ns is None else min(self.first_ns, first)
        self.last_ns = last if self.last_ns is None else max(self.last_ns, last)

    def _add_calls(self, rows: Any) -> None:
        table = columns.calls(self._plausible(rows), self._translate)
        self._calls.add(table, table.starts_ns, table.ends_ns)

    def _add_marks(self, rows: Any) -> None:
        table = columns.marks(self._plausible(rows), self._translate)
        ours = (table.classes == MarkClass.PERTURBED) | (table.classes == MarkClass.RECORDED_OP)
        if ours.any():
            if self.shapes.add(table.take(ours)):
                self._observed = None
            table = table.take(~ours)
        self._marks.add(table, table.starts_ns, table.ends_ns)

    def _add_links(self, rows: Any) -> None:
        now = np.full(len(rows), self.newest_ns or 0, np.int64)
        self._links.add(columns.links(rows), now, now)

    def _add_gauges(self, rows: Any) -> None:
        table = columns.gauges(self._plausible(rows, "time_ns"))
        self.gauges_seen |= len(table) > 0
        self._gauges.add(table, table.times_ns, table.times_ns)

    def _add_samples(self, rows: Any) -> None:
        table = columns.samples(columns.plausible_samples(rows))
        self._has_new_samples |= len(table) > 0
        shift = table.offsets_ns
        self._samples.add(table, table.starts_ns + shift, table.ends_ns + shift)

    def _add_ops(self, rows: Any) -> None:
        for row in rows:
            self.ops[int(row[0])] = columns.signature(row)

    def _add_device(self, facts: dict[str, Any]) -> None:
        device_id = int(facts.get("device_id", 0))
        self.devices[device_id] = columns.device(self.devices.get(device_id), device_id, facts)

    def _add_observed(self, rows: Any) -> None:
        rows = plausible(rows, self._sent_ns, longest_ns=FARTHEST_NS)
        self.traced = [] if self.traced is None else self.traced
        for t0_ns, t1_ns in zip(rows["start_ns"].tolist(), rows["end_ns"].tolist(), strict=True):
            if t1_ns > t0_ns:
                insert(self.traced, Span(t0_ns, t1_ns))
        self._observed = None

    # --- out --------------------------------------------------------------

    @property
    def observed(self) -> list[Span] | None:
        """Of what was traced, what may be judged; None where all of it was."""
        if self._observed is None and self.traced is not None:
            self._observed = self.shapes.undisturbed(self.traced)
        return self._observed

    @property
    def losses(self) -> dict[str, int]:
        """What existed and is not here, by place; records with impossible times are counted too."""
        if not self._broken_records:
            return self._reported
        records = self._reported.get("records", 0) + self._broken_records
        return {**self._reported, "records": records}

    @property
    def names(self) -> tuple[str, ...]:
        if len(self._frozen_names) != len(self._names):
            self._frozen_names = tuple(self._names)
        return self._frozen_names

    def active_devices(self, span: Span) -> list[int]:
        acts = self._activities.between(span.t0_ns, span.t1_ns)
        inside = (acts.ends_ns > span.t0_ns) & (acts.starts_ns < span.t1_ns)
        ids, inverse = np.unique(acts.device_ids[inside], return_inverse=True)
        busy = np.bincount(inverse, (acts.ends_ns - acts.starts_ns)[inside], len(ids))
        return [int(ids[i]) for i in np.argsort(-busy, kind="stable")]

    def activity_count(self, span: Span) -> int:
        return sum(
            len(t) for a, b, t in self._activities.chunks if b >= span.t0_ns and a < span.t1_ns
        )

    def rows_in(self, span: Span) -> int:
        acts = self._activities.between(span.t0_ns, span.t1_ns)
        inside = (acts.ends_ns >= span.t0_ns) & (acts.starts_ns < span.t1_ns)
        return int(inside.sum()) + len(self.marks_between(span))

    def window(self, span: Span, device_id: int) -> Window:
        """One device's slice, sorted, with the calls and marks that may explain it."""
        acts = self._activities.between(span.t0_ns, span.t1_ns)
        keep = (
            (acts.ends_ns > span.t0_ns)
            & (acts.starts_ns < span.t1_ns)
            & (acts.device_ids == device_id)
            & ~self.shapes.disturbed(acts.starts_ns)
        )
        acts = in_order(acts, keep, acts.starts_ns)
        calls = self._calls.between(span.t0_ns - REACH_NS, span.t1_ns)
        made = (calls.starts_ns < span.t1_ns) & (calls.starts_ns > self._traced_before(span))
        calls = in_order(calls, made, calls.starts_ns)
        marks = self.marks_between(Span(self._launched_from(span, acts, calls), span.t1_ns))
        threads = self._threads_of(device_id)
        if threads is not None:
            calls = calls.take(np.isin(calls.tids, threads))
            marks = marks.take(np.isin(marks.tids, threads))
        links = self._links.between(0, 1 << 62)
        links = in_order(links, slice(None), links.correlations)
        self.learn()
        if self.shapes.learned_ns is not None:
            links = columns.concat([links, self._carry_links(span)], Links)
            links = in_order(links, slice(None), links.correlations)
        observed = None
        if self.observed is not None:
            observed = tuple(
                Span(max(s.t0_ns, span.t0_ns), min(s.t1_ns, span.t1_ns))
                for s in self.observed
                if s.t1_ns > span.t0_ns and s.t0_ns < span.t1_ns
            )
        return Window(
            span, self.devices.get(device_id, Device(device_id)), acts, calls, marks, links,
            self._gauges_in(span, device_id),
            self.names, self.ops, observed, self.losses.get("records", 0), self.hello,
            self._samples_in(span, device_id, acts, observed), self.losses.get(BROKEN_OFF, 0),
            stage=self.status.get("stage"),
            mps=MPS in (self.status.get("facts") or ()),
            near_steps_ns=self._near_steps_ns(span),
            watched=self._watched_marks(),
        )  # fmt: skip

    def _launched_from(self, span: Span, acts: Activities, calls: Calls) -> int:
        """When the host launched what ran first in the span, where all was traced: the range in which it
        did so may have ended before the span began."""
        if self.observed is not None or not len(acts) or not acts.correlations[0]:
            return span.t0_ns
        made = calls.starts_ns[calls.correlations == acts.correlations[0]]
        return int(made.min(initial=span.t0_ns))

    def _threads_of(self, device_id: int) -> I8 | None:
        """Of the process that has the device, in a file of several; None: all are one process's."""
        threads = self.hello.get("threads")
        own = threads.get(str(device_id)) if isinstance(threads, dict) else None
        return np.array(own, np.int64) if isinstance(own, list) else None

    def queued_ns(self) -> int:
        """How long what ran first of all had been launched by then; 0 where that is not known."""
        if self.first_ns is None:
            return 0
        first = Span(self.first_ns, self.first_ns + 1)
        acts = self._activities.between(first.t0_ns, first.t1_ns)
        rows = np.flatnonzero(acts.starts_ns == self.first_ns)
        calls = self._calls.between(first.t0_ns - REACH_NS, first.t1_ns)
        ids = acts.correlations[rows]
        ended = calls.ends_ns[np.isin(calls.correlations, ids[ids != 0])]
        return max(0, self.first_ns - int(ended.max())) if len(ended) else 0

    def _near_steps_ns(self, span: Span) -> I8:
        """Ends of steps around the span; none where everything is traced."""
        if self.observed is None:
            return np.empty(0, np.int64)
        low, high = span.t0_ns - NEAR_STEPS_NS, span.t1_ns + NEAR_STEPS_NS
        marks = self._marks.between(low, high)
        ends = marks.ends_ns[marks.classes == MarkClass.STEP]
        outside = (ends < span.t0_ns) | (ends >= span.t1_ns)
        return np.sort(ends[outside & (ends >= low) & (ends < high)])

    def _gauges_in(self, span: Span, device_id: int) -> Gauges:
        """Readings in the span, and the count of other processes that held when it began."""
        table = self._gauges.between(span.t0_ns - COUNT_HOLDS_NS, span.t1_ns)
        here = (table.device_ids == device_id) | (table.device_ids < 0)
        inside = (table.times_ns >= span.t0_ns) & (table.times_ns < span.t1_ns)
        before = (
            here & (table.times_ns < span.t0_ns) & (table.metrics == Metric.FOREIGN_PROCESS_COUNT)
        )
        before &= table.times_ns >= span.t0_ns - COUNT_HOLDS_NS
        if before.any():
            before &= table.times_ns == table.times_ns[before].max()
        return in_order(table, (here & inside) | before, table.times_ns)

    def _traced_before(self, span: Span) -> int:
        """When the last burst before the span ended; before all times without one.

        Ids start anew with each burst: its calls would be taken for those of activities whose own
        calls were not recorded.
        """
        return max(
            (s.t1_ns for s in self.traced or () if s.t1_ns <= span.t0_ns), default=-(1 << 62)
        )

    def _watched_marks(self) -> Marks | None:
        """Of the last minute, traced or not; None where all there is was traced."""
        if self.traced is None:
            return None
        newest_ns = self.newest_ns or 0
        return self.marks_between(Span(newest_ns - WATCH_NS, newest_ns + 1))

    def usual_step_ns(self) -> float | None:
        """Median length of the steps of the last minute, traced or not; None where all was traced."""
        marks = self._watched_marks()
        if marks is None:
            return None
        lengths = np.diff(np.sort(marks.ends_ns[marks.classes == MarkClass.STEP]))
        return float(np.median(lengths)) if len(lengths) else None

    def _samples_in(
        self, span: Span, device_id: int, acts: Activities, observed: tuple[Span, ...] | None
    ) -> Samples | None:
        if not self._samples.chunks:
            return None
        table = self._samples.between(span.t0_ns, span.t1_ns)
        starts, ends = table.starts_ns + table.offsets_ns, table.ends_ns + table.offsets_ns
        keep = (table.device_ids == device_id) & (ends > span.t0_ns) & (starts < span.t1_ns)
        samples = in_order(table, keep, table.starts_ns)
        return self._clock.placed(samples, acts, (span,) if observed is None else observed)

    def take_new_samples(self) -> bool:
        """Whether counter samples came since the call before."""
        came, self._has_new_samples = self._has_new_samples, False
        return came

    def learn(self) -> bool:
        """Joins a recorded step with its kernels once all of them are here; True: just done."""
        step = self.shapes.due(self.traced, self.newest_ns or 0)
        if step is None:
            return False
        around = self._launched_in(Span(step.t0_ns - REACH_NS, step.t1_ns))
        self.shapes.learn(*around, self.names, self.ops)
        self._observed = None
        return self.shapes.learned_ns == step.t1_ns

    def recorded_step(self, device_id: int) -> tuple[Window, HostDetails] | None:
        """The step that was recorded with shapes, though nobody may judge it, and its ops.

        None: there was none, or what was recorded of it is no longer kept.
        """
        step = self.shapes.recorded
        if step is None or not self._activities.chunks:
            return None
        acts, calls = self._launched_in(Span(step.span.t0_ns - REACH_NS, step.span.t1_ns))
        made = launches_in_order(acts, calls)
        inside = (made.times_ns >= step.span.t0_ns) & (made.times_ns < step.span.t1_ns)
        inside &= acts.device_ids[made.rows] == device_id
        if not inside.any():
            return None
        inner = acts.take(made.rows[inside])
        inner = in_order(inner, slice(None), inner.starts_ns)
        device = self.devices.get(device_id, Device(device_id))
        window = Window(
            step.span, device, inner, calls, step.marks.take(slice(0)), NO_LINKS,
            self.gauges_between(Span(0, 0)), self.names,
        )  # fmt: skip
        return window, step.details(inner, calls, self.ops)

    def _launched_in(self, span: Span) -> tuple[Activities, Calls]:
        """What was launched or ran in the span, and the calls."""
        low, high = span.t0_ns, span.t1_ns + REACH_NS
        acts = self._activities.between(low, high)
        calls = self._calls.between(low - REACH_NS, high)
        made = (calls.ends_ns >= low - REACH_NS) & (calls.starts_ns < high)
        ran = (acts.ends_ns >= low) & (acts.starts_ns < high)
        return acts.take(ran), in_order(calls, made, calls.starts_ns)

    def _carry_links(self, span: Span) -> Links:
        """Ops of kernels, from the step that was recorded with shapes."""
        acts, calls = self._launched_in(span)
        reach = Span(span.t0_ns - 2 * REACH_NS, span.t1_ns + REACH_NS)
        steps = self.marks_between(reach, MarkClass.STEP)
        acts = acts.take(~self.shapes.disturbed(acts.starts_ns))
        return self.shapes.links(acts, calls, np.sort(steps.ends_ns), self.traced or [])

    def marks_between(self, span: Span, *mark_classes: MarkClass) -> Marks:
        marks = self._marks.between(span.t0_ns, span.t1_ns)
        keep = (marks.ends_ns >= span.t0_ns) & (marks.starts_ns < span.t1_ns)
        if mark_classes:
            keep &= np.isin(marks.classes, mark_classes)
        return in_order(marks, keep, marks.starts_ns)

    def gauges_between(self, span: Span) -> Gauges:
        table = self._gauges.between(span.t0_ns, span.t1_ns)
        keep = (table.times_ns >= span.t0_ns) & (table.times_ns < span.t1_ns)
        return in_order(table, keep, table.times_ns)
