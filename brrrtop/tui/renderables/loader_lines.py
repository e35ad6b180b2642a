"""The loader that the training loop waits for: how long, what its workers do, where the loop stands."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from brrrtop.model.estimate import Line
from brrrtop.model.host_tables import LoaderRow
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import loader, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.bar import meter
from brrrtop.tui.renderables.code_lines import no_samples
from brrrtop.tui.renderables.history import level
from brrrtop.tui.renderables.line import clipped, wrapped
from brrrtop.views import whatif

LABEL, BAR, WIDE = 9, 10, 100
HUE = "idle_input"


def short(snapshot: Snapshot, palette: Palette, width: int, height: int) -> list[Text]:
    """At most `height` lines, the most telling first; more of the code where there is room."""
    row = snapshot.tables.loaders[0]
    code = code_lines(row, palette)
    lines = [
        _labelled("waits", loader.waits(row, brief=width < WIDE), palette),
        _labelled("workers", loader.workers(row, snapshot.gauges), palette),
    ]
    below = [
        _labelled(label, words, palette)
        for label, words in (
            ("ready", loader.ready(row)),
            ("gain", _gain(snapshot)),
            ("enough", loader.enough(row)),
        )
        if words
    ]
    below.append(_recent(row, palette, width))
    room = height - len(lines) - len(below)
    every = [*lines, *code[: max(1, room)], *below]
    return [clipped(line, width) for line in every[:height]]


def whole(snapshot: Snapshot, palette: Palette, width: int) -> Iterator[Text]:
    """Each loader with all that is known, sentences wrapped."""
    for row in snapshot.tables.loaders:
        yield clipped(Text.styled(loader.kind(row), palette.style("compute", bold=True)), width)
        yield from _wrapped("made as", row.name, palette, width)
        yield from _wrapped("waits", loader.waits(row), palette, width)
        yield clipped(_recent(row, palette, width), width)
        yield from _wrapped("workers", loader.workers(row, snapshot.gauges), palette, width)
        if row.workers != 0:
            yield from _wrapped("ready", loader.ready(row) or "not known", palette, width)
            yield from _wrapped("", loader.diagnosis(row), palette, width)
            yield from _wrapped("", loader.NOT_ENTERED, palette, width)
        yield from _wrapped("gain", _gain(snapshot) or "not known", palette, width)
        yield from _wrapped("enough", loader.enough(row), palette, width)
        yield Text()
        where = "makes the batches" if row.workers == 0 else "waits"
        samples = f", by {units.count(row.samples)} stack samples" if row.samples else ""
        title = f"Where the loop {where}{samples}"
        yield Text.styled(title, palette.style("text", bold=True))
        lines = code_lines(row, palette, title="")
        if not lines:
            yield from _wrapped("", no_samples(snapshot, "No sample"), palette, width)
        yield from (clipped(line, width) for line in lines)
        yield Text()


def code_lines(row: LoaderRow, palette: Palette, title: str | None = None) -> list[Text]:
    """Lines of the user's own code at which samples found the loop within its waits."""
    if title is None:
        title = "makes at" if row.workers == 0 else "waits at"
    return [
        _code(line, row, title if not place else "", palette)
        for place, line in enumerate(row.lines)
    ]


def _code(line: Line, row: LoaderRow, label: str, palette: Palette) -> Text:
    share = line.count / row.samples
    text = _labelled(label, f"{units.share(share):>4} ", palette)
    text.append_text(meter(share, palette, BAR, HUE)).append(" ")
    text.append(line.place, palette.style("compute", bold=True))
    return text.append(f"  {line.source}" if line.source else "", palette.style("text"))


def _recent(row: LoaderRow, palette: Palette, width: int) -> Text:
    """The newest waits, one a cell, the longest at the top."""
    recent = row.recent_ns[-max(0, width - LABEL - 16) :]
    top = max(recent, default=0) or 1
    text = _labelled("newest", "", palette)
    text.append("".join(level(ns / top, palette) for ns in recent), palette.style(HUE))
    return text.append(f"  to {units.duration(top)}", palette.style("muted"))


def _gain(snapshot: Snapshot) -> str:
    row = loader.price(snapshot)
    if row is None:
        return ""
    span = whatif.span(row.saves_low, row.saves_high)
    return f"with the batch ready {whatif.times(row)} a step, saves {whatif.percent(row.saves)} ({span})"


def _labelled(label: str, words: str, palette: Palette) -> Text:
    text = Text(f"{label:>{LABEL - 2}}  ", palette.style("muted"), no_wrap=True)
    return text.append(words, palette.style("text"))


def _wrapped(label: str, words: str, palette: Palette, width: int) -> Iterator[Text]:
    for place, part in enumerate(wrapped(words, max(10, width - LABEL))):
        yield _labelled("" if place else label, part, palette)
