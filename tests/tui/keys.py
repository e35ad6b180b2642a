"""Every key by the class that binds it, and what is to be seen on the screen once it was pressed."""

import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from textual.binding import Binding
from textual.pilot import Pilot

import brrrtop.tui
from brrrtop.tui.palette import Palette
from tests.tui.shown import PATIENCE_S, settle

Bound = tuple[str, str]
"""Class and key."""


def bound() -> Iterator[Bound]:
    """Each key that a class of the screens binds itself."""
    for module in pkgutil.walk_packages(brrrtop.tui.__path__, "brrrtop.tui."):
        for one in vars(import_module(module.name)).values():
            if isinstance(one, type) and one.__module__ == module.name:
                for binding in one.__dict__.get("BINDINGS", ()):
                    keys = binding.key if isinstance(binding, Binding) else binding[0]
                    yield from ((one.__name__, key) for key in keys.split(","))


@dataclass(frozen=True)
class Seen:
    """The screen as characters, and what is chosen on it: lines under the cursor or behind a mark."""

    text: str
    chosen: str

    def number(self, pattern: str) -> float | None:
        match = re.search(pattern, self.text)
        return float(match[1].replace(",", "")) if match else None


Effect = Callable[[Seen, Seen], bool]
"""Whether a key did what it is for, by the screen before and the screen now."""


def shows(words: str) -> Effect:
    return lambda _before, now: words in now.text


def hides(words: str) -> Effect:
    return lambda _before, now: words not in now.text


def chooses(words: str) -> Effect:
    return lambda _before, now: words in now.chosen


def grows(pattern: str, sign: int = 1) -> Effect:
    """The number that the pattern captures is larger than before; with -1 smaller."""

    def holds(before: Seen, now: Seen) -> bool:
        first, second = before.number(pattern), now.number(pattern)
        return first is not None and second is not None and sign * (second - first) > 0

    return holds


def shrinks(pattern: str) -> Effect:
    return grows(pattern, -1)


def _field(segment: Segment) -> ColorTriplet | None:
    colour = segment.style.bgcolor if segment.style else None
    return colour.triplet if colour else None


def seen(pilot: Pilot[Any]) -> Seen:
    palette: Palette = pilot.app.palette  # type: ignore[attr-defined]
    under = palette.cursor.bgcolor.triplet
    lines, chosen = [], []
    for strip in pilot.app.screen._compositor.render_strips():
        line = "".join(segment.text for segment in strip)
        lines.append(line)
        if "▸" in line or any(_field(one) == under for one in strip):
            chosen.append(line)
    return Seen("\n".join(lines), "\n".join(chosen))


async def settled(pilot: Pilot[Any]) -> Seen:
    """The screen once nothing is left to draw."""
    await settle(pilot)
    return seen(pilot)


async def press(pilot: Pilot[Any], owner: str, key: str, effect: Effect) -> None:
    """Presses one key and waits until its effect is to be seen.

    Raises:
        AssertionError: It was there before, or never came.
    """
    before = seen(pilot)
    assert not effect(before, before), f"{owner} {key}: to be seen before it is pressed"
    await pilot.press(key)
    deadline, now = time.monotonic() + PATIENCE_S, await settled(pilot)
    while not effect(before, now):
        assert time.monotonic() < deadline, f"{owner} {key} did nothing:\n{now.text}\n{now.chosen}"
        await pilot.pause(0.02)
        now = await settled(pilot)
