"""Snapshot fields put in the order in which the screen shows them."""

from __future__ import annotations

from dataclasses import dataclass

from brrrtop.model import Account, Estimate, Split

IDLE_UNKNOWN = "idle"
"""The bucket of idle time without a cause, apart from `unknown`: time nobody can class."""


@dataclass(frozen=True, slots=True)
class Booked:
    """One bucket of the account."""

    bucket: str
    spent_ns: int
    share: float


def booked(account: Account) -> tuple[Booked, ...]:
    """The non-empty buckets: device work first, then idle by cause (largest first), then unknown."""
    work = (
        ("compute", account.compute_ns),
        ("memory", account.memory_ns),
        ("underfilled", account.underfilled_ns),
        ("comm", account.exposed_comm_ns),
        ("copy", account.exposed_copy_ns),
    )
    idle = sorted(
        ((IDLE_UNKNOWN if cause == "unknown" else cause, ns) for cause, ns in account.idle_ns.items()),
        key=lambda entry: -entry[1],
    )
    total = account.duration_ns or 1
    entries = (*work, *idle, ("unknown", account.unknown_ns))
    return tuple(Booked(bucket, ns, ns / total) for bucket, ns in entries if ns)


def split_parts(split: Split) -> tuple[tuple[str, float], ...]:
    return (
        ("compute", split.compute),
        ("memory", split.memory),
        ("overhead", split.overhead),
        ("unknown", split.unknown),
    )


def steps_per_s(estimate: Estimate) -> float | None:
    step_ns = estimate.steps.step_ns
    return 1e9 / step_ns if step_ns else None


def jitter(estimate: Estimate) -> float | None:
    """Longest step over the median, minus one; None below three steps."""
    spans, step_ns = estimate.steps.spans, estimate.steps.step_ns
    if len(spans) < 3 or not step_ns:
        return None
    return max(span.duration_ns for span in spans) / step_ns - 1
