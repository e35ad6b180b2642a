"""A snapshot as a plain report for people: verdict first, 80 columns, no escape codes."""

from collections.abc import Iterator

from brrrtop.model.account import Split
from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import CounterSamples, Estimate, Regime
from brrrtop.model.ranks import JobSnapshot
from brrrtop.model.run import StackSamples
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import causes, headline, phrases, units
from brrrtop.views import code, host_tables, tables
from brrrtop.views import comparison as compare_text
from brrrtop.views import whatif as whatif_text
from brrrtop.views.table import WIDTH, text_lines, wrap
from collectors.vocabulary import Metric

_SIGNS = {"compute": "█", "memory": "▓", "overhead": "░", "unknown": "·"}
_ASCII_SIGNS = {"compute": "C", "memory": "M", "overhead": "o", "unknown": "?"}
_ASCII = str.maketrans(
    {
        "█": "#",
        "·": "-",
        "–": "-",
        "…": "~",
        "≤": "<=",
        "≥": ">=",
        "×": "x",
        "°": "",
        "µ": "u",
        "→": "->",
    }
)
_KINDS = {
    "kineto": "profiler trace",
    "nsys": "Nsight Systems",
    "jax": "XLA profile (JAX, TensorFlow)",
}
"""Of sources, where the kind itself is no word for people."""


def to_text(snapshot: Snapshot, ascii_only: bool = False) -> str:
    signs = _ASCII_SIGNS if ascii_only else _SIGNS
    text = "\n".join(line.rstrip() for line in _lines(snapshot, signs)) + "\n"
    return in_ascii(text) if ascii_only else text


def in_ascii(text: str) -> str:
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def _lines(snapshot: Snapshot, signs: dict[str, str]) -> Iterator[str]:
    estimate = snapshot.estimate
    if snapshot.job is not None:
        yield from job_lines(snapshot.job)
        yield ""
        yield "By itself"
    yield from _heading(snapshot)
    if estimate is None:
        message = phrases.unjudged(snapshot)
        yield ""
        yield from wrap(f"{message[0].upper()}{message[1:]}.", "")
        yield from text_lines(tables.phases(snapshot.run))
    else:
        yield from _judged(snapshot, estimate)
        yield from _verdict(snapshot, estimate, signs)
        yield from _advice(snapshot)
        if snapshot.job is not None:
            yield from text_lines(tables.meetings(snapshot.job))
        yield from _account(estimate)
        yield from text_lines(tables.phases(snapshot.run))
        yield from _launching(estimate)
        yield from text_lines(tables.kernels(estimate))
        yield from text_lines(tables.edits(snapshot))
        for table in host_tables.of_host(snapshot.tables, estimate.account.duration_ns):
            yield from text_lines(table)
        if words := host_tables.queue_words(snapshot.tables):
            yield ""
            yield from wrap(words, "", "  ")
        yield from _comparison_lines(snapshot)
        yield from text_lines(tables.devices(snapshot))
    yield from _counters(snapshot)
    yield from _notes(snapshot)


def job_facts(job: JobSnapshot) -> list[str]:
    some = job.world and job.world != len(job.ranks)
    known = [f"{len(job.ranks)} ranks" + (f" of {job.world}" if some else "")]
    known += [causes.parallel(job)] if job.parallelism else []
    return [
        *known,
        *(f"{units.duration(row.step_ns)} a step if no rank were late" for row in job.whatif),
    ]


def _compared(job: JobSnapshot) -> list[str]:
    steps = f", {job.steps:.0f} steps" if job.steps and job.steps >= 1.5 else ""
    seen = [f"{units.duration(job.together_ns)} seen together{steps}"] if job.together_ns else []
    matched = f"{units.count(job.matched)} collectives matched"
    return [*seen, matched, *filter(None, [causes.transfer(job)])]


def job_lines(job: JobSnapshot) -> Iterator[str]:
    yield from wrap(" · ".join((*job_facts(job), *_compared(job))), "", "  ")
    yield ""
    sentence = causes.sentence(job)
    yield from wrap(sentence[0].upper() + sentence[1:], "", "  ")
    yield from text_lines(tables.ranks(job))
    notes = [note for note in job.notes if note != sentence]
    if notes:
        yield ""
        yield "About the ranks"
    for note in notes:
        yield from wrap(note, "  ")


