"""Screens that are only read: the run in figures (phases, what is known twice, the account, steps, launches,
the GPU's counters), the log, the loader, the report's tables.
"""

from collections.abc import Iterator

from rich.text import Text

from brrrtop.model.account import IDLE_CAUSES
from brrrtop.model.estimate import Estimate
from brrrtop.model.run import Run
from brrrtop.model.snapshot import Snapshot
from brrrtop.model.tables import percentile
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import throttle, why_unjudged
from brrrtop.tui.renderables.history import sparkline
from brrrtop.tui.renderables.line import facts, meter, paragraph, stacked
from brrrtop.tui.renderables.table import table_lines
from brrrtop.tui.widgets.pane import Scrolled
from brrrtop.tui.widgets.side import log_lines, whole
from brrrtop.views import host_tables, tables
from collectors.vocabulary import Metric

SOURCES = {
    "marks": "from the optimizer",
    "annotations": "from annotations",
    "period": "from the kernels' period",
}
LEAST_STEPS = 20
"""Of fewer the slowest hundredth says nothing."""
IN_TIME_NS = 10_000
"""A launch this long before its kernel starts hides its own cost (`model.Launch`)."""
WAITS = frozenset(IDLE_CAUSES) - {"device", "other_process", "unknown"}
"""Causes of idle time for which the host is late."""
LABEL, BAR, TREND = 22, 24, 40


class Details(Scrolled):
    topic = "the run in figures"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        run, estimate, palette = snapshot.run, snapshot.estimate, self.palette
        sections: list[tuple[str, list[Text]]] = []
        if run is not None:
            phases = tables.phases(run)
            body = table_lines(phases, palette, width) if phases.rows else []
            sections.append(("phases", body))
            sections.append(("known twice", _facts(witness(run), palette, width)))
        if estimate is not None:
            sections.append(("where the time went", account_lines(estimate, palette, width)))
            sections.append(
                ("traced steps", _facts(step_facts(snapshot, estimate), palette, width))
            )
            sections.append(("launches", _facts(launch_facts(estimate), palette, width)))
        sections.append(("the GPU's own counters", counter_lines(snapshot, palette, width)))
        lines: list[Text] = []
        for title, body in sections:
            if body:
                lines += [
                    *([Text()] if lines else []),
                    palette.text(title, "compute", bold=True),
                    *body,
                ]
        if estimate is None:
            muted = palette.style("muted")
            lines += [Text(), *paragraph(why_unjudged(snapshot), width, muted)]
        return stacked(lines, width)


def _facts(entries: Iterator[tuple[str, str]], palette: Palette, width: int) -> list[Text]:
    return facts(entries, LABEL, palette, width)


def witness(run: Run) -> Iterator[tuple[str, str]]:
    """What two sources say of the same."""
    of = run.witness
    for name, one, other, first, second, form in (
        ("GPU active", of.active_counter, of.active_account, "its counter", "traced kernels", units.share),
        ("a step without waits", of.step_ns_marks, of.step_ns_traced, "all steps", "traced steps",
         units.duration),
        ("training's waits", of.waits_ledger, of.waits_account, "the loop", "the idle GPU", units.share),
    ):  # fmt: skip
        if one is not None or other is not None:
            yield name, f"{form(one)} by {first}, {form(other)} by {second}"


def account_lines(estimate: Estimate, palette: Palette, width: int) -> list[Text]:
    table = tables.account(estimate.account, estimate.run, estimate.mean_step_ns)
    lines = table_lines(table, palette, width)
    if estimate.host_cause_known is not None:
        known = units.share(estimate.host_cause_known)
        words = f"  {known} of the idle time that the host is late for has a known cause"
        lines.append(palette.text(words, "muted"))
    return lines


def step_facts(snapshot: Snapshot, estimate: Estimate) -> Iterator[tuple[str, str]]:
    """Their usual length, their spread, and where they are known from."""
    steps = estimate.steps
    if steps.step_ns is None:
        yield "steps", f"{units.UNMEASURED} no steps seen"
        return
    where = SOURCES.get(steps.source or "", steps.source or "")
    doubt = "" if steps.confidence >= 0.7 else f", {units.share(steps.confidence)} sure"
    yield "count", f"{phrases.steps_judged(estimate) or 'none whole'}, {where}{doubt}"
    yield "median", units.duration(steps.step_ns)
    every = sorted(ns for point in snapshot.history for ns in point.steps_ns)
    if len(every) >= LEAST_STEPS:
        half, most = (units.duration(percentile(every, share)) for share in (0.5, 0.99))
        yield "recent", f"{half} for half of them, {most} for 99%"


def launch_facts(estimate: Estimate) -> Iterator[tuple[str, str]]:
    """Whether the CPU runs ahead of the GPU."""
    launch = estimate.launch
    if launch.lead_p50_ns is None:
        yield "launches", f"{units.UNMEASURED} no launch records"
        return
    if launch.rho is not None:
        yield (
            "the host",
            (
                f"{host_word(launch.lead_p50_ns, launch.rho, _wait_share(estimate))}; "
                f"{units.share(launch.rho)} of the kernel time was launched in time"
            ),
        )
    yield "lead", f"a kernel starts {units.duration(launch.lead_p50_ns)} after its launch (median)"
    if launch.share_under_10us is not None:
        yield (
            "late",
            f"{units.share(launch.share_under_10us)} of launches came less than 10 µs before their kernel",
        )


