"""Ranks' clocks put on one, which of their records are one collective, and who waited in it for whom.

A collective ends on all of its ranks at once, to within tens of microseconds, whoever came late to it.
Their rows, by type, size and group, stand against the link's rate and say how a job is divided.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.collectives import (
    EXCHANGE,
    TYPES,
    UNKNOWN_SIZE,
    Collectives,
    algorithm_of,
    name_of,
)
from brrrtop.model.intervals import EMPTY, holders
from brrrtop.model.ranks import CollectiveRow, Parallelism
from brrrtop.model.tables import F8, I8, Bool

if TYPE_CHECKING:
    from brrrtop.analysis.ranks.job import AlignedRanks


NEAR_NS = 200_000
"""Ends of one collective on two ranks lie closer, once the clocks are compared: 40 us were seen."""
VOTE_NS = 100_000
LAUNCHES_ALIKE, STEPS_ALIKE = 0.05, 0.8
"""Numbers of launches differ by less; and the part of them that does a step later, which hiccups spoil."""
MOST_LIKE = 2_000
"""Collectives in which a step is looked for."""
PROBES = 64
MOST_VOTERS = 5_000
ENOUGH = 0.5
"""Part of the collectives of the time that both were recorded in which must find their like."""
SAME_CLOCK = 0.7
"""Ranks of one host have one clock: another offset must explain so much more to be preferred."""


class Matched(Struct, frozen=True, eq=False):
    """One row a rank and collective, sorted by collective; and one row a collective, by their ends.

    Times are on the clock of the first rank that was placed.
    """

    collective: I8
    """Shape (rows,), into what follows below."""
    rank: I8
    """Place among the ranks."""
    record: I8
    """Place among the rank's own collectives."""
    durations_ns: I8
    alone_ns: I8
    """Of the wait, the part with no kernel of the rank's own beside it."""
    stay_alone_ns: I8
    """The same of all of its stay."""
    ends_ns: I8
    """Shape (collectives,)."""
    types: I8
    sizes: I8
    transfer_ns: I8
    """With all ranks there: the shortest stay."""
    last: I8
    """The rank that came last."""

    def __len__(self) -> int:
        return len(self.ends_ns)

    @property
    def wait_ns(self) -> I8:
        """Of each row: the stay before the last rank came."""
        return np.asarray(self.durations_ns - self.transfer_ns[self.collective])

    def sums(self, values: I8 | F8, count: int) -> F8:
        """Totals by rank of a column of rows; shape (count,)."""
        return np.bincount(self.rank, values, count).astype(np.float64)


def match(ranks: Sequence[Collectives], offsets: Sequence[int | None]) -> Matched:
    """The collectives that two ranks or more have, by type, size where all tell it, and order of ends."""
    keys = _keys(ranks)
    ends = kinds = EMPTY
    matches: list[tuple[int, I8]] = []
    for place, (one, offset) in enumerate(zip(ranks, offsets, strict=True)):
        if offset is None or not len(one):
            continue
        order = np.argsort(ends, kind="stable")
        hit = nearest(keys[place], one.ends_ns + offset, kinds[order], ends[order])
        ids = np.where(hit >= 0, order[np.maximum(hit, 0)] if len(order) else -1, -1)
        fresh = np.flatnonzero(ids < 0)
        ids[fresh] = len(ends) + np.arange(len(fresh))
        ends = np.concatenate((ends, one.ends_ns[fresh] + offset))
        kinds = np.concatenate((kinds, keys[place][fresh]))
        matches.append((place, ids))
    return _join(ranks, matches, ends)


def _keys(ranks: Sequence[Collectives]) -> list[I8]:
    """A number for what must be equal. Exchanges may be of another size on each rank."""
    unsure = {EXCHANGE}
    for one in ranks:
        unsure |= set(np.unique(one.types[one.sizes == UNKNOWN_SIZE]).tolist())
    keys = []
    for one in ranks:
        size = np.where(np.isin(one.types, list(unsure)), 0, one.sizes)
        keys.append(one.types + 16 * size)
    return keys


