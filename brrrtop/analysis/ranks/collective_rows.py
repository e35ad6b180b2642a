"""The matched collectives by type, size and group, with their rates against the link's."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from brrrtop.analysis.ranks import links
from brrrtop.analysis.ranks.collectives import TYPES, UNKNOWN_SIZE, algorithm_of, name_of
from brrrtop.analysis.ranks.matching import Matched
from brrrtop.model.ranks import CollectiveRow
from brrrtop.model.tables import I8

if TYPE_CHECKING:
    from brrrtop.analysis.ranks.job import Together


def collective_rows(both: Together) -> tuple[CollectiveRow, ...]:
    """By type, size and ranks, most time first."""
    matched, numbers = both.matched, both.numbers
    if not len(matched):
        return ()
    first = np.flatnonzero(np.diff(matched.collective, prepend=-1))
    bounds = [*first.tolist(), len(matched.collective)]
    longest = np.maximum.reduceat(matched.wait_ns, first)
    groups: dict[tuple[object, ...], list[int]] = {}
    for at, (low, high) in enumerate(itertools.pairwise(bounds)):
        ranks = tuple(sorted(numbers[place] for place in matched.rank[low:high].tolist()))
        one, record = both.every[int(matched.rank[low])], int(matched.record[low])
        name = name_of(int(matched.types[at]), one.op_names[record])
        window = both.inputs[int(matched.rank[low])].window
        kernel = window.names[int(one.name_ids[record])] if window else ""
        key = (name, algorithm_of(kernel), ranks, int(matched.sizes[at]))
        groups.setdefault(key, []).append(at)
    rate = _link_rate(both)
    rows = [
        _collective_row(key, np.array(places), matched, longest, rate)
        for key, places in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: -(row.wait_ns + row.transfer_ns)))


def _collective_row(
    key: tuple[object, ...], at: I8, matched: Matched, longest: I8, rate: float | None
) -> CollectiveRow:
    name, algorithm, ranks, size = key
    assert isinstance(name, str) and isinstance(ranks, tuple) and isinstance(size, int)
    usual = float(np.median(matched.transfer_ns[at]))
    factor = links.bus_factor(name, len(ranks))
    bus = None
    if factor and size != UNKNOWN_SIZE and usual > 0:
        bus = factor * size / usual * 1e9
    share = bus / rate if bus is not None and rate else None
    return CollectiveRow(
        name=name,
        algorithm=str(algorithm) if algorithm else None,
        ranks=ranks,
        count=len(at),
        size_bytes=None if size == UNKNOWN_SIZE else size,
        transfer_ns=int(matched.transfer_ns[at].sum()),
        wait_ns=int(longest[at].sum()),
        bus_bytes_per_s=bus,
        link_share=share if share is not None and share <= 1 else None,  # more: another link
    )


def _link_rate(both: Together) -> float | None:
    """Of the slowest link between the ranks' GPUs; None where one is not known."""
    rates = []
    for one in both.inputs:
        device = one.window.device if one.window else None
        rates.append(links.link_rate(device.name, device.capability) if device else None)
    known = [rate for rate in rates if rate is not None]
    return min(known) if known and len(known) == len(rates) else None


def alone_share(both: Together) -> float | None:
    """Of the transfers of all-reduces, the part with no kernel beside them, on the median rank."""
    code = next(code for code, (name, _) in enumerate(TYPES) if name == "all-reduce")
    shares = []
    for one in both.every:
        rows = one.types == code
        total = int((one.ends_ns - one.starts_ns)[rows].sum())
        if total:
            shares.append(int(one.alone_ns(one.starts_ns[rows], one.ends_ns[rows]).sum()) / total)
    return float(np.median(shares)) if shares else None
