"""Lines of the trainer's own code at which samples found its training thread, most of them first."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.bar import meter
from brrrtop.tui.renderables.line import clipped

BAR = 10


def code_lines(snapshot: Snapshot, palette: Palette, width: int) -> list[Text]:
    """Share of the samples, place, source and what it reads as; no lines where none stands out."""
    samples = snapshot.estimate.looks if snapshot.estimate else None
    if samples is None or not samples.lines:
        return []
    lines = []
    for one in samples.lines:
        share = one.count / samples.count
        text = Text.styled(f"{units.share(share):>4} ", palette.style("text", bold=True))
        hue = f"idle_{one.reads_as}" if one.reads_as else "overhead"
        text.append_text(meter(share, palette, BAR, hue)).append(" ")
        text.append(one.place, palette.style("compute", bold=True))
        text.append(f"  {one.source}" if one.source else "", palette.style("text"))
        lines.append(clipped(text, width))
    seconds = units.duration(samples.span_ns)
    summary = (
        f"{units.count(samples.count)} stack samples in {seconds}, outside waits that have a name"
    )
    lines.append(Text.styled(summary, palette.style("muted")))
    return lines


def no_samples(snapshot: Snapshot, none: str) -> str:
    """Why no line is named: live it may still come, of a trace it never does."""
    if snapshot.source.kind == "live":
        return f"{none} yet: the agent samples the main thread's stack now and then."
    return f"{none}: stacks are sampled by the agent only, while a trainer is watched live."
