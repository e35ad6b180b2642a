"""What a run's GPU time went into, and what could be won of it: a slip for a team's channel. Plain text."""

import textwrap
from collections import Counter
from collections.abc import Iterator

from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import Estimate
from brrrtop.model.settings import Settings
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import causes, phrases, units
from brrrtop.text.headline import HOUR_NS, promised

WIDTH = 60
LEAST = 0.005
"""Share from which a cause has a line of its own."""


def lines(snapshot: Snapshot, settings: Settings) -> Iterator[str]:
    """At most 60 columns; without a verdict why there is none."""
    every = estimates(snapshot)
    source = snapshot.source
    yield "brrrtop receipt"
    yield from _wrap(source.cmdline or source.label, "  ")
    if not every:
        yield from _wrap(phrases.unjudged(snapshot), "  ")
        return
    names = Counter(one.device.name or "GPU of unknown model" for one in every)
    yield from _wrap(", ".join(f"{count} × {name}" for name, count in names.items()), "  ")
    yield "-" * WIDTH
    whole_ns, spent = totals(every)
    yield _row("GPU time", 1.0, whole_ns, settings)
    for bucket, ns in spent.most_common():
        if ns >= LEAST * whole_ns:
            yield _row(f"  {causes.name(bucket)}", ns / whole_ns, ns, settings)
    yield "-" * WIDTH
    first = next((one for one in snapshot.advisories if promised(one)), None)
    if first is None:
        yield "nothing known here wins 5% of it"
        return
    saves = first.saves if first.saves is not None else first.saves_at_most or 0.0
    yield _row(
        "could be won" if first.saves is not None else "could be won, at most",
        saves,
        saves * whole_ns,
        settings,
    )
    yield from _wrap(first.suggests, "  ")
    if place := line_of(first):
        yield from _wrap(f"at {place}", "  ")


def estimates(snapshot: Snapshot) -> list[Estimate]:
    """Of all ranks of a job, else of all GPUs."""
    if snapshot.job is not None:
        return [row.estimate for row in snapshot.job.ranks if row.estimate is not None]
    return list(snapshot.devices or ((snapshot.estimate,) if snapshot.estimate else ()))


def totals(every: list[Estimate]) -> tuple[int, Counter[str]]:
    """The time of all GPUs together, and what it went into by bucket."""
    spent: Counter[str] = Counter()
    for one in every:
        spent.update(dict(phrases.buckets(one.account)))
    return max(1, sum(one.account.duration_ns for one in every)), spent


def shares(snapshot: Snapshot) -> list[tuple[str, float]]:
    whole_ns, spent = totals(estimates(snapshot))
    return [(bucket, ns / whole_ns) for bucket, ns in spent.most_common()]


def line_of(advisory: Advisory) -> str:
    """The line of the user's code that the advice speaks of; empty where none is known."""
    lines = advisory.evidence.get("lines") or ()
    line = str(advisory.evidence.get("line") or (lines[0] if lines else ""))
    return line.partition(" | ")[0]


def _row(name: str, share: float, ns: float, settings: Settings) -> str:
    hours = ns / HOUR_NS
    amount = f"{hours:.1f} GPU-h" if hours >= 0.095 else units.clock(ns)
    return f"{name:<26}{units.share(share):>7}{amount:>13}{settings.money(ns):>14}".rstrip()


def _wrap(text: str, lead: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=lead, subsequent_indent=lead)
