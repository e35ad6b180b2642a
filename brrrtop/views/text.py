"""A snapshot as a plain report for people: verdict first, 80 columns, no escape codes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from brrrtop.kernel_names.readable import told_apart
from brrrtop.model.account import Split
from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import CounterSamples, Estimate, KernelRow, Regime, StackSamples
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases, units
from brrrtop.views import comparison as compare_text
from brrrtop.views import ranks as ranks_text
from brrrtop.views import run as run_view
from brrrtop.views import tables
from brrrtop.views import whatif as whatif_text
from collectors.vocabulary import Metric

WIDTH = 80
_BAR_WIDTH = 28
_KERNELS_SHOWN = 12
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
    """The report, ending in a newline."""
    signs = _ASCII_SIGNS if ascii_only else _SIGNS
    text = "\n".join(line.rstrip() for line in _lines(snapshot, signs)) + "\n"
    return in_ascii(text) if ascii_only else text


def in_ascii(text: str) -> str:
    """The report without anything beyond ASCII."""
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def _lines(snapshot: Snapshot, signs: dict[str, str]) -> Iterator[str]:
    estimate = snapshot.estimate
    if snapshot.job is not None:
        yield from ranks_text.lines(snapshot.job)
        yield ""
        yield "By itself"
    yield from _heading(snapshot)
    if estimate is None:
        says = phrases.unjudged(snapshot)
        yield ""
        yield from _wrap(f"{says[0].upper()}{says[1:]}.", "")
    else:
        yield from _judged(snapshot, estimate)
        yield from _verdict(estimate, signs)
        yield from _advice(snapshot)
        yield from _account(estimate)
        if snapshot.run is not None:
            yield from run_view.lines(snapshot.run)
        yield from _launching(estimate)
        yield from _kernels(estimate)
        if snapshot.whatif:
            yield ""
            yield from whatif_text.lines(snapshot)
        yield from tables.lines(snapshot.tables, estimate.account.duration_ns)
        yield from _comparison_lines(snapshot)
        yield from _other_devices(snapshot)
    yield from _counters(snapshot)
    yield from _notes(snapshot)


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
        yield from _wrap(", ".join((*shares, *amounts)), "  ")


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
    yield from _wrap(" · ".join(facts), "")


def _judged(snapshot: Snapshot, estimate: Estimate) -> Iterator[str]:
    steps = estimate.steps
    judged = phrases.judged(estimate)
    if steps.count and steps.source == "period":
        judged += " (inferred from the kernel sequence)"
    judged += ", still warming up" if steps.warming_up else ""
    yield from _wrap("; ".join(filter(None, (judged, phrases.not_judged(snapshot)))), "")


def _verdict(estimate: Estimate, signs: dict[str, str]) -> Iterator[str]:
    yield ""
    sure = units.share(estimate.confidence)
    if estimate.regime is Regime.UNKNOWN:
        near = f"; nearest: {estimate.runner_up}" if estimate.runner_up else ""
        yield from _wrap(f"{phrases.verdict(estimate)}: {phrases.because(estimate)}{near}", "")
    else:
        line = f"{phrases.verdict(estimate)}, {sure} sure: {phrases.because(estimate)}"
        line += phrases.besides(estimate)
        yield from _wrap(line, "")
    yield ""
    yield "  " + split_bar(estimate.split, WIDTH - 4, signs)
    yield "  " + "   ".join(
        f"{sign} {name} {units.share(getattr(estimate.split, name))}"
        for name, sign in signs.items()
    )


def split_bar(split: Split, width: int, signs: dict[str, str]) -> str:
    """`width` characters divided among the four shares; whatever is there gets at least its rounding."""
    bar, reached = "", 0.0
    for name, sign in signs.items():
        reached += getattr(split, name)
        bar += sign * (round(min(reached, 1.0) * width) - len(bar))
    return bar.ljust(width)


def _account(estimate: Estimate) -> Iterator[str]:
    account = estimate.account
    whole = account.duration_ns
    rows = [(key, time_ns) for key, time_ns in phrases.buckets(account) if time_ns]
    yield ""
    yield f"{'Where the time went':<51}{'share':>8}{'time':>11}"
    for key, time_ns in sorted(rows, key=lambda row: -row[1]):
        part = time_ns / whole
        bar = "█" * round(part * _BAR_WIDTH)
        times = f"{units.share(part, 1):>8}{units.duration(time_ns):>11}"
        yield f"  {phrases.bucket(key):<21}{bar:<{_BAR_WIDTH}}{times}"
    busy = units.share(account.busy_ns / whole if whole else None, 1)
    yield f"  The GPU held any work for {busy} of the time."
    if estimate.host_cause_known is not None:
        known = units.share(estimate.host_cause_known)
        yield f"  Of the idle time the host was late for, {known} has a known cause."
    if estimate.looks is not None and account.idle_ns.get("io"):
        yield from _wrap(_estimate_line(estimate.looks), "  ")


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
        line += f". Faster kernels could shorten {units.share(launch.rho)} of the kernel time"
    yield from _wrap(line + ".", "")


def _kernels(estimate: Estimate) -> Iterator[str]:
    if not estimate.kernels:
        return
    yield ""
    yield f"{'Kernels by time':<39}side  by     roof  count      mean  share"
    some = estimate.kernels[:_KERNELS_SHOWN]
    for name, row in zip(told_apart([row.name for row in some], 36), some, strict=True):
        yield _kernel(name, row)
    rest = estimate.kernels[_KERNELS_SHOWN:]
    if rest:
        yield f"  and {len(rest)} more with {units.share(sum(row.share for row in rest))}"
    yield "  C compute, M memory, U underfilled, X collective, x copy from or to the host;"
    yield "  by: evidence level; roof: its rate over its side's ceiling of the datasheet;"
    yield "  share: of kernel time"


def _kernel(name: str, row: KernelRow) -> str:
    letter = phrases.SIDE_LETTERS[row.side]
    figures = f"{units.count(row.count):>7}{units.duration(row.mean_ns):>10}"
    roof = units.share(row.roof_share)
    return f"  {name:<37} {letter}   {row.evidence:<6}{roof:>5}{figures}{units.share(row.share):>7}"


def _advice(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.advisories:
        yield ""
        yield "What to try"
    wasted: set[str] = set()
    for place, advisory in enumerate(snapshot.advisories, 1):
        yield from _advisory(
            place, advisory, advisory.waste if advisory.waste not in wasted else ""
        )
        wasted.add(advisory.waste)
    if snapshot.silenced:
        ids = ", ".join(one.kind for one in snapshot.silenced)
        yield ""
        yield from _wrap(f"Advice silenced by --silence: {len(snapshot.silenced)} ({ids})", "")


def _advisory(place: int, advisory: Advisory, waste: str) -> Iterator[str]:
    head = f"{place:>3} {advisory.kind}"
    gain = whatif_text.gain(advisory)
    if gain is not None:
        head += f": {gain}"
    yield f"{head}, {units.share(advisory.confidence)} sure"
    yield from _wrap(advisory.says, "    ")
    yield from _wrap(advisory.suggests, "    try    ")
    yield from _wrap(waste, "    waste  ")


def _comparison_lines(snapshot: Snapshot) -> Iterator[str]:
    base, comparison = snapshot.baseline, snapshot.comparison
    if base is None:
        return
    yield ""
    yield "Before and after"
    if comparison is None:
        yield from _wrap(compare_text.waiting(base), "  ")
        return
    yield from compare_text.lines(comparison, base.label, snapshot.source.label)


def _other_devices(snapshot: Snapshot) -> Iterator[str]:
    if len(snapshot.devices) < 2:
        return
    yield ""
    yield f"{'All GPUs':<28}compute  memory  overhead  unknown"
    for one in snapshot.devices:
        split = one.split
        name = f"GPU {one.device.device_id} {one.regime}"
        shares = f"{units.share(split.compute):>7}{units.share(split.memory):>8}"
        yield f"  {name:<26}{shares}{units.share(split.overhead):>10}{units.share(split.unknown):>9}"


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
            yield from _wrap(note, "  ")


def _samples_line(samples: CounterSamples, judged: float) -> str:
    taken = f"{units.count(samples.count)} hardware counter samples of"
    taken += f" {units.duration(samples.interval_ns)}"
    if samples.error_ns is None:
        return f"{taken} could not be matched with the kernels, so they judge none."
    return (
        f"{taken}, placed within {units.duration(round(samples.error_ns))} of the kernels, judge"
        f" {units.share(judged)} of the kernel time (L3)."
    )


def _wrap(text: str, lead: str) -> Iterator[str]:
    """`text` on lines of at most `WIDTH`; the first begins with `lead`, the others line up with it."""
    if not text:
        return
    clean = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    yield from textwrap.wrap(
        clean,
        WIDTH,
        initial_indent=lead,
        subsequent_indent=" " * len(lead) if lead else "  ",
        break_on_hyphens=False,
    )
