"""The report as one page: pictures and tables, nothing loaded from anywhere, no script."""

from collections.abc import Iterator
from datetime import datetime, timezone
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from brrrtop.exporters import svg
from brrrtop.model.estimate import Estimate
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases, units
from brrrtop.text.headline import headline_text, of_loops, sure
from brrrtop.views import code, host_tables, tables
from brrrtop.views import whatif as whatif_text
from brrrtop.views.table import Table
from collectors.printable import printable

STYLE = """
.brrrtop{--text:#1c2126;--muted:#5a636d;--rule:#d5d8da;--ground:#fbfbf9;--on:#fff;--compute:#00639e;
--memory:#9a5200;--idle:#b3175f;--unknown:#626b75;
font:14px/1.5 system-ui,sans-serif;color:var(--text);background:var(--ground);max-width:1000px;margin:0 auto;
padding:24px}
@media(prefers-color-scheme:dark){.brrrtop{--text:#d7dde4;--muted:#8d99a6;--rule:#333d47;--ground:#101418;
--on:#0b0e11;--compute:#56b4e9;--memory:#f0a030;--idle:#f079a8;--unknown:#8a94a0}}
.brrrtop h1{font-size:24px;margin:0}.brrrtop h2{font-size:16px;margin:28px 0 8px}
.brrrtop p{margin:4px 0}.brrrtop .muted{color:var(--muted)}.brrrtop svg{width:100%;height:auto;display:block}
.brrrtop svg text{fill:var(--text);font:12px system-ui,sans-serif}.brrrtop svg text.on{fill:var(--on)}
.brrrtop .compute{fill:var(--compute)}.brrrtop .memory{fill:var(--memory)}.brrrtop .idle{fill:var(--idle)}
.brrrtop .unknown{fill:var(--unknown)}.brrrtop .launching,.brrrtop .host,
.brrrtop .annotation,.brrrtop .optimizer{fill:var(--muted);fill-opacity:.55}
.brrrtop .rule{stroke:var(--rule)}.brrrtop .roof{stroke:var(--muted);fill:none}
.brrrtop circle{fill-opacity:.75}.brrrtop table{border-collapse:collapse;width:100%;font-size:13px}
.brrrtop td,.brrrtop th{text-align:right;padding:3px 8px;border-bottom:1px solid var(--rule);
font-variant-numeric:tabular-nums;font-weight:normal;white-space:nowrap}.brrrtop th{color:var(--muted)}
.brrrtop td:first-child,.brrrtop th:first-child{text-align:left;overflow-wrap:anywhere;white-space:normal}
.brrrtop .advice{border-left:3px solid var(--idle);padding-left:12px;margin:10px 0}
.brrrtop code{overflow-wrap:anywhere}
.brrrtop pre{overflow-x:auto;margin:4px 0;line-height:1.35}
.brrrtop details{margin:8px 0}.brrrtop summary{cursor:pointer}
"""
_MOST_ROWS = 30
_CELLS = 60
"""Of the longest name."""
EPOCH_NS = 10**18
"""Smaller times do not count from 1970: the source has a clock of its own."""
LEGEND = '<p class="muted">' + " ".join(
    f'<svg style="display:inline;width:12px" viewBox="0 0 12 12">'
    f'<rect class="{hue}" width="12" height="12"/></svg> {words}'
    for hue, words in (
        ("compute", "compute"), ("memory", "moves tensors"),
        ("idle", "idle or held back: the pointer tells why"),
    )
) + "</p>"  # fmt: skip


def write(snapshot: Snapshot, path: Path, format_id: str) -> None:
    with path.open("x", encoding="utf-8") as file:
        file.write(page(snapshot))


def page(snapshot: Snapshot) -> str:
    return document(f"brrrtop: {snapshot.source.label}", body(snapshot))


def document(title: str, inside: str) -> str:
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    )
    top = f"<!DOCTYPE html><html lang=en><head>{head}<title>{_text(title)}</title></head>"
    return f"{top}<body>{inside}</body></html>\n"