def _join(ranks: Sequence[Collectives], matches: list[tuple[int, I8]], ends: I8) -> Matched:
    if not matches:
        return Matched(*(EMPTY,) * 11)
    ids = np.concatenate([ids for _, ids in matches])
    rank = np.concatenate([np.full(len(ids), place) for place, ids in matches])
    record = np.concatenate([np.arange(len(ids)) for _, ids in matches])
    members = np.bincount(ids, minlength=len(ends))
    kept = np.flatnonzero(members >= 2)
    kept = kept[np.argsort(ends[kept], kind="stable")]
    number = np.full(len(ends), -1, np.int64)
    number[kept] = np.arange(len(kept))
    rows = np.flatnonzero(number[ids] >= 0)
    rows = rows[np.lexsort((rank[rows], number[ids[rows]]))]
    collective, rank, record = number[ids[rows]], rank[rows], record[rows]

    def column(name: str) -> I8:
        return np.concatenate([getattr(ranks[place], name) for place, _ in matches])[rows]

    starts, stops = column("starts_ns"), column("ends_ns")
    stay = np.maximum(stops - starts, 0)
    first = np.flatnonzero(np.diff(collective, prepend=-1))
    transfer = np.minimum.reduceat(stay, first)
    by_stay = np.lexsort((stay, collective))
    alone, stay_alone = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for place, _ in matches:
        own = rank == place
        until = starts[own] + stay[own] - transfer[collective[own]]
        alone[own] = ranks[place].alone_ns(starts[own], until)
        stay_alone[own] = ranks[place].alone_ns(starts[own], starts[own] + stay[own])
    return Matched(
        collective=collective,
        rank=rank,
        record=record,
        durations_ns=stay,
        alone_ns=alone,
        stay_alone_ns=stay_alone,
        ends_ns=ends[kept],
        types=column("types")[first],
        sizes=np.maximum.reduceat(column("sizes"), first),
        transfer_ns=transfer,
        last=rank[by_stay[first]],
    )


def collectives_a_step(one: Collectives, step_ns: float) -> int | None:
    """After how many of a rank's collectives the launches between them are the same again, as a step later;
    None where too few were recorded. Times do not tell: traced steps are stretched, each by its own."""
    starts, stops = one.recorded
    ends, between = one.ends_ns[:MOST_LIKE], np.diff(one.correlations[:MOST_LIKE])
    bursts = holders(starts, stops + 1, ends)
    whole = (bursts[1:] == bursts[:-1]) & (bursts[1:] >= 0)
    usual = step_ns / max(float(np.diff(ends)[whole].mean()), 1.0) if whole.any() else 0.0
    alike = {}
    for count in range(max(1, int(0.5 * usual)), min(int(2.5 * usual) + 2, len(between))):
        same = whole[count:] & whole[:-count] & (bursts[count + 1 :] == bursts[: -count - 1])
        later, earlier = between[count:][same], between[:-count][same]
        if len(later) >= max(count - 1, 1):
            near = np.abs(later - earlier) <= LAUNCHES_ALIKE * np.maximum(later, earlier)
            alike[count] = float(near.mean())
    best = max(alike.values(), default=0.0)
    sure = (count for count, part in alike.items() if part >= best - LAUNCHES_ALIKE)
    return next(sure) if best >= STEPS_ALIKE else None


def nearest(types: I8, ends: I8, of_types: I8, of_ends: I8) -> I8:
    """For each collective the one of the other rank that is it, -1 without one; shape of `ends`.

    Both are the nearest of their type to each other, on one clock. Ends are sorted.
    """
    partner = np.full(len(ends), -1, np.int64)
    for kind in np.intersect1d(types, of_types).tolist():
        own, theirs = np.flatnonzero(types == kind), np.flatnonzero(of_types == kind)
        there = _nearest_place(ends[own], of_ends[theirs])
        back = _nearest_place(of_ends[theirs], ends[own])
        mutual = back[there] == np.arange(len(own))
        close = np.abs(of_ends[theirs[there]] - ends[own]) <= NEAR_NS
        good = mutual & close
        partner[own[good]] = theirs[there[good]]
    return partner


def _nearest_place(times: I8, among: I8) -> I8:
    at = np.clip(np.searchsorted(among, times), 1, max(len(among) - 1, 1))
    before = np.minimum(at - 1, len(among) - 1)
    after = np.minimum(at, len(among) - 1)
    nearer = np.abs(among[before] - times) <= np.abs(among[after] - times)
    return np.where(nearer, before, after)


def offsets(
    ranks: Sequence[Collectives], hosts: Sequence[str | None] | None = None
) -> list[int | None]:
    """What to add to each rank's times, in ns; None where no collective places it beside another.

    Args:
        hosts: Whose clock each rank has; None: nobody says. Steps repeat, so that any two recordings of
            a job match with some offset: on one host's clock only a small one is believed.
    """
    clocks = hosts or [None] * len(ranks)
    placed: list[int | None] = [None] * len(ranks)
    some = [i for i, one in enumerate(ranks) if len(one)]
    for first in some:
        placed[first] = 0
        order = [first]
        waiting = [i for i in some if i != first]
        for anchor in order:
            for one in list(waiting):
                same = clocks[one] is not None and clocks[one] == clocks[anchor]
                offset = offset_of(ranks[one], ranks[anchor], same)
                if offset is not None:
                    placed[one] = offset + (placed[anchor] or 0)
                    order.append(one)
                    waiting.remove(one)
        if len(order) > 1:
            return placed
        placed[first] = None
    return placed


