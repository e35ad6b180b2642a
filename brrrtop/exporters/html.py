"""The report as one page: pictures and tables, nothing loaded from anywhere, no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from brrrtop.exporters import svg
from brrrtop.exporters.tables import tables_of
from brrrtop.kernel_names.readable import short_name
from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases, units
from brrrtop.text.hero import headline_text
from brrrtop.views import whatif as whatif_text
from collectors.printable import printable

STYLE = """
.brrrtop{--text:#1c2126;--muted:#5a636d;--rule:#d5d8da;--ground:#fbfbf9;--on:#fff;--compute:#00639e;
--memory:#9a5200;--idle:#b3175f;--underfilled:#6a3fb5;--comm:#6d6200;--copy:#7b6f14;--unknown:#626b75;
font:14px/1.5 system-ui,sans-serif;color:var(--text);background:var(--ground);max-width:1000px;margin:0 auto;
padding:24px}
@media(prefers-color-scheme:dark){.brrrtop{--text:#d7dde4;--muted:#8d99a6;--rule:#333d47;--ground:#101418;
--on:#0b0e11;--compute:#56b4e9;--memory:#f0a030;--idle:#f079a8;--underfilled:#b79bf2;--comm:#e8d44d;
--copy:#c3b23a;--unknown:#8a94a0}}
.brrrtop h1{font-size:24px;margin:0}.brrrtop h2{font-size:16px;margin:28px 0 8px}
.brrrtop p{margin:4px 0}.brrrtop .muted{color:var(--muted)}.brrrtop svg{width:100%;height:auto;display:block}
.brrrtop svg text{fill:var(--text);font:12px system-ui,sans-serif}.brrrtop svg text.on{fill:var(--on)}
.brrrtop .compute{fill:var(--compute)}.brrrtop .memory{fill:var(--memory)}.brrrtop .idle,.brrrtop .overhead
{fill:var(--idle)}.brrrtop .underfilled{fill:var(--underfilled)}.brrrtop .comm{fill:var(--comm)}
.brrrtop .copy{fill:var(--copy)}.brrrtop .unknown{fill:var(--unknown)}.brrrtop .launching,.brrrtop .host,
.brrrtop .annotation,.brrrtop .optimizer{fill:var(--muted);fill-opacity:.55}
.brrrtop .rule{stroke:var(--rule)}.brrrtop .roof{stroke:var(--muted);fill:none}
.brrrtop circle{fill-opacity:.75}.brrrtop table{border-collapse:collapse;width:100%;font-size:13px}
.brrrtop td,.brrrtop th{text-align:right;padding:3px 8px;border-bottom:1px solid var(--rule);
font-variant-numeric:tabular-nums;font-weight:normal;white-space:nowrap}.brrrtop th{color:var(--muted)}
.brrrtop td:first-child,.brrrtop th:first-child{text-align:left;overflow-wrap:anywhere;white-space:normal}
.brrrtop .advice{border-left:3px solid var(--idle);padding-left:12px;margin:10px 0}
.brrrtop code{overflow-wrap:anywhere}.brrrtop details{margin:8px 0}.brrrtop summary{cursor:pointer}
"""
_MOST_ROWS = 30
EPOCH_NS = 10**18
"""Smaller times do not count from 1970: the source has a clock of its own."""
LEGEND = '<p class="muted">' + " ".join(
    f'<svg style="display:inline;width:12px" viewBox="0 0 12 12">'
    f'<rect class="{hue}" width="12" height="12"/></svg> {words}'
    for hue, words in (
        ("compute", "compute"), ("memory", "memory"), ("underfilled", "small kernels"),
        ("comm", "communication"), ("copy", "copies"), ("idle", "idle: the pointer tells why"),
    )
) + "</p>"  # fmt: skip


def write(snapshot: Snapshot, path: Path, format_id: str) -> None:
    """A page at `path`.

    Raises:
        OSError: The file cannot be written.
    """
    with path.open("x", encoding="utf-8") as file:
        file.write(page(snapshot))


def page(snapshot: Snapshot) -> str:
    """A whole document."""
    title = escape(printable(f"brrrtop: {snapshot.source.label}"))
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    )
    top = f"<!DOCTYPE html><html lang=en><head>{head}<title>{title}</title></head>"
    return f"{top}<body>{body(snapshot)}</body></html>\n"


def body(snapshot: Snapshot) -> str:
    """What a page or a notebook's cell shows, with its style."""
    inside = "".join(_sections(snapshot))
    return f'<style>{STYLE}</style><div class="brrrtop">{inside}</div>'


def _sections(snapshot: Snapshot) -> Iterator[str]:
    estimate = snapshot.estimate
    if estimate is None:
        yield f"<h1>{escape(phrases.unjudged(snapshot))}</h1>"
        return
    yield from _verdict(snapshot, estimate)
    yield _with_heading("Where the time went", svg.account(estimate))
    if snapshot.picture is not None:
        which = f"Step {snapshot.picture.step} of {snapshot.picture.steps}, the longest"
        label = which if snapshot.picture.step else "The end of the window"
        yield _with_heading(label, svg.step(snapshot.picture))
        yield LEGEND
    yield from _advice(snapshot)
    roofline = svg.roofline(estimate)
    if roofline is not None:
        yield _with_heading("Roofline", roofline)
    if snapshot.tables.memory is not None:
        use = snapshot.tables.memory
        yield _with_heading(f"Memory, {units.size(use.peak_bytes)} at its peak", svg.memory(use))
    yield from _tables(snapshot)
    notes = "".join(f"<p>{_text(note)}</p>" for note in snapshot.source.notes)
    if notes:
        yield f'<h2>Good to know</h2><div class="muted">{notes}</div>'
    yield f'<p class="muted">{_text(_origin(snapshot))}</p>'


def _origin(snapshot: Snapshot) -> str:
    """When it ran, what ran, and which brrrtop wrote this."""
    try:
        facts = [f"brrrtop {version('brrrtop')}"]
    except PackageNotFoundError:  # run from a checkout that is not installed
        facts = ["brrrtop"]
    if snapshot.now_ns >= EPOCH_NS:
        facts.append(
            f"{datetime.fromtimestamp(snapshot.now_ns / 1e9, timezone.utc):%Y-%m-%d %H:%M} UTC"
        )
    if snapshot.source.cmdline:
        facts.append(snapshot.source.cmdline)
    return " · ".join(facts)


def _verdict(snapshot: Snapshot, estimate: Estimate) -> Iterator[str]:
    device = estimate.device.name or "GPU of unknown model"
    facts = [snapshot.source.label, device, phrases.judged(estimate)]
    yield f'<p class="muted">{_text(" · ".join(facts))}</p>'
    yield f"<h1>{_text(phrases.verdict(estimate))}</h1>"
    if words := headline_text(snapshot):
        yield f"<p><b>{_text(words)}</b></p>"
    sure = "" if estimate.regime is Regime.UNKNOWN else f"{units.share(estimate.confidence)} sure: "
    yield f"<p>{sure}{_text(phrases.because(estimate))}{_text(phrases.besides(estimate))}.</p>"
    split = estimate.split
    names = ("compute", "memory", "overhead", "unknown")
    yield svg.bar([(name, getattr(split, name)) for name in names])


def _advice(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.advisories:
        yield "<h2>What to try</h2>"
    for advisory in snapshot.advisories:
        gain = whatif_text.gain(advisory)
        head = advisory.kind + (f": {gain}" if gain else "")
        yield f'<div class="advice"><p><b>{_text(head)}</b></p><p>{_text(advisory.says)}</p>'
        yield f"<p>Try: <code>{_text(advisory.suggests)}</code></p>" if advisory.suggests else ""
        yield f'<p class="muted">A waste: {_text(advisory.waste)}</p>' if advisory.waste else ""
        yield "</div>"
    if snapshot.whatif:
        rows = [
            [row.edit, units.duration(row.present_ns), units.duration(row.step_ns),
             *whatif_text.speeds(row)]
            for row in whatif_text.ordered(snapshot)
        ]  # fmt: skip
        yield _with_heading(
            "What if", _table(["edit", "step now", "then", "faster", "range"], rows)
        )


_TABLES = {
    "kernels": ("Kernels", "name side evidence roof_share count total_ns mean_ns share"),
    "ops": ("Ops", "name count device_self_ns device_total_ns cpu_self_ns module place"),
    "op_shapes": ("Ops by input shapes", "name shapes count device_self_ns cpu_self_ns"),
    "modules": (
        "Modules",
        "name parent count device_total_ns device_self_ns backward_ns roof_share",
    ),
    "stalls": ("Where the host was while the GPU idled", "place inside idle_ns share"),
    "copies": ("Copies", "kind count size_bytes total_ns bytes_per_s"),
    "annotations": ("Annotated ranges", "name count device_ns host_ns"),
    "inference": ("Inference", "phase count device_ns tokens"),
    "memory_alive_at_peak": ("In use at the memory's peak", "name size_bytes blocks"),
}
"""Of each table of `tables_of` that is shown: its title, and which columns."""


def _tables(snapshot: Snapshot) -> Iterator[str]:
    tables = tables_of(snapshot)
    for name, (title, columns) in _TABLES.items():
        keys, rows = columns.split(), tables.get(name)
        if rows:
            cells = [[shown(key, row.get(key)) for key in keys] for row in rows[:_MOST_ROWS]]
            whole = [row[0] for row in cells]
            if name == "kernels":
                cells = [[short_name(first), *rest] for first, *rest in cells]
            heads = [key.removesuffix("_ns").replace("_", " ") for key in keys]
            table = _table(heads, cells, whole)
            rest = len(rows) - _MOST_ROWS
            more = f'<p class="muted">and {rest} more</p>' if rest > 0 else ""
            opened = " open" if name in ("kernels", "modules", "stalls") else ""
            yield f"<details{opened}><summary><b>{title}</b></summary>{table}{more}</details>"


def shown(key: str, value: Any) -> str:
    """A cell in the unit that its column's name tells."""
    if value is None:
        return "–"
    if key.endswith("_ns"):
        return units.duration(value)
    if key == "bytes_per_s":
        return units.rate(value, "B/s")
    if key.endswith("bytes"):
        return units.size(value)
    if key.endswith("share"):
        return units.share(value)
    return units.count(value) if isinstance(value, int) else str(value)


def _with_heading(title: str, inside: str) -> str:
    return f"<h2>{_text(title)}</h2>{inside}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], whole: Sequence[str] = ()) -> str:
    """`whole`: what the first cell of each row shows when the pointer is on it."""
    top = "".join(f"<th>{_text(head)}</th>" for head in heads)
    titles = [f' title="{_text(one)}"' for one in whole] or [""] * len(rows)
    lines = "".join(
        f"<tr{title}>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>"
        for row, title in zip(rows, titles, strict=True)
    )
    return f"<table><tr>{top}</tr>{lines}</table>"


def _text(text: str) -> str:
    return escape(printable(text))
