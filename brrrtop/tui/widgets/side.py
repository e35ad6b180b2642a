"""What has a place where there is room: what if, the code, the log, each as far as it fits, in the lines that
its own view shows too; and the loader that the training loop waits for (how long, what its workers do,
where the loop stands), while the GPU waits for it, and all of it for a screen of its own.
"""

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text
from textual.events import Click

from brrrtop.model.host_tables import LoaderRow
from brrrtop.model.run import Line
from brrrtop.model.snapshot import Event, Snapshot
from brrrtop.text import loader, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.history import level
from brrrtop.tui.renderables.line import clipped, facts, hanging, meter, rule, stacked
from brrrtop.tui.renderables.table import table_lines
from brrrtop.tui.widgets.pane import Fitted, Pane
from brrrtop.views import tables, whatif
from collectors.vocabulary import Metric

EDITS = 5
BAR = 10
EPOCH_NS = 10**18
"""Smaller times do not count from 1970: the source has a clock of its own."""
HUES = {"stall": "overhead", "throttle": "alarm", "trainer": "memory", "regime": "text"}


class Side(Pane):
    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        palette, table = self.palette, tables.edits(snapshot)
        edits = table_lines(table, palette, width, most=EDITS) if table.rows else []
        sections = (
            ("what if", "w: all", edits),
            ("code while the GPU idles", "C: more", code_lines(snapshot, palette, width)),
            ("log", "l: all", log_lines(snapshot.events, snapshot.now_ns, palette, width)),
        )
        lines: list[Text] = []
        for title, note, body in sections:
            room = height - len(lines) - 1
            if body and room > 0:
                lines += [rule(title, note, palette, width), *body[:room]]
        return lines


def code_lines(snapshot: Snapshot, palette: Palette, width: int) -> list[Text]:
    """Share of the samples, place, source and what it reads as; no lines where none stands out."""
    samples = snapshot.estimate.stack_samples if snapshot.estimate else None
    if samples is None or not samples.lines:
        return []
    lines = []
    for one in samples.lines:
        share = one.count / samples.count
        text = palette.text(f"{units.share(share):>4} ", "text", bold=True)
        hue = f"idle_{one.reads_as}" if one.reads_as else "overhead"
        lines.append(clipped(text.append_text(code_line(one, share, hue, palette)), width))
    seconds = units.duration(samples.span_ns)
    summary = f"{units.count(samples.count)} stack samples in {seconds}, excluding known waits"
    lines.append(palette.text(summary, "muted"))
    return lines


def code_line(line: Line, share: float, hue: str, palette: Palette) -> Text:
    """A share of samples as a bar, the place where they were taken, its source."""
    text = meter(share, palette, BAR, hue).append(" ")
    text.append(line.place, palette.style("compute", bold=True))
    return text.append(f"  {line.source}" if line.source else "", palette.style("text"))


def no_samples(snapshot: Snapshot, none: str) -> str:
    """Why no line is named: live it may still come, of a trace it never does."""
    if snapshot.source.kind == "live":
        return f"{none} yet: the agent samples the main thread's stack now and then."
    return f"{none}: stacks are sampled by the agent only, while a trainer is watched live."


def log_lines(events: Sequence[Event], now_ns: int, palette: Palette, width: int) -> list[Text]:
    return [line for one in reversed(events) for line in event_lines(one, now_ns, palette, width)]


def event_lines(event: Event, now_ns: int, palette: Palette, width: int) -> list[Text]:
    past_ns = now_ns - event.t_ns
    ago = f"{units.duration(past_ns):>8} ago" if past_ns > 0 else f"{'now':>12}"
    clock = ""
    if event.t_ns >= EPOCH_NS:
        clock = datetime.fromtimestamp(event.t_ns / 1e9).astimezone().strftime("%H:%M:%S ")
    lead, style = f"{clock}{ago}  {event.kind:<11} ", palette.style(HUES.get(event.kind, "text"))
    return hanging(lead, event.says, width, palette.style("muted"), style)


OF_WORKERS = (
    Metric.LOADER_WORKERS,
    Metric.LOADER_CPU_SHARE,
    Metric.LOADER_BUSY_SHARE,
    Metric.LOADER_DISK_SHARE,
)
ROOM = ((60, 12), (50, 8), (41, 7), (40, 6), (0, 4))
"""Height of the screen from which it takes that many lines at most."""


