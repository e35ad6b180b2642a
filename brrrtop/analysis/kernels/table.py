"""Groups of kernels → the rows of the kernel table, how sure the sides are, what runs around a kernel."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.ceilings import Ceilings, highest
from brrrtop.analysis.facts.table import COMM, EVIDENCE, SHAPES, TRANSFER, Facts, Group
from brrrtop.kernel_names import families
from brrrtop.model.estimate import KernelRow, Neighbours, Side, Steps
from brrrtop.model.intervals import holders
from brrrtop.model.tables import F8, I8, edges

NOT_MOVED = 1.2
"""Above the ceiling by more than the ceiling is uncertain: caches served what the shapes count."""
MOSTLY = 0.9
"""Part of a row's time whose shapes are known from which on they speak for the row."""
_NO_ROOF = {
    Side.COMM: "the links' rates are no roof of the GPU",
    Side.COPY: "the host link's rate is no roof of the GPU",
    Side.UNDERFILLED: "too small for the GPU: neither roof sets its time",
    Side.UNKNOWN: "neither its name, nor shapes or counters tell what it does",
}


def rows_of(facts: Facts) -> tuple[KernelRow, ...]:
    """One row a name and side, largest first.

    The same function can be on either side by its shape, so a name may have two rows.
    """
    labels = facts.labels
    totals = _time_of_groups(facts)
    counts = np.bincount(labels.group_of, minlength=len(labels.groups))
    spans, calls = facts.steps.spans, None
    if spans:
        inside = holders(*edges(spans), facts.window.activities.starts_ns) >= 0
        calls = np.bincount(labels.group_of[inside], minlength=len(counts)) / len(spans)
    merged: dict[tuple[str, Side], list[int]] = defaultdict(list)
    for index, group in enumerate(labels.groups):
        if counts[index]:
            merged[(group.name, group.side)].append(index)
    whole = float(totals.sum()) or 1.0
    rows = []
    for members in merged.values():
        groups = [labels.groups[m] for m in members]
        row = _row(groups, totals[members], counts[members], whole, facts.ceilings)
        rows.append(row if calls is None else replace(row, calls=float(calls[members].sum())))
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name)))


def _row(
    groups: Sequence[Group],
    times: np.ndarray,
    counts: np.ndarray,
    whole: float,
    ceilings: Ceilings | None,
) -> KernelRow:
    total = float(times.sum())
    shares = times / total if total else np.full(len(groups), 1 / len(groups))
    main = groups[int(np.argmax(times))]
    roofs = [share_of_roof(g) for g in groups]
    level, roof = _evidence_of(groups, shares)
    most_flop = _highest_flop_per_s(main, ceilings)
    most_bytes = (ceilings and ceilings.bytes_per_s) or highest().bytes_per_s
    measured = [(s, r) for s, r in zip(shares, roofs, strict=True) if r is not None and s > 0]
    return KernelRow(
        name=main.name,
        family=main.family.name,
        side=main.side,
        count=int(counts.sum()),
        total_ns=round(total),
        share=total / whole,
        evidence=EVIDENCE[level],
        confidence=round(float(shares @ np.array([g.certainty for g in groups])), 3),
        roof_share=sum(s * r for s, r in measured) / sum(s for s, _ in measured)
        if measured
        else None,
        roof_share_why=None if measured else why_no_share(main, ceilings),
        flop_per_s=_rate([g.flop for g in groups], counts, times, roof, most_flop),
        bytes_per_s=_rate([g.size_bytes for g in groups], counts, times, roof, most_bytes),
        precision=main.precision,
        blocks_p50=int(np.median([g.blocks for g in groups])) or None,
    )


def share_of_roof(group: Group) -> float | None:
    """Share of its side's ceiling, at most 1; None where no ceiling sets its time or nobody tells its rate.

    Above the ceiling by more than that is uncertain the shapes count what was not moved, or not
    multiplied.
    """
    share = group.share_of_own_roof
    return None if share is None or share > NOT_MOVED else min(share, 1.0)


def why_no_share(group: Group, ceilings: Ceilings | None) -> str:
    if group.family.kind == families.SPIN:
        return "it only waits"
    if group.side in _NO_ROOF:
        return _NO_ROOF[group.side]
    if ceilings is None:
        return "no ceilings are known for this GPU"
    computes = group.side is Side.COMPUTE
    if group.share_of_own_roof is not None:
        if computes:
            return "its shapes count more FLOPs than the units do: another algorithm spared some"
        return "cached: its shapes count more bytes than DRAM could move"
    if (group.flop if computes else group.size_bytes) is not None:
        what = f"arithmetic in {group.precision or 'its precision'}" if computes else "bandwidth"
        return f"no ceiling is known for this GPU's {what}"
    if group.level >= SHAPES or group.op is not None:
        return "its op's shapes do not tell what this kernel of it does"
    if computes:
        return "without shapes its name and duration bound its FLOPs and do not tell them"
    return "without shapes nothing tells its bytes"


def _highest_flop_per_s(group: Group, ceilings: Ceilings | None) -> float:
    """What the units of a group's precision do at most; of any precision where it is not known."""
    known = ceilings or highest()
    rate = known.rate(group.precision, group.facts.tensor_cores) if group.precision else None
    rates = known.flop_per_s or highest().flop_per_s
    return rate or max(rates.values())


