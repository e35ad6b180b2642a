"""From the split and how sure its sides are to a verdict, with a confidence that means something.

The verdict is the largest share of the split; `mixed` when the two largest are within 10 points,
Nsight Compute's own margin between its compute and memory verdicts; `unknown` when too much is unknown
or the confidence is below the floor.

The confidence comes from the lead and from what may lie elsewhere: of every kernel's time the part that
its certainty leaves open (`roofline`), and all that is unknown, counts for the runner-up. It is 0.5 where
a verdict is about to tip into another, and 0.8 at a lead of 35 points without any doubt.
"""

from collections.abc import Mapping

from msgspec import Struct

from brrrtop.model.account import Account, Split
from brrrtop.model.estimate import Regime, Side

MARGIN = 0.10
FLOOR = 0.30
"""Below this confidence no verdict is given."""
MOST_UNKNOWN = 0.35
LEAST_ACTIVITIES = 8
"""With fewer, a verdict is no surer than of a run that begins: the next one may change it."""
_CLEAR_SLOPE = 1.2
"""Confidence per share of lead."""
_MIXED_SLOPE = 2.0
_MOST = 0.99
MOST_AT_START = 0.5
"""While a run warms up, whose first steps say little of the others: of 52 verdicts that were called 95 % sure
and more, the nine wrong ones were of such traces (`docs/confidence.md`)."""
_SIDE = {
    Regime.COMPUTE: Side.COMPUTE,
    Regime.MEMORY: Side.MEMORY,
    Regime.OVERHEAD: Side.UNDERFILLED,
}


class Verdict(Struct, frozen=True):
    regime: Regime
    cause: str | None
    confidence: float
    runner_up: Regime | None


def judge(
    account: Account, split: Split, uncertainty_by_bound: Mapping[Side, float], activities: int,
    warming_up: bool = False, shared: bool = False,
) -> Verdict:  # fmt: skip
    """The regime of a window.

    Args:
        uncertainty_by_bound: Of each side's kernel time, the part that may well be on another side.
        activities: Records behind it; a handful says nothing.
        shared: Another process has turns of the device (`idle_causes.is_shared`).
        warming_up: The window is of the run's first steps, or something was compiled or loaded in it.
    """
    if (
        account.duration_ns <= 0 or activities < 2
    ):  # a span that ends with its one activity says nothing
        return Verdict(Regime.UNKNOWN, None, 0.0, None)
    if shared:
        return Verdict(Regime.UNKNOWN, "other_process", 0.0, None)
    shares = {
        Regime.COMPUTE: split.compute,
        Regime.MEMORY: split.memory,
        Regime.OVERHEAD: split.overhead,
    }
    booked = {
        Regime.COMPUTE: account.compute_ns,
        Regime.MEMORY: account.memory_ns,
        Regime.OVERHEAD: account.underfilled_ns,
    }
    open_ = {
        r: uncertainty_by_bound.get(_SIDE[r], 0.0) * booked[r] / account.duration_ns for r in booked
    }
    first, second = sorted(shares, key=lambda r: -shares[r])[:2]
    lead = shares[first] - shares[second]
    overhead_counts = first is Regime.OVERHEAD or (second is Regime.OVERHEAD and lead < MARGIN)
    cause = _cause(account) if overhead_counts else None
    sure = confidence(shares, open_, split.unknown)
    if warming_up or activities < LEAST_ACTIVITIES:
        sure = min(sure, MOST_AT_START)
    if (split.unknown > MOST_UNKNOWN and lead < split.unknown + MARGIN) or sure < FLOOR:
        # What is not known may be anything: it has to be less than what is nearest.
        near = shares[first] > split.unknown
        return Verdict(Regime.UNKNOWN, cause if near else None, sure, first if near else None)
    if lead < MARGIN:
        return Verdict(Regime.MIXED, cause, sure, first)
    return Verdict(first, cause, sure, second)


def confidence(
    shares: Mapping[Regime, float], uncertainty_by_bound: Mapping[Regime, float], unknown: float
) -> float:
    """How sure the verdict is, 0..0.99; never more for more unknown time.

    Clear, as far as a share leads each other one even with all that may belong there; mixed, as far as
    nothing that is open could part the two largest.

    Args:
        shares: Of the wall time.
        uncertainty_by_bound: Part of each share that may belong to another.
        unknown: Share that nobody can class.
    """
    every = sum(uncertainty_by_bound.values())
    clear = max(
        min(shares[r] - shares[o] - (every - uncertainty_by_bound[o]) for o in shares if o is not r)
        for r in shares
    )
    first, second = sorted(shares.values())[:-3:-1]
    by_lead = 0.5 + _CLEAR_SLOPE * (clear - unknown - MARGIN)
    mixed = 0.5 + _MIXED_SLOPE * (MARGIN - (first - second) - every - 2 * unknown)
    return round(min(_MOST, max(0.0, by_lead, mixed)), 3)


def parts_of_overhead(account: Account) -> dict[str, int]:
    return {
        **account.idle_ns,
        "exposed_comm": account.exposed_comm_ns,
        "exposed_copy": account.exposed_copy_ns,
        "underfilled": account.underfilled_ns,
    }


def _cause(account: Account) -> str | None:
    """The largest part of the overhead."""
    parts = parts_of_overhead(account)
    best = max(parts, key=lambda cause: parts[cause])
    return best if parts[best] > 0 else None