def offset_of(one: Collectives, other: Collectives, same_clock: bool = False) -> int | None:
    """What to add to the first one's times to have the other's clock; None where nothing matches."""
    best: tuple[float, int] | None = None
    for guess in [0] if same_clock else _guesses(one, other):
        scored = _score(one, other, guess)
        if scored is not None and (best is None or scored[0] * SAME_CLOCK > best[0]):
            best = scored
    return None if best is None else best[1]


def _guesses(one: Collectives, other: Collectives) -> list[int]:
    """Offsets to try: none, then the one that most pairs of ends agree on."""
    probes = np.unique(np.linspace(0, len(one) - 1, min(PROBES, len(one))).astype(np.int64))
    voters = np.unique(
        np.linspace(0, len(other) - 1, min(MOST_VOTERS, len(other))).astype(np.int64)
    )
    same = one.types[probes][:, None] == other.types[voters][None, :]
    votes = np.sort((other.ends_ns[voters][None, :] - one.ends_ns[probes][:, None])[same])
    if not len(votes):
        return []
    counts = np.searchsorted(votes, votes + VOTE_NS, "right") - np.arange(len(votes))
    best = np.flatnonzero(counts == counts.max())
    at = int(best[np.argmin(np.abs(votes[best]))])
    return [0, int(np.median(votes[at : at + int(counts[at])]))]


def _score(one: Collectives, other: Collectives, guess: int) -> tuple[float, int] | None:
    """Part that matches with this offset, and the offset made finer; None where too little does."""
    offset = guess
    for _ in range(2):
        partner = nearest(one.types, one.ends_ns + offset, other.types, other.ends_ns)
        hit = partner >= 0
        if not hit.any():
            return None
        offset += int(np.median(other.ends_ns[partner[hit]] - one.ends_ns[hit] - offset))
    shared = min(
        int(_recorded(other, one.ends_ns + offset).sum()),
        int(_recorded(one, other.ends_ns - offset).sum()),
    )
    share = int(hit.sum()) / max(shared, 1)
    return (share, offset) if share >= ENOUGH else None


def _recorded(one: Collectives, times: I8) -> Bool:
    """Whether a rank was recorded at these times of its clock; its bursts may be others than its peers'."""
    starts, ends = one.recorded
    return np.asarray(holders(starts - NEAR_NS, ends + NEAR_NS + 1, times) >= 0)


_NVLINK_2, _NVLINK_3, _NVLINK_4, _NVLINK_5 = 150e9, 300e9, 450e9, 900e9
_EXPORT = 200e9
_NONE = 0.0
_LINKS: tuple[tuple[re.Pattern[str], float], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), rate)
    for pattern, rate in (
        (r"\bG?B[123]00\b", _NVLINK_5),
        (r"[AH]800", _EXPORT),
        (r"H[12]00 NVL|PCIe", _NONE),
        (r"G?H200|H100|H20\b", _NVLINK_4),
        (r"A100", _NVLINK_3),
        (r"V100", _NVLINK_2),
    )
)
"""NVLink's bytes/s one way, by generation, from NVIDIA's product pages, which state both ways together.
Boards in PCIe slots may be bridged in pairs or not, which no name tells: they count as not."""
PCIE_BYTES_PER_S = {7: 16e9, 8: 32e9, 9: 64e9, 10: 64e9, 12: 64e9}
"""Of 16 lanes, one way, by the major compute capability's generation."""

GATHERS_PER_SCATTER = 1.5
"""FSDP gathers weights forward and backward, and scatters gradients once."""
TENSOR_ALONE = 0.8
TENSOR_A_STEP = 16


