"""Where the numbers come from, how old they are, what was lost, and what it costs to get them."""

from __future__ import annotations

from rich.text import Text
from textual.timer import Timer

from brrrtop.model.snapshot import Freshness, Overhead, Snapshot
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import clipped, joined
from brrrtop.tui.widgets.pane import Pane

OLD_NS = 1_000_000_000
"""Age from which it is told: below, it only says when the agent sent last."""
LEAST_NOTE = 20
"""Cells from which the beginning of a note is better than none."""


class Status(Pane):
    """One line; what fits, most important first."""

    def __init__(self) -> None:
        super().__init__()
        self._says: tuple[str, bool] | None = None
        self._end: Timer | None = None

    def say(self, says: str, failed: bool, seconds: float) -> None:
        """Shows a sentence instead of the facts for so long, or until the next one."""
        if self._end is not None:
            self._end.stop()
        self._says = (says, failed)
        self._end = self.set_timer(seconds, self._say_no_more)
        self.redraw()

    def _say_no_more(self) -> None:
        self._says = None
        self.redraw()

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        if self._says:
            says, failed = self._says
            piece = Text.styled(says, self.palette.style("alarm" if failed else "good", bold=True))
            piece.truncate(width, overflow="ellipsis")
            return [piece]
        if snapshot.notice:
            notice = Text.styled(snapshot.notice, self.palette.style("memory", bold=True))
            return [clipped(notice, width)]
        line = joined(pieces(snapshot, self.palette), width)
        # While nothing is judged the screen has nothing else to say, and says them in full.
        notes = "; ".join(snapshot.source.notes) if snapshot.estimate is not None else ""
        if notes and width - line.cell_len > LEAST_NOTE:
            line.append(f"   {notes}", self.palette.style("muted"))
        return [clipped(line, width)]


def pieces(snapshot: Snapshot, palette: Palette) -> list[Text]:
    source = snapshot.source
    facts = [Text.styled(source.kind, palette.style("text", bold=True))]
    if source.tier:
        facts[0].append(f"/{source.tier}", palette.style("muted"))
    if snapshot.lost_records:
        lost = f"⚠ {units.count(snapshot.lost_records)} records lost"
        facts.append(Text.styled(lost, palette.style("alarm", bold=True)))
    live = source.kind == "live" and snapshot.freshness is Freshness.LIVE
    if live and (snapshot.age_ns or 0) >= OLD_NS:
        facts.append(_pair("last heard", f"{units.duration(snapshot.age_ns)} ago", palette))
    if snapshot.estimate is not None:
        facts.append(_pair("window", window(snapshot), palette))
    if source.kind == "live":
        facts.append(cost(snapshot.overhead, palette))
    facts += own_use(snapshot.overhead, palette) if source.kind == "live" else []
    if not snapshot.lost_records:
        facts.append(_pair("lost", "0", palette))
    if snapshot.zero_timestamps:
        facts.append(_pair("without times", units.count(snapshot.zero_timestamps), palette))
    return facts


def window(snapshot: Snapshot) -> str:
    assert snapshot.estimate is not None
    estimate = snapshot.estimate
    text = units.duration(estimate.account.duration_ns)
    if estimate.steps.count:
        text += f" ({phrases.steps_judged(estimate)})"
    if estimate.observed_share < 1:
        text += f", {units.share(estimate.observed_share)} traced"
    return text


def cost(overhead: Overhead, palette: Palette) -> Text:
    """What watching adds to the trainer's steps."""
    value = units.share(overhead.step_cost_share, 1)
    if overhead.step_cost_error_share is not None and overhead.step_cost_share is not None:
        value += f" ±{units.share(overhead.step_cost_error_share, 1)}"
    return _pair("cost", value, palette)


def own_use(overhead: Overhead, palette: Palette) -> list[Text]:
    """What this process and its helpers use."""
    if overhead.monitor_cpu_share is None:
        return []
    own = f"{units.share(overhead.monitor_cpu_share)} CPU"
    if overhead.monitor_rss_bytes is not None:
        own += f" {units.size(overhead.monitor_rss_bytes)}"
    return [_pair("brrrtop", own, palette)]


def _pair(label: str, value: str, palette: Palette) -> Text:
    text = Text.styled(f"{label} ", palette.style("muted"))
    return text.append(value, palette.style("text"))
