"""Which records of several ranks are one collective, and who waited in it for whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from brrrtop.analysis.ranks.alignment import nearest
from brrrtop.analysis.ranks.collectives import EXCHANGE, UNKNOWN_SIZE, Collectives
from brrrtop.model.tables import F8, I8


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

    def sums(self, values: I8, count: int) -> F8:
        """Totals by rank of a column of rows; shape (count,)."""
        return np.bincount(self.rank, values, count).astype(np.float64)


def match(ranks: Sequence[Collectives], offsets: Sequence[int | None]) -> Matched:
    """The collectives that two ranks or more have, by type, size where all tell it, and order of ends."""
    keys = _keys(ranks)
    ends, kinds = np.zeros(0, np.int64), np.zeros(0, np.int64)
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
    ids = np.concatenate([ids for _, ids in matches]) if matches else np.zeros(0, np.int64)
    rank = np.concatenate([np.full(len(ids), place) for place, ids in matches] or [ids])
    record = np.concatenate([np.arange(len(ids)) for _, ids in matches] or [ids])
    members = np.bincount(ids, minlength=len(ends))
    kept = np.flatnonzero(members >= 2)
    kept = kept[np.argsort(ends[kept], kind="stable")]
    number = np.full(len(ends), -1, np.int64)
    number[kept] = np.arange(len(kept))
    rows = np.flatnonzero(number[ids] >= 0) if len(ids) else ids
    rows = rows[np.lexsort((rank[rows], number[ids[rows]]))]
    collective, rank, record = number[ids[rows]], rank[rows], record[rows]

    def column(name: str) -> I8:
        out = np.zeros(len(rows), np.int64)
        for place, _ in matches:
            mine = rank == place
            out[mine] = getattr(ranks[place], name)[record[mine]]
        return out

    starts, stops = column("starts_ns"), column("ends_ns")
    stay = np.maximum(stops - starts, 0)
    first = np.flatnonzero(np.diff(collective, prepend=-1))
    if not len(first):
        empty = np.zeros(0, np.int64)
        return Matched(*(empty,) * 11)
    transfer = np.minimum.reduceat(stay, first)
    by_stay = np.lexsort((stay, collective))
    alone, stay_alone = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for place, _ in matches:
        mine = rank == place
        until = starts[mine] + stay[mine] - transfer[collective[mine]]
        alone[mine] = ranks[place].alone_ns(starts[mine], until)
        stay_alone[mine] = ranks[place].alone_ns(starts[mine], starts[mine] + stay[mine])
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
