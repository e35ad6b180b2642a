"""The ranks of a job as JSON fields and as plain text. Computes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from brrrtop.kernel_names.readable import fitted
from brrrtop.model.ranks import CollectiveRow, JobSnapshot, RankRow
from brrrtop.model.vocabulary import Metric
from brrrtop.text import ranks as words
from brrrtop.text import units

WIDTH = 80
_SPLIT = ("compute", "memory", "overhead", "unknown")
_COLLECTIVES_SHOWN = 6
GAUGES = {
    "memory_used_bytes": Metric.MEMORY_USED_BYTES,
    "power_watt": Metric.POWER_WATT,
    "temperature_c": Metric.TEMPERATURE_C,
}


def document(job: JobSnapshot) -> dict[str, Any]:
    """The report's fields about ranks; `null` for what nobody measured."""
    waited = job.waited_for
    return {
        "ranks": [_row(row) for row in job.ranks],
        "peers_waited_for": None
        if waited is None
        else {
            "rank": waited.rank,
            "late_by_ms": waited.late_ns / 1e6,
            "others_wait_ms": waited.others_wait_ns / 1e6,
            "cause": waited.cause,
            "place": waited.place,
            "slow": waited.is_slow,
            "per_step": waited.per_step,
            "last_in": waited.last_in,
            "collectives": waited.of,
            "says": words.sentence(job),
        },
        "collectives": [_collective(row) for row in job.collectives],
        "job": {
            "world": job.world,
            "says": words.sentence(job),
            "parallelism": [one.value for one in job.parallelism],
            "bubble": job.bubble,
            "collectives": job.matched,
            "transfer_ms": _ms(job.transfer_ns),
            "together_ms": _ms(job.together_ns),
            "steps": job.steps,
            "bursts": job.bursts,
            "notes": list(job.notes),
        },
    }


def _ms(time_ns: float | None) -> float | None:
    return None if time_ns is None else time_ns / 1e6


def _row(row: RankRow) -> dict[str, Any]:
    estimate = row.estimate
    split = estimate.split if estimate else None
    return {
        "rank": row.rank,
        "pid": row.pid,
        "device_id": estimate.device.device_id if estimate else None,
        "step_ms": _ms(row.step_ns),
        "split": {name: getattr(split, name) if split else None for name in _SPLIT},
        "waits_for_peers": row.waits_for_peers,
        "late_by_ms": _ms(row.late_ns),
        "label": row.label,
        "why": row.why,
        "regime": estimate.regime.value if estimate else None,
        "cause": estimate.cause if estimate else None,
        "late_because": row.cause,
        "collectives": row.matched,
        "last_in": row.last_in,
        "in_collectives_ms": _ms(row.collective_ns),
        "transfer_ms": _ms(row.transfer_ns),
        "wait_ms": _ms(row.wait_ns),
        "exposed_wait_ms": _ms(row.exposed_wait_ns),
        "waits_for": {str(rank): ns / 1e6 for rank, ns in sorted(row.waits_for.items())},
        "carried_in_ms": _ms(row.carried_in_ns),
        "grown_ms": {bucket: ns / 1e6 for bucket, ns in row.grown.items()},
        "clock_offset_ns": row.clock_offset_ns,
        **{key: row.gauges.get(metric) for key, metric in GAUGES.items()},
    }


def _collective(row: CollectiveRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "algorithm": row.algorithm,
        "ranks": list(row.ranks),
        "count": row.count,
        "size_bytes": row.size_bytes,
        "transfer_ms": row.transfer_ns / 1e6,
        "wait_ms": row.wait_ns / 1e6,
        "bus_bytes_per_s": row.bus_bytes_per_s,
        "link_share": row.link_share,
    }


def lines(job: JobSnapshot) -> Iterator[str]:
    """The job as text of 80 columns, the odd rank on top."""
    yield from _wrap(_headline(job), "  ")
    yield ""
    sentence = words.sentence(job)
    yield from _wrap(sentence[0].upper() + sentence[1:], "  ")
    yield ""
    yield from _ranks(job)
    yield from _collectives(job)
    notes = [note for note in job.notes if note != sentence]
    notes += [f"{words.name(row)}: {row.why}" for row in job.ranks if row.why]
    if notes:
        yield ""
        yield "About the ranks"
    for note in notes:
        yield from _wrap(note, "  ", "  ")


def _headline(job: JobSnapshot) -> str:
    facts = [f"{len(job.ranks)} ranks" + (f" of {job.world}" if job.world else "")]
    if job.together_ns:
        steps = f", {job.steps:.0f} steps" if job.steps and job.steps >= 1 else ""
        facts.append(f"{units.duration(job.together_ns)} seen together{steps}")
    matched = f"{units.count(job.matched)} collectives matched"
    if job.transfer_ns is not None:
        matched += f", their transfer {units.duration(job.transfer_ns)} in all"
    facts.append(matched)
    divided = words.parallel(job)
    return " · ".join([*facts, divided] if divided else facts)


def _ranks(job: JobSnapshot) -> Iterator[str]:
    yield "  rank gpu      step  comp  mem over    waits     late in coll.     wait last in"
    for row in job.ranks:
        yield rank_line(row)
    yield "  waits: of the time, for peers with no kernel beside it. late: by its own work,"
    yield "  a step. in coll., wait: in all, and the part before the last rank was there."


def rank_line(row: RankRow) -> str:
    """One rank in a line of 80 columns."""
    number = "–" if row.rank is None else str(row.rank)
    if row.estimate is None:
        return f"  {number:>4} {fitted(row.label, 24)}: {row.why or 'nothing to judge yet'}"[:WIDTH]
    split = row.estimate.split
    shares = f"{units.share(split.compute):>5}{units.share(split.memory):>5}{units.share(split.overhead):>5}"
    last = f"{row.last_in}/{row.matched}" if row.matched else units.UNMEASURED
    return (
        f"  {number:>4}{row.estimate.device.device_id:>4}{units.duration(row.step_ns):>10} {shares}"
        f"{units.share(row.waits_for_peers):>9}{units.duration(row.late_ns):>9}"
        f"{units.duration(row.collective_ns):>9}{units.duration(row.wait_ns):>9} {last:>7}"
    )


def _collectives(job: JobSnapshot) -> Iterator[str]:
    if not job.collectives:
        return
    yield ""
    yield "Collectives by time       ranks count     size transfer     wait       bus  link"
    for row in job.collectives[:_COLLECTIVES_SHOWN]:
        name = f"{row.name}" + (f" ({row.algorithm})" if row.algorithm else "")
        yield (
            f"  {name:<25}{len(row.ranks):>4}{row.count:>6}{units.size(row.size_bytes):>9}"
            f"{units.duration(row.transfer_ns):>9}{units.duration(row.wait_ns):>9}"
            f"{units.rate(row.bus_bytes_per_s, 'B/s'):>10}{units.share(row.link_share):>6}"
        )
    rest = job.collectives[_COLLECTIVES_SHOWN:]
    if rest:
        count = sum(row.count for row in rest)
        yield f"  and {units.count(count)} more of {len(rest)} kinds"


def _wrap(text: str, indent: str, lead: str = "") -> list[str]:
    return wrap(text, WIDTH, initial_indent=lead, subsequent_indent=indent, break_on_hyphens=False)
