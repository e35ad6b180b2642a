"""Runs the app over prepared snapshots and reads its screen back as characters and styles."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rich.segment import Segment
from textual.pilot import Pilot

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.app import BrrrtopApp
from brrrtop.tui.feed import Feed
from brrrtop.tui.palette import Palette
from tests.tui.drivers import ALL, ListDriver

SIZES = ((80, 24), (120, 40), (200, 60))
PATIENCE_S = 90.0
FEED_PATIENCE_S = 1.0
"""One that fails, or that makes a snapshot every few milliseconds, is never seen at rest."""


@dataclass
class Shown:
    """A running app under test."""

    app: BrrrtopApp
    driver: ListDriver
    pilot: Pilot[int]

    async def press(self, *keys: str) -> str:
        """The screen after these keys."""
        for key in keys:
            await self.pilot.press(key)
        return await self.text()

    async def text(self) -> str:
        """The screen as lines of characters."""
        await self.settle()
        return "\n".join("".join(s.text for s in line) for line in self.strips())

    def advance(self) -> None:
        """Has the driver hand out its next snapshot now."""
        self.app._feed.ask(lambda driver: None)

    async def settle(self) -> None:
        """Until nothing is left to draw."""
        await settle(self.pilot)

    def strips(self) -> list[list[Segment]]:
        return [list(strip) for strip in self.app.screen._compositor.render_strips()]

    async def resize(self, width: int, height: int) -> str:
        await self.pilot.resize_terminal(width, height)
        deadline = time.monotonic() + PATIENCE_S
        while self.app.screen.outer_size != (width, height) and time.monotonic() < deadline:
            await self.pilot.pause(0.001)
        return await self.text()

    async def wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, await self.text()
            await self.pilot.pause(0.01)

    async def until(self, words: str) -> str:
        """The screen as soon as it has these words.

        Raises:
            AssertionError: It never did.
        """
        text, deadline = "", time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            text = await self.text()
            if words in text:
                return text
            await self.pilot.pause(0.02)
        raise AssertionError(f"{words!r} never came up in:\n{text}")


async def settle(pilot: Pilot[Any]) -> None:
    """Until the feed has done what it was asked for, and nothing is left to draw."""
    feed: Feed | None = getattr(pilot.app, "_feed", None)
    deadline = time.monotonic() + FEED_PATIENCE_S
    while feed is not None and feed.is_alive() and time.monotonic() < deadline:
        if feed._requests.empty() and not feed._wake.is_set() and feed._seen.is_set():
            break
        await pilot.pause(0.001)
    for _ in range(4):
        await pilot.pause(0)


@asynccontextmanager
async def shown(
    *snapshots: Snapshot,
    size: tuple[int, int] = (120, 40),
    palette: Palette | None = None,
    capabilities: frozenset[str] = ALL,
    fails: BaseException | None = None,
    interval_s: float = 600.0,
    notifications: bool = False,
) -> AsyncIterator[Shown]:
    """An app that has drawn the first snapshot, over a driver that hands out these in turn."""
    given: Sequence[Snapshot] = snapshots
    driver = ListDriver(given, capabilities, fails)
    app = BrrrtopApp(driver, interval_s=interval_s, palette=palette or Palette())
    async with app.run_test(size=size, notifications=notifications) as pilot:
        screen = Shown(app, driver, pilot)
        deadline = time.monotonic() + PATIENCE_S
        while not (app.snapshot.source.kind or app.fault) and time.monotonic() < deadline:
            await pilot.pause(0.01)
        await screen.settle()
        yield screen
    assert driver.closed.wait(PATIENCE_S), "the driver was not closed"
