"""The ranks screen over a replay of two real ranks."""

from typing import Any

import pytest
from textual.pilot import Pilot

from brrrtop.cli.files import open_job
from brrrtop.cli.options import Options
from brrrtop.tui.app import BrrrtopApp
from tests.ranks.reads import files
from tests.tui.keys import settled


def replayed() -> BrrrtopApp:
    """Over both ranks, at their end."""
    names = tuple(map(str, files("ddp-sleep")))
    driver = open_job(names, Options(files=names, speed=1.0))
    driver.seek(1.0)
    return BrrrtopApp(driver, interval_s=0.05)


async def until(pilot: Pilot[Any], words: str) -> str:
    """The screen once it has them."""
    while words not in (text := (await settled(pilot)).text):
        await pilot.pause(0.02)
    return text


@pytest.mark.parametrize("width", [40, 60, 80])
async def test_it_fits_small_terminals(width):
    async with replayed().run_test(size=(width, 24)) as pilot:
        text = await until(pilot, "Rank 1 is")
    assert max(map(len, text.splitlines())) <= width


async def test_enter_opens_a_rank_and_escape_comes_back():
    async with replayed().run_test(size=(120, 40)) as pilot:
        text = await until(pilot, "Rank 1 is")
        lanes = [line.split()[:2] for line in text.splitlines() if line.startswith(" rank ")]
        assert lanes[-2:] == [["rank", "1"], ["rank", "0"]], "where the time of each went"
        await pilot.press("enter")
        await until(pilot, "rank1.brrr")
        await pilot.press("right_curly_bracket")
        await until(pilot, "rank0.brrr")
        await pilot.press("escape")
        await until(pilot, "ranks of the job")
