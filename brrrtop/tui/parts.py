"""What the screens show of a snapshot: its fields in their order, and the words that only screens have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct

from brrrtop.model.account import Account, Split
from brrrtop.model.estimate import KernelRow, Roofs
from brrrtop.model.snapshot import Event, Snapshot, SourceInfo
from brrrtop.text import phrases

if TYPE_CHECKING:
    from brrrtop.model.ranks import RankRow


EVIDENCE: Mapping[str, str] = MappingProxyType(
    {
        "L0": "nothing: no name that is known, no shapes, no counters",
        "L1": "name and grid",
        "L1.5": "bytes from the op's name and grid",
        "L2": "shapes: FLOPs and bytes against the ceilings",
        "L3": "hardware counters",
    }
)


class BucketTime(Struct, frozen=True):
    bucket: str
    spent_ns: int
    share: float


def why_unjudged(snapshot: Snapshot) -> str:
    """Why a view has nothing to show while nothing is judged, in sentences."""
    above = reason(snapshot.source)
    message = phrases.unjudged(snapshot)
    sentences = [f"{message[0].upper()}{message[1:]}."]
    if above is not None:
        sentences.append(f"{above[0].upper()}{above[1:]}.")
    if snapshot.run is not None and snapshot.run.lines:
        sentences.append("C shows the lines that take the time, i the phases with their waits.")
    return " ".join(sentences)


def reason(source: SourceInfo) -> str | None:
    """The note that says why nothing is judged; a missing gauge is none where kernels are traced."""
    traced = source.tier != "nvml"
    return next((note for note in source.notes if not (traced and note in source.gauges)), None)


def booked(account: Account) -> tuple[BucketTime, ...]:
    total = account.duration_ns or 1
    entries = [BucketTime(key, ns, ns / total) for key, ns in phrases.buckets(account) if ns]
    return tuple(sorted(entries, key=_place))


def _place(part: BucketTime) -> tuple[int, int]:
    idle = part.bucket.startswith("idle_")
    return (1 if idle else 2 if part.bucket == "unknown" else 0, -part.spent_ns if idle else 0)


def split_parts(split: Split) -> tuple[tuple[str, float], ...]:
    return (
        ("compute", split.compute),
        ("memory", split.memory),
        ("overhead", split.overhead),
        ("unknown", split.unknown),
    )


def rank_order(row: RankRow) -> tuple[int, str]:
    """Sorts ranks by number; those without one come last."""
    return (row.rank if row.rank is not None else 1 << 30, row.key)


def waits_for_loader(snapshot: Snapshot) -> bool:
    estimate = snapshot.estimate
    return estimate is not None and estimate.cause == "input" and bool(snapshot.tables.loaders)


def shapes_outcome(snapshot: Snapshot) -> Event | None:
    outcomes = [event for event in snapshot.events if event.kind == "shapes"]
    return outcomes[-1] if outcomes else None


def intensity(kernel: KernelRow) -> float | None:
    if kernel.flop_per_s is None or not kernel.bytes_per_s:
        return None
    return kernel.flop_per_s / kernel.bytes_per_s


def roof_of(kernel: KernelRow, roofs: Roofs | None) -> float | None:
    if roofs is None or kernel.precision is None:
        return None
    return roofs.flop_per_s.get(kernel.precision)


def ridge(kernel: KernelRow, roofs: Roofs | None) -> float | None:
    top = roof_of(kernel, roofs)
    if roofs is None or top is None or not roofs.bytes_per_s:
        return None
    return top / roofs.bytes_per_s


def whole_step(kernels: Iterable[KernelRow]) -> tuple[float, float] | None:
    """Intensity and FLOP/s of all kernels with known rates together, weighted by their time."""
    flop = moved = spent_s = 0.0
    for kernel in kernels:
        if kernel.flop_per_s is not None and kernel.bytes_per_s:
            seconds = kernel.total_ns / 1e9
            flop += kernel.flop_per_s * seconds
            moved += kernel.bytes_per_s * seconds
            spent_s += seconds
    return (flop / moved, flop / spent_s) if flop and moved and spent_s else None


def evidence(levels: str) -> str:
    return " and ".join(EVIDENCE.get(level, level) for level in levels.split("+"))
