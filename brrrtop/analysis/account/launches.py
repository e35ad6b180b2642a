"""How far ahead of the GPU the host runs: launch lead, and rho.

lead = kernel start - end of the call that launched it. Below 10 us nothing was queued: the GPU
waited for the host, or was about to; on an idle H200 a launch takes some 4 us.
"""

from __future__ import annotations

import numpy as np

from brrrtop.analysis.signals.joined import gaps
from brrrtop.model import intervals
from brrrtop.model.estimate import Launch
from brrrtop.model.tables import I8, Activities, ActivityType, Calls, Window

AHEAD_NS = 10_000
LOADING_NS = 1_000_000
"""A launch that takes longer on an idle device did something else: the first one of a kernel loads its
module (lazy loading, CUDA programming guide): 1 to 24 ms in A100 traces, 0.6 s and 3 s where it sets
a library up; a launch of a kernel that is loaded takes 5 to 20 us."""
_FIRSTS = 0.8
"""Part of such time in first launches: below it they were slow for another reason, as a lock."""


def launch_lead(activities: Activities, calls: Calls, call_rows: I8) -> Launch:
    """Lead and rho over the kernels whose launch is known; all `None` when none is."""
    known = (call_rows >= 0) & (activities.types == ActivityType.KERNEL)
    if not known.any():
        return Launch()
    leads = activities.starts_ns[known] - calls.ends_ns[call_rows[known]]
    durations = activities.ends_ns[known] - activities.starts_ns[known]
    ahead = leads >= AHEAD_NS
    total = int(durations.sum())
    return Launch(
        lead_p50_ns=int(np.median(leads)),
        share_under_10us=float(np.count_nonzero(~ahead) / len(leads)),
        rho=float(durations[ahead].sum() / total) if total else None,
        count=len(leads),
    )


def loading_ns(window: Window, call_rows: I8) -> int:
    """Device idle while the first launches of kernels lasted: they load modules and set libraries up.

    Profilers seldom record the loads as calls of their own. 0 where later launches, of kernels that
    are loaded, idle the device as long.
    """
    acts, calls = window.activities, window.calls
    rows = np.flatnonzero((call_rows >= 0) & (acts.types == ActivityType.KERNEL))
    begun, ended = calls.starts_ns[call_rows[rows]], calls.ends_ns[call_rows[rows]]
    if not (ended - begun >= LOADING_NS).any():
        return 0
    order = np.argsort(begun, kind="stable")
    rows, begun, ended = rows[order], begun[order], ended[order]
    first = np.zeros(len(rows), np.bool_)
    first[np.unique(acts.name_ids[rows], return_index=True)[1]] = True
    _, low, high = gaps(window)
    long = ended - begun >= LOADING_NS
    idle = np.where(long, intervals.Cover(low, high).between(begun, ended), 0)
    loading = int(idle[first].sum())
    return loading if loading >= _FIRSTS * int(idle.sum()) else 0