class Loader(Fitted):
    def redraw(self) -> None:
        self.most = next(most for height, most in ROOM if self.app.size.height >= height)
        super().redraw()

    def inputs(self, snapshot: Snapshot) -> object:
        workers = [snapshot.gauges.get(metric) for metric in OF_WORKERS]
        return (snapshot.tables.loaders, workers)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        if not snapshot.tables.loaders:
            return []
        title = f"loader: {loader.kind(snapshot.tables.loaders[0])}"
        head = rule(title, "L: more", self.palette, width)
        return [head, *short(snapshot, self.palette, width, height - 1)]

    def on_click(self, _event: Click) -> None:
        self.app.action_loader()


LABEL = 7
HUE = "idle_input"


def short(snapshot: Snapshot, palette: Palette, width: int, height: int) -> list[Text]:
    row = snapshot.tables.loaders[0]
    above = (
        ("waits", loader.waits(row, brief=True)),
        ("workers", loader.workers(row, snapshot.gauges, brief=True)),
    )
    below = (
        ("ready", loader.ready(row)),
        ("enough", loader.enough(row)),
    )
    head = [_labelled(label, words, palette) for label, words in above]
    tail = [_labelled(label, words, palette) for label, words in below if words]
    tail.append(_recent(row, palette, width))
    title = "makes at" if row.workers == 0 else "waits at"
    room = max(1, height - len(head) - len(tail))
    return [*head, *loop_lines(row, title, palette)[:room], *tail][:height]


def whole(snapshot: Snapshot, palette: Palette, width: int) -> list[Text]:
    lines: list[Text] = []
    every_ns = sum(row.total_ns for row in snapshot.tables.loaders) or 1
    for row in snapshot.tables.loaders:
        part = row.total_ns / every_ns
        title = loader.kind(row) + (f", {units.share(part)} of all waits" if part < 1 else "")
        workers = [("workers", loader.workers(row, snapshot.gauges))]
        if row.workers != 0:
            workers.append(("ready", loader.ready(row) or "not known"))
            workers += [("", loader.diagnosis(row)), ("", loader.NOT_ENTERED)]
        gain = (("gain", _gain(snapshot) or "not known"), ("enough", loader.enough(row)))
        where = "makes the batches" if row.workers == 0 else "waits"
        samples = f", by {units.count(row.samples)} stack samples" if row.samples else ""
        loop = loop_lines(row, "", palette)
        lines += [
            palette.text(title, "compute", bold=True),
            *facts((("made as", row.name), ("waits", loader.waits(row))), LABEL, palette, width),
            _recent(row, palette, width),
            *facts((*workers, *gain), LABEL, palette, width),
            Text(),
            palette.text(f"Where the loop {where}{samples}", "text", bold=True),
            *(loop or facts([("", no_samples(snapshot, "No sample"))], LABEL, palette, width)),
            Text(),
        ]
    return stacked(lines, width)


def loop_lines(row: LoaderRow, title: str, palette: Palette) -> list[Text]:
    """Lines of the user's own code at which samples found the loop within its waits."""
    lines = []
    for place, line in enumerate(row.lines):
        share = line.count / row.samples
        part = f"{units.share(share):>4} " if row.workers == 0 or len(row.lines) > 1 else ""
        text = _labelled(title if not place else "", part, palette)
        lines.append(text.append_text(code_line(line, share, HUE, palette)))
    return lines


def _recent(row: LoaderRow, palette: Palette, width: int) -> Text:
    """The newest waits, one a cell, the longest at the top."""
    recent = row.recent_ns[-max(0, width - LABEL - 18) :]
    top = max(recent, default=0) or 1
    text = _labelled("newest", "", palette)
    text.append("".join(level(ns / top, palette) for ns in recent), palette.style(HUE))
    return text.append(f"  to {units.duration(top)}", palette.style("muted"))


def _gain(snapshot: Snapshot) -> str:
    row = loader.price(snapshot)
    if row is None:
        return ""
    run = snapshot.run
    return f"with the batch ready: {whatif.measure(run)} {whatif.times(row, run)}"


def _labelled(label: str, words: str, palette: Palette) -> Text:
    text = palette.text(f"{label:>{LABEL}}  ", "muted")
    return text.append(words, palette.style("text"))
