"""Advice that several ranks beside each other make possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from brrrtop.model.advice import Advisory
from brrrtop.text import units

if TYPE_CHECKING:
    from brrrtop.model.ranks import JobSnapshot

ALONE = "; one rank alone cannot tell a slow link from a late peer"
_MANY_STEPS = 3


def advise_job(job: JobSnapshot, silenced: frozenset[str] = frozenset()) -> JobSnapshot:
    """The job with its advice and what-ifs."""
    from brrrtop.whatif.ranks import peers_in_step

    row = peers_in_step(job)
    given = straggler(job)
    return replace(
        job,
        advisories=(given,) if given is not None and given.kind not in silenced else (),
        whatif=(row,) if row is not None else (),
    )


def straggler(job: JobSnapshot) -> Advisory | None:
    """One rank that the others wait for in every step."""
    from brrrtop.text import ranks as words  # one rank alone, which most are, has no use for these
    from brrrtop.whatif.ranks import peers_in_step

    waited = job.waited_for
    if waited is None or not waited.is_slow:
        return None
    gain = waited.gain or 0.0
    row = next((one for one in job.whatif if one.edit == "peers-in-step"), None) or peers_in_step(
        job
    )
    return Advisory(
        kind="straggler",
        says=words.sentence(job),
        confidence=0.95 if (job.steps or 0) >= _MANY_STEPS else 0.8,
        saves_at_most=round(row.saves_high if row else gain, 4),
        evidence={
            "rank": waited.rank,
            "cause": waited.cause,
            "late_ms": waited.late_ns / 1e6,
            "others_wait_ms": waited.others_wait_ns / 1e6,
            "last_in": waited.last_in,
            "collectives": waited.of,
        },
        suggests=words.fix(waited),
        waste="a faster link or larger buckets: the others wait for that rank, not for the wire",
        saves=round(gain, 4),
        saves_low=round(row.saves_low if row else gain, 4),
    )


def beside_peers(given: Sequence[Advisory], job: JobSnapshot) -> tuple[Advisory, ...]:
    """A rank's own advice, now that its peers are known: exposed communication is told from waiting."""
    if not job.together_ns:
        return tuple(given)
    kept = []
    for one in given:
        if one.kind == "exposed-communication":
            if job.waited_for is not None and job.waited_for.is_slow:
                continue
            moved = f"; {units.duration(job.transfer_ns)} of it is transfer on every rank"
            one = replace(one, says=one.says.replace(ALONE, moved if job.transfer_ns else ""))
        kept.append(one)
    return tuple(kept)
