"""The ranks screen over a replay of two real ranks: rows, Enter, Escape, keys between ranks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from brrrtop.cli.files import open_job
from brrrtop.cli.options import Options
from brrrtop.tui.app import BrrrtopApp
from brrrtop.tui.screens.main import MainView
from brrrtop.tui.screens.ranks import RankTable
from tests.ranks.reads import files

PATIENCE_S = 60.0


@asynccontextmanager
async def replayed(width: int, height: int) -> AsyncIterator[tuple[BrrrtopApp, Pilot[int]]]:
    """The app over both ranks, at their end."""
    names = tuple(map(str, files("ddp-sleep")))
    driver = open_job(names, Options(files=names, speed=1.0))
    driver.seek(1.0)
    app = BrrrtopApp(driver, interval_s=0.05)
    async with app.run_test(size=(width, height)) as pilot:
        yield app, pilot


async def until(pilot: Pilot[int], holds: Callable[[], bool]) -> None:
    """Waits for a condition.

    Raises:
        AssertionError: It did not come.
    """
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s
        await pilot.pause(0.02)
        await asyncio.sleep(0)


def text(app: BrrrtopApp) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


async def test_enter_opens_a_rank_escape_comes_back_and_keys_step() -> None:
    async with replayed(120, 30) as (app, pilot):
        await until(pilot, lambda: bool(app.screen.query(RankTable)) and "Rank 1 is" in text(app))
        shown = text(app)
        rows = [line for line in shown.splitlines() if "/48 " in line]
        assert [row.replace("▸", " ").split()[0] for row in rows] == ["1", "0"]
        assert "late each step" in shown and "a step with no" in " ".join(shown.split())
        await pilot.press("down", "enter")
        await until(
            pilot, lambda: isinstance(app.screen, MainView) and app.snapshot.source.rank == 0
        )
        await pilot.press("right_curly_bracket")
        await until(pilot, lambda: app.snapshot.source.rank == 1)
        await pilot.press("d")
        await until(pilot, lambda: app.snapshot.source.rank == 0)
        await pilot.press("escape")
        await until(pilot, lambda: bool(app.screen.query(RankTable)))
        await pilot.press("1")
        await until(pilot, lambda: isinstance(app.screen, MainView))
        await pilot.press("R")
        await until(pilot, lambda: bool(app.screen.query(RankTable)))


async def test_it_fits_small_terminals() -> None:
    for width in (40, 60, 80):
        async with replayed(width, 24) as (app, pilot):
            await until(pilot, lambda app=app: "Rank 1 is" in text(app))  # type: ignore[misc]
            assert max(map(len, text(app).splitlines())) <= width
