"""The first line: what is watched, and whether it is still there."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import sided
from brrrtop.tui.widgets.pane import Pane

STATES = {
    Freshness.WAITING: ("○", "waiting for data", "muted"),
    Freshness.LIVE: ("●", "live", "good"),
    Freshness.STALE: ("▲", "stale", "alarm"),
    Freshness.ENDED: ("■", "ended", "memory"),
}


class Title(Pane):
    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        return [sided(subject(snapshot, self.palette), state(snapshot, self.palette), width)]


def subject(snapshot: Snapshot, palette: Palette) -> Text:
    """brrrtop, the source, its rank and its device."""
    source, estimate = snapshot.source, snapshot.estimate
    text = Text.styled("brrrtop ", palette.style("text", bold=True))
    text.append(source.label, palette.style("compute", bold=True))
    facts = []
    if source.rank is not None and (source.world or 1) > 1:
        facts.append(f"rank {source.rank} of {source.world}")
    if estimate is not None:
        device = estimate.device
        number = f"GPU {device.device_id}" if len(snapshot.devices) > 1 else ""
        facts.append(" ".join(word for word in (number, device.name or "unnamed GPU") if word))
    if source.cmdline:
        program, space, rest = source.cmdline.partition(" ")
        facts.append(f"{program.rpartition('/')[2]}{space}{rest}")  # the script is what tells
    text.append("".join(f" · {fact}" for fact in facts), palette.style("muted"))
    return text


def state(snapshot: Snapshot, palette: Palette) -> Text:
    """Freshness in a word, with the age where that matters; pause and position of a replay."""
    glyph, word, hue = STATES[snapshot.freshness]
    text = Text()
    if snapshot.freshness is Freshness.LIVE and snapshot.source.kind != "live":
        glyph, word, hue = "▶", "replay", "good"
    gone = snapshot.freshness in (Freshness.STALE, Freshness.ENDED)
    if gone and snapshot.age_ns is not None and snapshot.source.kind == "live":
        word = f"{word}, last seen {units.duration(snapshot.age_ns)} ago"
    if snapshot.paused:
        badge = palette.filled("memory") if palette.colour else palette.style("text", bold=True)
        text.append(" PAUSED ", badge)
        text.append(" ")
    text.append(f"{glyph} {word}", palette.style(hue, bold=True))
    if snapshot.progress is not None:
        text.append(f" {units.share(snapshot.progress)}", palette.style("muted"))
    text.append(pace(snapshot.speed), palette.style("muted"))
    return text


def pace(speed: float | None) -> str:
    """Replay speed in words; empty at the pace at which it happened, and for live sources."""
    if speed is None or speed == 1:
        return ""
    return (
        f" {units.figure(speed)}× as fast" if speed > 1 else f" {units.figure(1 / speed)}× slower"
    )
