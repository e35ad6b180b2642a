"""What stands beside the advice where there is room: what if, the code, the log. Each as far as it fits.

The lines of each are those that its own view shows too.
"""

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text

from brrrtop.model.run import Line
from brrrtop.model.snapshot import Event, Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.bar import meter
from brrrtop.tui.renderables.line import clipped, hanging, rule
from brrrtop.tui.renderables.table import table_lines
from brrrtop.tui.widgets.pane import Pane
from brrrtop.views import tables

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
