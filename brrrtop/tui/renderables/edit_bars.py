"""A step now and with an edit, as bars on one scale: before and after."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import fitted
from brrrtop.views import whatif

NAME, TIME, GAIN = 25, 9, 17
"""Cells of the columns beside the bar."""
WORTH = 0.01


def edit_bars(snapshot: Snapshot, palette: Palette, width: int, count: int) -> list[Text]:
    """The step as it is, then at most `count` edits that win something, best first; none: no lines."""
    rows = [row for row in snapshot.whatif if row.saves >= WORTH][:count]
    if not rows:
        return []
    room = max(4, width - NAME - TIME - GAIN - 3)
    now_ns = rows[0].present_ns
    lines = [_bar("now", now_ns, now_ns, "", room, palette)]
    for row in rows:
        gain = f"{whatif.percent(row.saves)} ({whatif.span(row.saves_low, row.saves_high)})"
        lines.append(_bar(row.edit, row.step_ns, now_ns, gain, room, palette))
    return lines


def _bar(name: str, step_ns: float, now_ns: float, gain: str, room: int, palette: Palette) -> Text:
    full = min(room, max(1, round(room * step_ns / now_ns)))
    sign, rest = ("#", ".") if palette.ascii else ("━", "╌")
    text = Text.styled(fitted(name, NAME), palette.style("text" if gain else "muted"))
    text.append(f"{units.duration(step_ns):>{TIME}} ", palette.style("text", bold=True))
    text.append(sign * full, palette.style("good" if gain else "muted"))
    text.append(rest * (room - full), palette.style("rule"))
    return text.append(f" {gain:>{GAIN}}", palette.style("good", bold=True))