def _evidence_of(groups: Sequence[Group], shares: np.ndarray) -> tuple[int, np.ndarray]:
    """The level of a row's evidence, and which groups its rates are of.

    Shapes of nearly all speak for the row, and its rates are theirs: no guess is mixed in. Shapes of a part
    do not.
    """
    levels = np.array([g.level for g in groups])
    shaped = levels >= SHAPES
    if not shaped.any() or shaped.all():
        return groups[int(np.argmax(shares))].level, np.ones(len(groups), np.bool_)
    if shares[shaped].sum() >= MOSTLY:
        return int(levels[shaped][np.argmax(shares[shaped])]), shaped
    return int(levels[~shaped][np.argmax(shares[~shaped])]), np.zeros(len(groups), np.bool_)


def _rate(
    amounts: Sequence[float | None],
    counts: np.ndarray,
    times: np.ndarray,
    has_amount: np.ndarray,
    peak: float | None,
) -> float | None:
    """Amount a second of the groups with an amount; None where one is not known, or where no GPU of the
    kind can do as much: caches served what the shapes count, or another algorithm spared it."""
    each = [amount for amount, known in zip(amounts, has_amount, strict=True) if known]
    total_ns = float(times[has_amount].sum())
    if not total_ns or any(amount is None for amount in each):
        return None
    rate = float(np.array(each, np.float64) @ counts[has_amount]) / (total_ns * 1e-9)
    return None if peak is not None and rate > peak else rate


def _time_of_groups(facts: Facts) -> F8:
    lengths, size = facts.lengths_ns.astype(np.float64), len(facts.labels.groups)
    return np.asarray(np.bincount(facts.labels.group_of, lengths, size), np.float64)


def uncertainty_by_bound(facts: Facts) -> dict[Side, float]:
    """Of the kernel time of each side the part that may well be on another: what certainty leaves."""
    labels = facts.labels
    totals = _time_of_groups(facts)
    shares: dict[Side, float] = {}
    for side in {g.side for g in labels.groups}:
        of_bound = np.array([g.side is side for g in labels.groups])
        open_ = np.array([1.0 - g.certainty for g in labels.groups])
        time = float(totals[of_bound].sum())
        shares[side] = float(totals[of_bound] @ open_[of_bound]) / time if time else 0.0
    return shares


def evidence_shares(facts: Facts) -> dict[str, float]:
    """Share of the kernel time behind each level of evidence, transfers left out."""
    labels, durations_ns = facts.labels, facts.lengths_ns
    shares: dict[str, float] = {}
    if not labels.groups:
        return shares
    levels = np.array([g.level for g in labels.groups])[labels.group_of]
    work = (labels.classes != COMM) & (labels.classes != TRANSFER)
    total = float(durations_ns[work].sum())
    if not total:
        return shares
    sums = np.bincount(levels[work], durations_ns[work].astype(np.float64), len(EVIDENCE))
    return {EVIDENCE[k]: float(v / total) for k, v in enumerate(sums) if v > 0}


LATEST = 20_000
"""Activities looked at: the end of the window is as good as the whole, and costs the same always."""
NAMES = 64
"""Kernel names looked up, dearest first."""
BESIDE = 4
"""Shown on either side."""
NEAR = 64
"""Activities searched on either side for those of the same stream."""


def find_neighbours(facts: Facts, names: Iterable[str]) -> dict[str, Neighbours]:
    """The surroundings of each kernel name that ran lately.

    Args:
        names: Dearest first; more than `NAMES` are not looked at.
    """
    window, acts = facts.window, facts.window.activities
    ids = acts.name_ids[-LATEST:]
    if not len(ids):
        return {}
    starts, streams = acts.starts_ns[-LATEST:], acts.stream_ids[-LATEST:]
    order = np.argsort(ids, kind="stable")
    known, first = np.unique(ids[order], return_index=True)
    groups = dict(zip(known.tolist(), np.split(order, first[1:]), strict=True))
    ids_of = {window.names[i]: i for i in known.tolist()}
    places = _places(starts, facts.steps)
    neighbours: dict[str, Neighbours] = {}
    for name in list(dict.fromkeys(names))[:NAMES]:
        if name not in ids_of:
            continue
        rows = groups[ids_of[name]]
        around, at = _around(int(rows[len(rows) // 2]), streams)
        inside = places[rows]
        inside = inside[~np.isnan(inside)]
        neighbours[name] = Neighbours(
            tuple(window.names[i] for i in ids[around].tolist()),
            at,
            float(np.median(inside)) if len(inside) else None,
        )
    return neighbours


def _around(row: int, streams: I8) -> tuple[I8, int]:
    """Rows of the same stream beside `row`, and its own position among them."""
    low = max(0, row - NEAR)
    same = np.flatnonzero(streams[low : row + NEAR + 1] == streams[row]) + low
    at = int(np.searchsorted(same, row))
    left = max(0, at - BESIDE)
    return same[left : at + BESIDE + 1], at - left


def _places(starts_ns: I8, steps: Steps) -> F8:
    """Where in its step each start lies, 0..1; NaN outside of all steps."""
    places = np.full(len(starts_ns), np.nan)
    if not steps.spans:
        return places
    begins, ends = edges(steps.spans)
    which = holders(begins, ends, starts_ns)
    inside = which >= 0
    lengths = np.maximum(ends - begins, 1)[which]
    places[inside] = ((starts_ns - begins[which]) / lengths)[inside]
    return places
