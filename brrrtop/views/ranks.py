"""The ranks of a job as plain text. Computes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from brrrtop.kernel_names.readable import fitted
from brrrtop.model.ranks import JobSnapshot, RankRow
from brrrtop.text import ranks as words
from brrrtop.text import units

WIDTH = 80
_COLLECTIVES_SHOWN = 6


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
        matched += f", their {words.transfer(job)}"
    facts.append(matched)
    divided = words.parallel(job)
    return " · ".join([*facts, divided] if divided else facts)


def _ranks(job: JobSnapshot) -> Iterator[str]:
    yield "  rank gpu      step  comp  mem over    waits     late in coll.     wait last in"
    for row in job.ranks:
        yield rank_line(row)
    if job.missing:
        yield "  last in: of the ranks given; waits: at least."
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