def body(snapshot: Snapshot) -> str:
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
    yield from _code(snapshot)
    roofline = svg.roofline(estimate)
    if roofline is not None:
        yield _with_heading("Roofline", roofline)
    if snapshot.tables.memory is not None:
        use = snapshot.tables.memory
        yield _with_heading(f"Memory, {units.size(use.peak_bytes)} at its peak", svg.memory(use))
    yield from _tables(snapshot, estimate)
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
    facts = [snapshot.source.label, device, phrases.coverage(estimate)]
    yield f'<p class="muted">{_text(" · ".join(facts))}</p>'
    yield f"<h1>{_text(phrases.badge(snapshot))}</h1>"
    if words := headline_text(snapshot):
        yield f"<p><b>{_text(words)}</b></p>"
    head = f"{sure(snapshot)}: " if sure(snapshot) else ""
    if not of_loops(snapshot):
        yield f"<p>{head}{_text(phrases.because(estimate))}{_text(phrases.besides(estimate))}.</p>"
    split = estimate.split
    names = ("compute", "memory", "overhead", "unknown")
    yield svg.bar([(name, getattr(split, name)) for name in names])


def _advice(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.advisories:
        yield "<h2>What to try</h2>"
    for advisory in code.with_places(snapshot):
        gain = whatif_text.gain(advisory)
        head = advisory.kind + (f": {gain}" if gain else "")
        yield f'<div class="advice"><p><b>{_text(head)}</b></p><p>{_text(advisory.says)}</p>'
        yield f"<p>Try: <code>{_text(advisory.suggests)}</code></p>" if advisory.suggests else ""
        yield f'<p class="muted">A waste: {_text(advisory.waste)}</p>' if advisory.waste else ""
        yield "</div>"


def _code(snapshot: Snapshot) -> Iterator[str]:
    """The lines of the user's files with their share of the time, and the edits as diffs."""
    files = code.files(snapshot)
    if files:
        yield "<h2>Your code: share of the training thread's time</h2>"
    for file in files:
        yield f"<p><code>{_text(file.path)}</code> {units.share(file.share)}</p><pre>"
        for at, block in enumerate(file.blocks):
            yield "    ⋮\n" if at and file.source else ""
            for number, source, hot in block:
                word, kinds = code.does(hot) if hot else ("", ())
                hue = "idle" if kinds and kinds[0].startswith("idle") else "launching"
                share = hot.share if hot else 0.0
                yield f"{number:>5} {_HEAT.format(hue=hue, width=max(1, 80 * share) if hot else 0)}"
                yield f"{units.share(share) if hot else '':>5} {word:<10}│ {_text(source)}\n"
        yield "</pre>"
    for change in code.changes(snapshot, files):
        if change.patch is not None:
            title = f"{change.edit}, {change.speed} faster: {change.path}:{change.patch.line}"
            body = f"<pre>{_text_lines(change.patch.diff)}</pre>"
            yield f"<details><summary><b>{_text(title)}</b></summary>{body}</details>"


_HEAT = (
    '<svg style="display:inline;width:80px;height:10px" viewBox="0 0 80 10">'
    '<rect class="{hue}" width="{width:.0f}" height="10"/></svg>'
)
_OPEN = ("whatif", "kernels", "modules", "stalls")
"""Tables that are read first."""


def _tables(snapshot: Snapshot, estimate: Estimate) -> Iterator[str]:
    every = [
        tables.edits(snapshot), tables.phases(snapshot.run), tables.kernels(estimate),
        *host_tables.of_host(snapshot.tables, estimate.account.duration_ns),
    ]  # fmt: skip
    for table in every:
        if table.rows:
            more = len(table.rows) - _MOST_ROWS
            notes = [f"and {more} more"] if more > 0 else []
            below = "".join(
                f'<p class="muted">{_text(note)}</p>' for note in (*notes, *table.notes)
            )
            opened = " open" if table.name in _OPEN else ""
            title = f"<summary><b>{_text(table.title)}</b></summary>"
            yield f"<details{opened}>{title}{_table(table)}{below}</details>"


def _with_heading(title: str, inside: str) -> str:
    return f"<h2>{_text(title)}</h2>{inside}"


def _table(table: Table) -> str:
    """All columns; the names of kernels in short, and whole when the pointer is on the row."""
    columns = sorted(
        (column for column in table.columns if not column.picture), key=lambda one: bool(one.width)
    )
    top = "".join(f"<th>{_text(column.title)}</th>" for column in columns)
    lines = "".join(
        f'<tr title="{_text(str(columns[0].value(row)))}">'
        + "".join(f"<td>{_text(column.text(row, _CELLS))}</td>" for column in columns)
        + "</tr>"
        for row in table.rows[:_MOST_ROWS]
    )
    return f"<table><tr>{top}</tr>{lines}</table>"


def _text(text: str) -> str:
    return escape(printable(text))


def _text_lines(text: str) -> str:
    return "\n".join(map(_text, text.splitlines()))