def collective_rows(job: AlignedRanks, complete: bool = True) -> tuple[CollectiveRow, ...]:
    """By type, size and ranks, most time first.

    Args:
        complete: All ranks are there; else what is left of a stay may still be a wait for a missing one,
            and no rate is told.
    """
    matched, numbers = job.matched, job.numbers
    if not len(matched):
        return ()
    first = np.flatnonzero(np.diff(matched.collective, prepend=-1))
    bounds = [*first.tolist(), len(matched.collective)]
    longest = np.maximum.reduceat(matched.wait_ns, first)
    groups: dict[tuple[object, ...], list[int]] = {}
    for at, (low, high) in enumerate(itertools.pairwise(bounds)):
        ranks = tuple(sorted(numbers[place] for place in matched.rank[low:high].tolist()))
        one, record = job.every[int(matched.rank[low])], int(matched.record[low])
        name = name_of(int(matched.types[at]), one.op_names[record])
        kernel = job.windows[int(matched.rank[low])].names[int(one.name_ids[record])]
        key = (name, algorithm_of(kernel), ranks, int(matched.sizes[at]))
        groups.setdefault(key, []).append(at)
    rate = _link_rate(job)
    rows = [
        _collective_row(key, np.array(places), matched, longest, rate, complete)
        for key, places in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: -(row.wait_ns + row.transfer_ns)))


def _collective_row(
    key: tuple[object, ...],
    at: I8,
    matched: Matched,
    longest: I8,
    rate: float | None,
    complete: bool,
) -> CollectiveRow:
    name, algorithm, ranks, size = key
    assert isinstance(name, str) and isinstance(ranks, tuple) and isinstance(size, int)
    usual = float(np.median(matched.transfer_ns[at]))
    factor = bus_factor(name, len(ranks))
    bus = None
    if complete and factor and size != UNKNOWN_SIZE and usual > 0:
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


def _link_rate(job: AlignedRanks) -> float | None:
    """Of the slowest link between the ranks' GPUs; None where one is not known."""
    devices = [window.device for window in job.windows]
    rates = [link_rate(device.name, device.capability) for device in devices]
    known = [rate for rate in rates if rate is not None]
    return min(known) if len(known) == len(rates) else None


def alone_share(job: AlignedRanks) -> float | None:
    """Of the transfers of all-reduces, the part with no kernel beside them, on the median rank."""
    code = next(code for code, (name, _) in enumerate(TYPES) if name == "all-reduce")
    shares = []
    for one in job.every:
        rows = one.types == code
        total = int((one.ends_ns - one.starts_ns)[rows].sum())
        if total:
            shares.append(int(one.alone_ns(one.starts_ns[rows], one.ends_ns[rows]).sum()) / total)
    return float(np.median(shares)) if shares else None


def link_rate(device: str | None, capability: tuple[int, int] | None) -> float | None:
    """Bytes/s one way over the link that all such GPUs of a host have; None where it is unknown."""
    if device is None:
        return None
    for pattern, rate in _LINKS:
        if pattern.search(device):
            return rate or PCIE_BYTES_PER_S.get(capability[0] if capability else 0)
    return PCIE_BYTES_PER_S.get(capability[0]) if capability else None


def bus_factor(name: str, ranks: int) -> float | None:
    """Bytes over the slowest link of a ring for each byte of the collective, as NCCL's tests count."""
    if ranks < 2:
        return None
    factors = {
        "all-reduce": 2 * (ranks - 1) / ranks,
        "all-gather": (ranks - 1) / ranks,
        "reduce-scatter": (ranks - 1) / ranks,
        "all-to-all": (ranks - 1) / ranks,
        "broadcast": 1.0,
        "reduce": 1.0,
        "send-recv": 1.0,
    }
    return factors.get(name)


def parallelism(
    rows: Iterable[CollectiveRow], steps: float | None, world: int, alone: float | None
) -> tuple[Parallelism, ...]:
    """How the job is divided, by the collectives of a step; empty where nothing can be told.

    Args:
        alone: Share of the time of all-reduces in which no kernel runs beside them.
    """
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.name] = counts.get(row.name, 0) + row.count
        if row.name == "send-recv" and len(row.ranks) > 2:
            counts["all-to-all"] = counts.get("all-to-all", 0) + row.count
    per = max(steps or 1.0, 1.0)
    gathers, scatters = counts.get("all-gather", 0) / per, counts.get("reduce-scatter", 0) / per
    reduces = counts.get("all-reduce", 0) / per
    kinds = []
    if scatters >= 1 and gathers >= 1:
        whole = gathers >= GATHERS_PER_SCATTER * scatters
        kinds.append(Parallelism.FSDP if whole else Parallelism.ZERO)
    if counts.get("all-to-all"):
        kinds.append(Parallelism.EXCHANGE)
    elif counts.get("send-recv") and world > 2:
        kinds.append(Parallelism.PIPELINE)
    if reduces >= 1:
        tensor = reduces >= TENSOR_A_STEP and (alone or 0.0) >= TENSOR_ALONE
        if tensor:
            kinds.append(Parallelism.TENSOR)
        elif not kinds or Parallelism.EXCHANGE in kinds:
            kinds.append(Parallelism.DDP)
    return tuple(kinds)
