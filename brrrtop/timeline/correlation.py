"""Which call launched which kernel or copy, by correlation id; and the kernels of one recorded step in the
order of their launches, each with its op, and what that says of other steps.

A kernel of another step is the same call as a recorded one where name, geometry and place among
its equals in the step agree, and where the step has as many of them. All else stays without an op.
"""

import numpy as np
import numpy.typing as npt

from brrrtop.model import intervals
from brrrtop.model.tables import I8, Activities, ActivityType, Calls, Columns, Links, Span, edges

U8 = npt.NDArray[np.uint64]
NONE = Links(np.zeros(0, np.int64), np.zeros(0, np.int64))
_MIX = np.uint64(0x9E3779B97F4A7C15)


def call_of(activities: Activities, calls: Calls, observed: tuple[Span, ...] | None = None) -> I8:
    """Row of the launching call of each activity, shape (n,); -1 where none is known.

    A correlation id that several calls claim belongs to the last of them that began before the
    activity did. Ids may start anew with each traced span, so a call of one span launched nothing in
    another.

    Args:
        observed: The traced spans, in order; None: all of it was traced.
    """
    rows = intervals.latest_before(
        calls.correlations, calls.starts_ns, activities.correlations, activities.starts_ns
    )
    hit = (rows >= 0) & (activities.correlations != 0)
    if observed and hit.any():
        hit &= _of_its_span(activities, calls, rows, observed)
    return np.where(hit, rows, -1)


def _of_its_span(
    activities: Activities, calls: Calls, rows: I8, observed: tuple[Span, ...]
) -> npt.NDArray[np.bool_]:
    """Whether the call in `rows` was made for the span of the activity: in it, or just before."""
    begun, ended = edges(observed)
    own = np.searchsorted(begun, activities.starts_ns, "right") - 1
    # What runs out after a span's end was launched in it, or after that end too.
    after = np.searchsorted(ended, activities.starts_ns, "left")
    its = np.searchsorted(ended, calls.starts_ns[rows], "left")
    in_order = calls.starts_ns[rows] <= activities.starts_ns
    return np.asarray(((its == own) | (its == after)) & in_order)


class Launched(Columns, frozen=True, eq=False):
    rows: I8
    """Into the activities."""
    keys: U8
    """Device, name and geometry as one number."""
    times_ns: I8
    """When the launching call began: the order of the program, whatever the streams do."""
    middles_ns: I8
    """Within the launching call: an op's interval holds it even if the clocks differ a little."""
    tids: I8


def launches_in_order(activities: Activities, calls: Calls) -> Launched:
    """Kernels with a launch of their own; nodes of a graph share one, so they are left out."""
    call_rows = call_of(activities, calls)
    rows = np.flatnonzero(
        (call_rows >= 0) & (activities.types == ActivityType.KERNEL) & (activities.graph_ids == 0)
    )
    at = call_rows[rows]
    starts = calls.starts_ns[at]
    middles = starts + (calls.ends_ns[at] - starts) // 2
    return Launched(rows, _keys(activities, rows), starts, middles, calls.tids[at])


def _keys(acts: Activities, rows: I8) -> U8:
    key = acts.name_ids[rows].astype(np.uint64)
    for column in (
        acts.device_ids, acts.blocks, acts.threads, acts.registers, acts.shared_bytes,
    ):  # fmt: skip
        key = key * _MIX + column[rows].astype(np.int64).view(np.uint64)
    return key


class Sequence:
    """The recorded step.

    Args:
        keys: Of its kernels, any order, shape (n,).
        times_ns: Their launches.
        op_ids: Their ops; -1: none.
    """

    def __init__(self, keys: U8, times_ns: I8, op_ids: I8) -> None:
        order = np.lexsort((times_ns, keys))
        self._op_ids = op_ids[order]
        self._known, self._offsets, self._counts = np.unique(
            keys[order], return_index=True, return_counts=True
        )
        low = np.minimum.reduceat(self._op_ids, self._offsets) if len(order) else self._op_ids
        high = np.maximum.reduceat(self._op_ids, self._offsets) if len(order) else self._op_ids
        self._alike = low == high
        """Of each key: all of its kernels come from equal calls."""

    def __len__(self) -> int:
        return len(self._op_ids)

    def links(
        self, activities: Activities, calls: Calls, steps_ns: I8, traced: list[Span]
    ) -> Links:
        """The ops of other kernels, sorted by correlation.

        Args:
            activities: More than a window: whole steps can only be counted if they are all there.
            calls: With the launches of all of them.
            steps_ns: Ends of steps on the host, sorted.
            traced: Spans in which everything was recorded, sorted; empty: all of it was.
        """
        here = launches_in_order(activities, calls)
        if not len(self) or not len(here.rows):
            return NONE
        op_ids = self._ops_of(here, activities.starts_ns[here.rows], steps_ns, traced)
        kept = op_ids >= 0
        correlations = activities.correlations[here.rows][kept]
        order = np.argsort(correlations, kind="stable")
        return Links(correlations[order], op_ids[kept][order])

    def _ops_of(self, here: Launched, starts_ns: I8, steps_ns: I8, traced: list[Span]) -> I8:
        runs = np.searchsorted(np.array([s.t1_ns for s in traced], np.int64), starts_ns)
        steps = np.searchsorted(steps_ns, here.times_ns, "right")
        order = np.lexsort((here.times_ns, here.keys, steps, runs))
        runs, steps, keys = runs[order], steps[order], here.keys[order]
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = (runs[1:] != runs[:-1]) | (steps[1:] != steps[:-1]) | (keys[1:] != keys[:-1])
        first = np.flatnonzero(fresh)
        sizes = np.diff(np.append(first, len(order)))
        at = np.minimum(np.searchsorted(self._known, keys[first]), len(self._known) - 1)
        known = self._known[at] == keys[first]
        begun, ended = _ends_seen(runs, here.times_ns[order], steps_ns, runs[first], steps[first])
        equal = sizes == self._counts[at]
        whole = begun & ended & known
        # A step that was cut is believed where the whole ones beside it are as recorded.
        matched = np.bincount(at[whole & equal], minlength=len(self._known)) > 0
        differs = np.bincount(at[whole & ~equal], minlength=len(self._known)) > 0
        fits = known & (sizes <= self._counts[at])
        sure = matched | (self._alike & ~differs)
        cut = fits & ~(begun & ended) & sure[at] & ~differs[at] & (begun | ended | self._alike[at])
        good = (whole & equal) | cut
        # What began in sight is counted from its start, a rest from its end.
        shift = np.where(begun, 0, self._counts[at] - sizes)
        group = np.cumsum(fresh) - 1
        ordinal = np.arange(len(order)) - first[group] + shift[group]
        ops = np.full(len(order), -1, np.int64)
        use = np.flatnonzero(good[group])
        ops[order[use]] = self._op_ids[self._offsets[at[group[use]]] + ordinal[use]]
        return ops


def _ends_seen(
    runs: I8, times_ns: I8, steps_ns: I8, run: I8, step: I8
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Of each group: whether launches were recorded before its step's start and after its end.

    A run of tracing reaches on the host from its first launch to its last; its span on the device
    may lie much later.
    """
    count = int(runs.max()) + 1
    low = np.full(count, np.iinfo(np.int64).max)
    high = np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, runs, times_ns)
    np.maximum.at(high, runs, times_ns)
    edges = np.concatenate([[np.iinfo(np.int64).min], steps_ns, [np.iinfo(np.int64).max]])
    return edges[step] >= low[run], edges[step + 1] <= high[run]
