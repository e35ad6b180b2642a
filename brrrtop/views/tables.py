"""The tables of a report: kernels, phases, edits, ranks, ops and so on, as every view draws them."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from brrrtop.kernel_names import readable
from brrrtop.model.account import Account
from brrrtop.model.advice import Change, Comparison, WhatIf
from brrrtop.model.estimate import Estimate, KernelRow, Side
from brrrtop.model.ranks import JobSnapshot, RankRow
from brrrtop.model.run import Run
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import causes, phrases, units
from brrrtop.views import whatif
from brrrtop.views.table import (
    CALLS,
    Column,
    Table,
    attribute,
    name_column,
    share_column,
    time_column,
)
from collectors.vocabulary import Metric

_WORTH = 0.005
"""Of the run: phases that take less are left out."""
GOOD = 0.5
"""Of its peak: a large kernel that reaches less is worth a look."""
SPLIT = ("compute", "memory", "overhead", "unknown")


def kernels(estimate: Estimate | None) -> Table:
    """Time and calls are of a step where steps are known: over a window they grow with every burst."""
    rows = estimate.kernels if estimate else ()
    steps = estimate.steps_covered if estimate else None

    def side(row: KernelRow) -> str:
        return row.side.value

    total = time_column("total", "total_ns", 8, key="total")
    calls = CALLS
    if steps:

        def of_step(row: KernelRow) -> float:
            return row.count / steps if row.calls is None else row.calls

        total = Column(
            "per step", 9, lambda row: row.mean_ns * of_step(row), units.duration, key="total"
        )
        calls = Column("calls", 7, of_step, _calls, key="count")
    columns = (
        share_column("share", "share", key="share"),
        Column("", 10, attribute("share"), from_width=130, hue=side, picture="meter"),
        total,
        time_column("mean", "mean_ns", 8, from_width=64, key="mean"),
        replace(calls, from_width=50),
        share_column("of peak", "roof_share", 7, from_width=56, key="roof", hue=_reach),
        Column("rate", 12, _rate, str, from_width=150),
        Column("bound", 9, lambda row: phrases.BOUNDS[row.side], words=True, hue=side, key="side"),
        Column("family", 12, attribute("family"), words=True, from_width=92, key="family"),
        Column("kernel", 0, attribute("name"), readable.short_name, words=True, hue=side, key="name",
               fit=readable.fitted),
    )  # fmt: skip
    notes = (
        "bound: what sets a kernel's pace. of peak: its rate over the GPU's, half and more is good. "
        "share: of the time of all kernels.",
    )
    return Table("kernels", "Kernels by time", columns, rows, notes, most=12)


def _reach(row: KernelRow) -> str:
    return "good" if (row.roof_share or 0.0) >= GOOD else "text"


def _calls(value: float) -> str:
    return f"{round(value):,}" if value >= 9.95 else f"{value:.2g}"


def _rate(row: KernelRow) -> str:
    if row.side is Side.MEMORY or row.flop_per_s is None:
        return units.rate(row.bytes_per_s, "B/s")
    return units.rate(row.flop_per_s, "FLOP/s")


def account(account: Account, run: Run | None, step_ns: float | None = None) -> Table:
    """Every bucket of the account, most time first; in a step too, where the run is nothing but steps.

    Args:
        step_ns: Mean time of a traced step; None: no steps are known.
    """
    whole = account.duration_ns or 1
    if run is not None:
        phases = [one for one in run.phases if one.share >= _WORTH]
        step_ns = (run.step_ns or step_ns) if len(phases) == 1 else None
    rows = [(key, ns) for key, ns in phrases.buckets(account) if ns]
    columns = (
        Column("", 0, lambda row: causes.name(row[0]), words=True, most=20),
        Column("", 24, lambda row: row[1] / whole, picture="meter", hue=lambda row: row[0]),
        Column("share", 6, lambda row: row[1] / whole, units.share),
        Column("time", 9, lambda row: row[1], units.duration),
        *([Column("a step", 9, lambda row: row[1] / whole * step_ns, units.duration)] if step_ns else ()),
        Column("", 54, lambda row: causes.meaning(row[0]), words=True, from_width=120),
    )  # fmt: skip
    rows.sort(key=lambda row: -row[1])
    return Table("account", "Where the time went", columns, rows, most=len(rows))


def phases(run: Run | None) -> Table:
    rows = [row for row in run.phases if row.share >= _WORTH] if run is not None else []
    waiting = (row.kind != "other" and (row.waits_share or 0) >= _WORTH for row in rows)
    if len(rows) < 2 and not any(waiting):
        rows = []
    words = {"other": "between steps"}
    columns = (
        Column("phase", 0, lambda row: f"{words.get(row.kind, row.kind.value)} {row.where}".strip(),
               words=True, most=56),
        share_column("share", "share", 5),
        Column("time", 8, attribute("duration_ns"), units.clock),
        Column("times", 5, attribute("count")),
        Column("steps", 7, lambda row: row.steps or None, units.count),
        time_column("a step", "step_ns", 8, from_width=90),
        Column("waits", 5, attribute("waits_share"), units.share),
        share_column("GPU", "active", 4),
    )  # fmt: skip
    return Table("phases", "Phases of the run", columns, rows, most=len(rows))


def edits(snapshot: Snapshot) -> Table:
    rows = whatif.ordered(snapshot)
    steps = snapshot.estimate is not None and snapshot.estimate.steps.count
    title = whatif.measure(snapshot.run) if steps else "now → then"
    least = min((row.saves_low for row in rows), default=0.0)
    scale = max(min(0.0, least), -1.0), max((row.saves_high for row in rows), default=1.0)
    columns = (
        name_column("edit", "edit", 25),
        Column(title, 20, lambda row: whatif.times(row, snapshot.run)),
        Column("gain", 7, lambda row: whatif.speeds(row)[0], hue=whatif.hue),
        Column("its range", 12, lambda row: whatif.speeds(row)[1], words=True, hue=whatif.hue),
        Column("", 28, lambda row: (row.saves_low, row.saves, row.saves_high, *scale),
               from_width=100, hue=whatif.hue, picture="range"),
        Column("line of code", 56, attribute("line"), words=True, from_width=160),
    )  # fmt: skip
    best, after = whatif.following(snapshot)
    notes = ([f"After {best}: {after}."] if best else []) + [whatif.terms(rows)]
    return Table("whatif", "What if", columns, rows, tuple(notes), len(rows), _about_edit)


def _about_edit(row: WhatIf) -> list[str]:
    line = row.line if row.saves >= whatif.WORTH_A_LINE else ""
    return [one for one in (line, phrases.RISKS[row.risk] if row.risk else "") if one]


def edit_parts(row: WhatIf, run: Run | None) -> Table:
    """What a step takes now and with the edit, and the GPU's and the host's part of a traced one."""
    now, then = row.now, row.then
    parts = [Change(phrases.a_step(run), row.present_ns, row.step_ns)]
    if now is not None and then is not None:
        parts.append(Change("traced steps: GPU busy", now.device_ns, then.device_ns))
        parts.append(Change("host, without GPU waits", now.host_ns, then.host_ns))
    kernels = (
        "" if now is None or then is None else f", {now.kernels:,.0f} → {then.kernels:,.0f} kernels"
    )
    return Table(
        "edit",
        "",
        _change_columns(f"simulated{kernels}", row.present_ns, row.step_ns),
        parts,
    )


def changes(comparison: Comparison) -> list[Table]:
    columns = _change_columns("", comparison.before_ns, comparison.after_ns)
    wall = Change("the whole", comparison.before_ns, comparison.after_ns)
    per = "per step, mean" if comparison.per_step else "per second"
    buckets = [replace(one, name=causes.name(_bucket_of(one))) for one in comparison.buckets]
    return [
        Table("buckets", per, columns, (wall, *buckets), most=40),
        Table("families", "kernels by family", columns, comparison.families),
        Table("changed", "kernels that changed most", columns, comparison.kernels),
    ]


def _bucket_of(change: Change) -> str:
    return change.name.replace("idle: ", "idle_").replace("exposed ", "exposed_")


def _change_columns(title: str, before_ns: float, after_ns: float) -> tuple[Column, ...]:
    whole = max(before_ns, after_ns)

    def hue(row: Change) -> str:
        if abs(row.won_ns) < 0.01 * whole:
            return "muted"
        return "good" if row.won_ns > 0 else "alarm"

    return (
        name_column(title, most=56, fit=readable.fitted),
        time_column("before", "before_ns"),
        time_column("after", "after_ns"),
        time_column("won", "won_ns", hue=hue),
        Column("█ after  ░ won  + more", 24,
               lambda row: (row.before_ns, row.after_ns, max(whole, row.before_ns, row.after_ns)),
               from_width=90, picture="change"),
    )  # fmt: skip


def ranks(job: JobSnapshot | None) -> Table:
    if job is None:
        return Table("ranks", "Ranks", (), ())
    waited = job.waited_for

    def hue(row: RankRow) -> str:
        odd = waited is not None and waited.is_slow and row.rank == waited.rank
        return "alarm" if odd else "text"

    def verdict(row: RankRow) -> str | None:
        if hue(row) == "alarm":
            return "IS LATE"
        return phrases.cause_badge(row.estimate) if row.estimate else None

    columns = (
        Column("rank", 4, attribute("rank"), hue=hue),
        Column("GPU", 4, lambda row: row.estimate and row.estimate.device.device_id),
        time_column("step", "step_ns", 8),
        time_column("late by", "late_ns", 9, hue=hue),
        *(
            Column(title, 8, _gauge(metric), form, from_width=130)
            for title, metric, form in (
                ("memory", Metric.MEMORY_USED_BYTES, units.size),
                ("power", Metric.POWER_WATT, "{:.0f} W".format),
                ("temp", Metric.TEMPERATURE_C, "{:.0f} °C".format),
            )
            if any(metric in row.gauges for row in job.ranks)
        ),
        Column("verdict", 0, verdict, words=True, most=32),
    )  # fmt: skip
    notes = ("late by: its own work, per step. wait: summed over the traced steps.",)

    def why(row: RankRow) -> str:
        return row.why or "" if row.estimate else f"{row.label}: {row.why or phrases.NOTHING_YET}"

    return Table("ranks", "Ranks", columns, job.ranks, notes, len(job.ranks), instead=why)


def _gauge(metric: Metric) -> Callable[[RankRow], float | None]:
    return lambda row: row.gauges.get(metric)


def _part(name: str) -> Callable[[Estimate], float]:
    return lambda row: getattr(row.split, name)


def meetings(job: JobSnapshot) -> Table:
    columns = (
        Column("collective", 0, collective_name, words=True, most=40),
        Column("ranks", 5, lambda row: len(row.ranks)),
        CALLS,
        Column("size", 8, attribute("size_bytes"), units.size),
        time_column("transfer", "transfer_ns", 8),
        time_column("wait", "wait_ns", 8, hue=lambda row: "overhead"),
        Column("bus", 9, attribute("bus_bytes_per_s"), lambda rate: units.rate(rate, "B/s")),
        share_column("link", "link_share", 5),
    )
    return Table("meetings", "Collectives by time", columns, job.collectives, most=6)


def collective_name(row: Any) -> str:
    return f"{row.name} ({row.algorithm})" if row.algorithm else str(row.name)


def devices(snapshot: Snapshot) -> Table:
    columns = (
        Column("GPU", 0, lambda row: f"GPU {row.device.device_id} {phrases.cause_badge(row)}",
               words=True, most=40),
        *(
            Column(name, 8, _part(name), units.share)
            for name in SPLIT
        ),
    )  # fmt: skip
    rows = snapshot.devices if len(snapshot.devices) > 1 else ()
    return Table("devices", "All GPUs", columns, rows, most=len(rows))