def _wait_share(estimate: Estimate) -> float:
    """Share of the time in which the GPU waited for the host."""
    account = estimate.account
    late_ns = sum(ns for cause, ns in account.idle_ns.items() if cause in WAITS)
    return late_ns / account.duration_ns if account.duration_ns else 0.0


def host_word(lead_p50_ns: int, rho: float, waited: float = 0.0) -> str:
    """Whether the host runs ahead, by most launches and by most of the kernel time.

    Args:
        waited: Share of the time in which the GPU waited for the host: one that is ahead once it has
            its batch, and away for most of the time, does not run ahead.
    """
    most_launches, most_time = lead_p50_ns >= IN_TIME_NS, rho >= 0.5
    if most_launches and most_time:
        return "runs ahead" if waited < 0.5 else "runs ahead between waits"
    return "keeps up at times" if most_launches or most_time else "is late"


def counter_lines(snapshot: Snapshot, palette: Palette, width: int) -> list[Text]:
    gauges = snapshot.gauges
    if not gauges:
        live = snapshot.source.kind == "live"
        words = "no counter has been read yet" if live else "this source has no counters"
        return _facts(iter([("counters", words)]), palette, width)
    lines = []
    for label, metric, hue in (
        ("SMs active", Metric.SM_ACTIVE, "good"),
        ("tensor cores", Metric.TENSOR_ACTIVE, "compute"),
        ("DRAM", Metric.DRAM_ACTIVE, "memory"),
        ("nvidia-smi says", Metric.SMI_UTIL, "muted"),
    ):
        text = palette.text(f"{label:>{LABEL}}  ", "muted")
        text.append_text(meter(gauges.get(metric), palette, BAR, hue))
        text.append(f" {units.share(gauges.get(metric)):>4}  ", palette.style("text", bold=True))
        trend = snapshot.gauge_history.get(metric, ())
        if len(trend) > 1 and metric is not Metric.SMI_UTIL:
            text.append_text(sparkline(trend, palette, min(TREND, len(trend)), hue))
        lines.append(text)
    return lines + _facts(limits(snapshot), palette, width)


def limits(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    gauges = snapshot.gauges
    for label, used, total, form in (
        ("memory", Metric.MEMORY_USED_BYTES, Metric.MEMORY_TOTAL_BYTES, units.size),
        ("power", Metric.POWER_WATT, Metric.POWER_LIMIT_WATT, "{:.0f} W".format),
        ("temperature", Metric.TEMPERATURE_C, None, "{:.0f} °C".format),
        ("clock", Metric.SM_CLOCK_HZ, Metric.SM_CLOCK_MAX_HZ, lambda hz: units.rate(hz, "Hz")),
    ):
        if used in gauges:
            most = f" of {form(gauges[total])}" if total is not None and total in gauges else ""
            yield label, f"{form(gauges[used])}{most}"
    reason = throttle(gauges.get(Metric.CLOCK_EVENT_REASONS))
    if reason is not None:
        yield "clocks held down by", "nothing" if reason == "none" else reason


NO_TABLES = (
    "Nothing to show: neither ops nor ranges nor memory were recorded here. Live, o records the ops of "
    "one step; a trace of torch.profiler has them, with modules where it was asked for (with_modules)."
)
MOST = 40
"""Rows of one table on the screen."""
MORE_ROWS = "All rows: brrrtop analyze FILE --json, or --export csv"
NO_LOADER = (
    "No wait for a loader was recorded. Waits are marked where the loop draws from a torch DataLoader "
    "while an agent is in the trainer, and in traces of torch.profiler that have its ranges."
)


class Log(Scrolled):
    topic = "log, newest first"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        muted = self.palette.style("muted")
        lines = log_lines(snapshot.events, snapshot.now_ns, self.palette, width)
        return lines or paragraph("Nothing has changed so far.", width, muted)


class Loaders(Scrolled):
    topic = "loader"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        if snapshot.tables.loaders:
            return whole(snapshot, self.palette, width)
        words = why_unjudged(snapshot) if snapshot.estimate is None else NO_LOADER
        return paragraph(words, width, self.palette.style("muted"))


class Tables(Scrolled):
    topic = "ops, modules and memory"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        muted = self.palette.style("muted")
        if snapshot.estimate is None:
            return paragraph(why_unjudged(snapshot), width, muted)
        lines: list[Text] = []
        for table in host_tables.of_host(snapshot.tables, snapshot.estimate.account.duration_ns):
            if table.rows:
                lines += [self.palette.text(table.title, "compute", bold=True)]
                lines += table_lines(table, self.palette, width, most=MOST)
                lines += [*paragraph(" ".join(table.notes), width, muted), Text()]
        if words := host_tables.queue_words(snapshot.tables):
            lines += [*paragraph(words, width, self.palette.style("text")), Text()]
        return stacked([*lines, *paragraph(MORE_ROWS if lines else NO_TABLES, width, muted)], width)
