"""One line of the regime-shift log."""

from __future__ import annotations

from datetime import datetime

from rich.text import Text

from brrrtop.model.snapshot import Event
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import wrapped

EPOCH_NS = 10**18
"""Smaller times do not count from 1970: the source has a clock of its own."""
HUES = {"stall": "overhead", "throttle": "alarm", "trainer": "memory", "regime": "text"}


def event_lines(event: Event, now_ns: int, palette: Palette, width: int) -> list[Text]:
    """Time of day where the source knows it, how long ago, the kind, and the sentence."""
    past_ns = now_ns - event.t_ns
    ago = f"{units.duration(past_ns):>8} ago" if past_ns > 0 else f"{'now':>12}"
    clock = ""
    if event.t_ns >= EPOCH_NS:
        clock = datetime.fromtimestamp(event.t_ns / 1e9).astimezone().strftime("%H:%M:%S ")
    lead = f"{clock}{ago}  {event.kind:<11} "
    lines = []
    for i, words in enumerate(wrapped(event.says, max(10, width - len(lead)))):
        text = Text(no_wrap=True)
        text.append(lead if not i else " " * len(lead), palette.style("muted"))
        lines.append(text.append(words, palette.style(HUES.get(event.kind, "text"))))
    return lines