def _counters(snapshot: Snapshot) -> Iterator[str]:
    """What the GPU itself counted last, with nvidia-smi's figure beside the truth."""
    gauges = snapshot.gauges
    shares = [
        f"{label} {units.share(gauges[metric])}"
        for label, metric in (
            ("SM active", Metric.SM_ACTIVE),
            ("tensor", Metric.TENSOR_ACTIVE),
            ("DRAM", Metric.DRAM_ACTIVE),
            ("nvidia-smi says", Metric.SMI_UTIL),
        )
        if metric in gauges
    ]
    amounts = []
    if Metric.MEMORY_USED_BYTES in gauges:
        total = units.size(gauges.get(Metric.MEMORY_TOTAL_BYTES))
        amounts.append(f"memory {units.size(gauges[Metric.MEMORY_USED_BYTES])} of {total}")
    if Metric.POWER_WATT in gauges:
        amounts.append(f"{gauges[Metric.POWER_WATT]:.0f} W")
    if Metric.TEMPERATURE_C in gauges:
        amounts.append(f"{gauges[Metric.TEMPERATURE_C]:.0f} °C")
    if gauges.get(Metric.FOREIGN_PROCESS_COUNT):
        amounts.append(f"other processes on it: {gauges[Metric.FOREIGN_PROCESS_COUNT]:.0f}")
    if shares or amounts:
        yield ""
        yield "The GPU's own counters, last reading"
        yield from wrap(", ".join((*shares, *amounts)), "  ")


def _heading(snapshot: Snapshot) -> Iterator[str]:
    source, estimate = snapshot.source, snapshot.estimate
    facts = [source.label, _KINDS.get(source.kind, source.kind)]
    if estimate is not None:
        name = estimate.device.name or "GPU of unknown model"
        facts.append(f"{name} (GPU {estimate.device.device_id})")
        if estimate.capability_at_least is not None:
            number = ".".join(map(str, estimate.capability_at_least))
            facts.append(f"by its kernels' names of compute capability {number} or later")
    if source.rank is not None:
        facts.append(f"rank {source.rank}" + (f" of {source.world}" if source.world else ""))
    yield from wrap(" · ".join(facts), "", "  ")


def _judged(snapshot: Snapshot, estimate: Estimate) -> Iterator[str]:
    steps = estimate.steps
    coverage = phrases.coverage(estimate)
    if steps.count and steps.source == "period":
        coverage += " (inferred from the kernel sequence)"
    coverage += ", still warming up" if steps.warming_up else ""
    yield from wrap("; ".join(filter(None, (coverage, phrases.not_judged(snapshot)))), "", "  ")


def _verdict(snapshot: Snapshot, estimate: Estimate, signs: dict[str, str]) -> Iterator[str]:
    yield ""
    if estimate.regime is Regime.UNKNOWN:
        near = (
            f"; nearest: {phrases.badge_of(estimate.runner_up, None)}" if estimate.runner_up else ""
        )
        yield from wrap(f"{phrases.badge(snapshot)}: {phrases.because(estimate)}{near}", "")
    else:
        head = ", ".join(filter(None, (phrases.badge(snapshot), headline.sure(snapshot))))
        yield from wrap(f"{head}: {headline.symptom(snapshot)}{phrases.besides(estimate)}", "")
        if gain := headline.remedy(snapshot):
            yield from wrap(gain[0].upper() + gain[1:], "")
        if phrases.away_at(estimate, estimate.cause or ""):
            yield from wrap(phrases.because(estimate), "")
    yield ""
    yield "  " + split_bar(estimate.split, WIDTH - 4, signs)
    yield "  " + "   ".join(
        f"{sign} {causes.name(name)} {units.share(getattr(estimate.split, name))}"
        for name, sign in signs.items()
    )


def split_bar(split: Split, width: int, signs: dict[str, str]) -> str:
    bar, reached = "", 0.0
    for name, sign in signs.items():
        reached += getattr(split, name)
        bar += sign * (round(min(reached, 1.0) * width) - len(bar))
    return bar.ljust(width)


def _account(estimate: Estimate) -> Iterator[str]:
    account = estimate.account
    yield from text_lines(tables.account(account, estimate.run, estimate.mean_step_ns))
    busy = units.share(account.busy_ns / account.duration_ns if account.duration_ns else None)
    yield f"  The GPU held any work for {busy} of the time."
    if estimate.host_cause_known is not None:
        known = units.share(estimate.host_cause_known)
        yield f"  Of the idle time the host was late for, {known} has a known cause."
    if estimate.stack_samples is not None and account.idle_ns.get("io"):
        yield from wrap(_estimate_line(estimate.stack_samples), "  ")


