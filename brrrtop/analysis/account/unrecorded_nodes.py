"""Gaps in which nodes of a CUDA graph ran that nobody recorded.

Profilers at times bring a few of a graph's nodes and no others (kineto#1062, HolisticTraceAnalysis#290).
What is missing looks like an idle device with work in its queue. Within a launch nothing waits for the
host, so a device that is idle between two nodes of one launch, or between its call and its first
recorded node, ran what is not in the file.
"""

from __future__ import annotations

import numpy as np

from brrrtop.model.tables import I8, Activities, Bool, Calls
from brrrtop.model.vocabulary import CallClass

LONGEST_GAP_NS = 20_000
"""Between two nodes of a graph, and between a launch's return and its first node. One trace of 70
launches that brought 345 nodes had 20 % of its window in longer ones; traces with all nodes 0 to 0.06 %."""
_NEVER = np.iinfo(np.int64).max


def unrecorded_from(
    activities: Activities,
    calls: Calls,
    call_rows: I8,
    gaps: tuple[I8, I8],
    launched: tuple[I8, Bool],
) -> I8:
    """Where in each gap the time begins in which unrecorded nodes ran; the gap's end where none did.

    Args:
        call_rows: Launching call of each activity, -1 unknown.
        gaps: Starts and ends of the device's idle time.
        launched: End of the call that launched what ends each gap, and whether it was recorded.
    """
    starts, ends = gaps
    nodes = np.flatnonzero(_graph_nodes(activities, calls, call_rows))
    if not len(nodes):
        return ends
    # Of the nodes that begin as a gap ends, the one whose launch came first.
    launches, first = np.unique(activities.correlations[nodes], return_index=True)
    begun = activities.starts_ns[nodes[first]][
        np.searchsorted(launches, activities.correlations[nodes])
    ]
    begun[activities.correlations[nodes] == 0] = _NEVER
    order = np.lexsort((begun, activities.starts_ns[nodes]))
    times, begun = activities.starts_ns[nodes[order]], begun[order]
    at = np.minimum(np.searchsorted(times, ends), len(times) - 1)
    call_ends, known = launched
    returned = np.where(known, np.clip(call_ends, starts, ends), ends)
    hidden = np.where(begun[at] < starts, starts, returned)
    return np.where((times[at] == ends) & (ends - hidden > LONGEST_GAP_NS), hidden, ends)


def _graph_nodes(activities: Activities, calls: Calls, call_rows: I8) -> Bool:
    """Which activities are nodes of a graph; old profilers write no graph ids, but tell the call."""
    nodes: Bool = activities.graph_ids > 0
    if len(calls):
        rows = np.maximum(call_rows, 0)
        nodes = nodes | ((call_rows >= 0) & (calls.classes[rows] == CallClass.GRAPH_LAUNCH))
    return nodes
