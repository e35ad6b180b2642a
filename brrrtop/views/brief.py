"""The report as a note: thirty lines to act upon, for a person or a language model; and a receipt of what
a run's GPU time went into, for a team's channel.
"""

import textwrap
from collections import Counter
from collections.abc import Iterator

from brrrtop.kernel_names.readable import distinct_names
from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import Estimate
from brrrtop.model.snapshot import Settings, Snapshot
from brrrtop.text import causes, phrases, units
from brrrtop.text.headline import HOUR_NS, headline_text, promised, sure
from brrrtop.views import whatif as whatif_text
from brrrtop.views.host_tables import merge_siblings

MOST_LINES = 30
_WIDTH = 100
_ADVICE, _KERNELS, _STALLS, _EDITS = 3, 4, 2, 4
_LEAST = 0.01


def to_brief(snapshot: Snapshot) -> str:
    """At most `MOST_LINES` lines, ending in a newline. What is cut is cut whole, the least first."""
    lines = [textwrap.shorten(line, 3 * _WIDTH, placeholder=" …") for line in _lines(snapshot)]
    return "\n".join(lines[:MOST_LINES]) + "\n"


def _lines(snapshot: Snapshot) -> Iterator[str]:
    estimate = snapshot.estimate
    if estimate is None:
        yield f"no verdict: {phrases.unjudged(snapshot)}"
        return
    yield from _verdict(snapshot, estimate)
    yield from _lost_time(estimate)
    for place, advisory in enumerate(snapshot.advisories[:_ADVICE], 1):
        gain = whatif_text.gain(advisory)
        sure = f"{units.share(advisory.confidence)} sure"
        yield f"try {place}: {advisory.kind} ({', '.join(filter(None, (gain, sure)))}): {advisory.says}"
        yield f"  do: {advisory.suggests}" if advisory.suggests else "  do: nothing"
    edits = [
        f"{row.edit} {speed} ({between})"
        for row in whatif_text.ordered(snapshot)
        for speed, between in [whatif_text.speeds(row)]
    ]
    if edits:
        yield f"simulated speed with the edit: {', '.join(edits[:_EDITS])}"
    waste = next((one.waste for one in snapshot.advisories if one.waste), None)
    if waste:
        yield f"a waste of time: {waste}"
    yield from _places(snapshot, estimate)
    if snapshot.source.notes:
        yield f"note: {snapshot.source.notes[0]}"


def _verdict(snapshot: Snapshot, estimate: Estimate) -> Iterator[str]:
    name = estimate.device.name or "unknown GPU"
    yield f"source: {snapshot.source.label}, {name}, {phrases.coverage(estimate)}"
    badge, headline = phrases.badge(snapshot), headline_text(snapshot)
    badge += f" ({sure(snapshot)})" if sure(snapshot) else ""
    yield f"verdict: {badge}: {headline or phrases.because(estimate)}"
    if headline and phrases.away_at(estimate, estimate.cause or ""):
        yield phrases.because(estimate)
    if snapshot.left_out:
        yield phrases.not_judged(snapshot)
    split = estimate.split
    shares = (
        f"{causes.name(name)} {units.share(getattr(split, name))}"
        for name in ("compute", "memory", "overhead", "unknown")
    )
    yield f"split of wall time: {', '.join(shares)}"


def _lost_time(estimate: Estimate) -> Iterator[str]:
    whole = estimate.account.duration_ns
    rows = sorted(((ns, key) for key, ns in phrases.buckets(estimate.account)), reverse=True)
    named = [
        f"{causes.name(key)} {units.share(ns / whole)}" for ns, key in rows if ns > _LEAST * whole
    ]
    yield f"where the time went: {', '.join(named)}"


def _places(snapshot: Snapshot, estimate: Estimate) -> Iterator[str]:
    tables = snapshot.tables
    for stall in [row for row in tables.stalls if row.share >= _LEAST][:_STALLS]:
        inside = f" in {stall.inside}" if stall.inside else ""
        yield f"GPU idle {units.share(stall.share)} while the host was at {stall.place}{inside}"
    leaves = sorted(merge_siblings(tables.modules), key=lambda row: -row.device_self_ns)[:3]
    if leaves:
        named = (f"{row.name} {units.duration(row.device_self_ns)}" for row in leaves)
        yield f"modules by own GPU time: {', '.join(named)}"
    some = estimate.kernels[:_KERNELS]
    for name, row in zip(distinct_names([row.name for row in some], 60), some, strict=True):
        roof = f", {units.share(row.roof_share)} of its roof" if row.roof_share is not None else ""
        yield (
            f"kernel {units.share(row.share)}: {name}, {phrases.SIDES[row.side]}{roof},"
            f" {units.count(row.count)} × {units.duration(row.mean_ns)}"
        )
    if tables.memory is not None:
        yield f"memory: {units.size(tables.memory.peak_bytes)} in use at the peak"


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