def _estimate_line(samples: StackSamples) -> str:
    """Where `idle: io` comes from: no probe sees a file being read."""
    low, high = (units.share(share) for share in samples.io_bounds)
    where = "of the window" if samples.within else f"within {units.duration(samples.span_ns)}"
    return (
        f"`idle: io` is an estimate: {samples.io_count} of {samples.count} samples of the main thread"
        f" {where} were in file or network work, which puts its part between {low} and {high}."
    )


def _launching(estimate: Estimate) -> Iterator[str]:
    launch = estimate.launch
    if launch.lead_p50_ns is None:
        return
    lead = units.duration(abs(launch.lead_p50_ns))
    yield ""
    when = "after its launch" if launch.lead_p50_ns >= 0 else "before its launch call returns"
    line = f"Launching: a kernel starts {lead} {when} (median)"
    if launch.share_under_10us is not None:
        line += f"; {units.share(launch.share_under_10us)} of them within 10 µs"
    if launch.rho is not None:
        line += f". {units.share(launch.rho)} of the kernel time was launched in time"
    yield from wrap(line + ".", "")


def _advice(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.advisories:
        yield ""
        yield "What to try"
    wasted: set[str] = set()
    for place, advisory in enumerate(code.with_places(snapshot), 1):
        yield from _advisory(
            place, advisory, advisory.waste if advisory.waste not in wasted else ""
        )
        wasted.add(advisory.waste)
    if snapshot.silenced:
        ids = ", ".join(one.kind for one in snapshot.silenced)
        yield ""
        yield from wrap(f"Advice silenced by --silence: {len(snapshot.silenced)} ({ids})", "")


def _advisory(place: int, advisory: Advisory, waste: str) -> Iterator[str]:
    head = f"{place:>3} {advisory.kind}"
    gain = whatif_text.gain(advisory)
    if gain is not None:
        head += f": {gain}"
    yield f"{head}, {units.share(advisory.confidence)} sure"
    yield from wrap(advisory.says, "    ")
    yield from wrap(advisory.suggests, "    try    ")
    yield from wrap(waste, "    waste  ")


def _comparison_lines(snapshot: Snapshot) -> Iterator[str]:
    base, comparison = snapshot.baseline, snapshot.comparison
    if base is None:
        return
    yield ""
    yield "Before and after"
    if comparison is None:
        yield from wrap(compare_text.waiting(base), "  ")
        return
    yield from compare_text.lines(comparison, base.label, snapshot.source.label)


def _records(count: int, one: str, many: str) -> str:
    return f"1 record {one}" if count == 1 else f"{units.count(count)} records {many}"


def _notes(snapshot: Snapshot) -> Iterator[str]:
    notes = list(snapshot.source.notes)
    estimate = snapshot.estimate
    if snapshot.lost_records:
        notes.append(f"{_records(snapshot.lost_records, 'was', 'were')} lost on the way.")
    if snapshot.zero_timestamps:
        notes.append(f"{_records(snapshot.zero_timestamps, 'carried', 'carried')} no time.")
    if estimate is not None and estimate.account.unrecorded_ns:
        why = phrases.unrecorded(estimate.account)
        notes.append(f"{why[0].upper()}{why[1:]}: that time is booked as unknown, not as idle.")
    if estimate is not None and estimate.roofs is None and estimate.device.is_amd:
        name = estimate.device.name
        notes.append(f"No ceilings are known of {name}: its products have a side by shapes alone.")
    if estimate is not None and estimate.sampled is not None:
        notes.append(_samples_line(estimate.sampled, estimate.evidence_shares.get("L3", 0.0)))
    if notes:
        yield ""
        yield "Good to know"
        for note in notes:
            yield from wrap(note, "  ")


def _samples_line(samples: CounterSamples, used: float) -> str:
    taken = f"{units.count(samples.count)} hardware counter samples of"
    taken += f" {units.duration(samples.interval_ns)}"
    if samples.error_ns is None:
        return f"{taken} could not be matched with the kernels, so they judge none."
    return (
        f"{taken}, placed within {units.duration(round(samples.error_ns))} of the kernels, judge"
        f" {units.share(used)} of the kernel time (L3)."
    )
