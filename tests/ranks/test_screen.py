"""The ranks screen over a replay of two real ranks."""

from __future__ import annotations

import pytest

from brrrtop.cli.files import open_job
from brrrtop.cli.options import Options
from brrrtop.tui.app import BrrrtopApp
from tests.ranks.reads import files
from tests.tui.keys import settled


@pytest.mark.parametrize("width", [40, 60, 80])
async def test_it_fits_small_terminals(width: int) -> None:
    names = tuple(map(str, files("ddp-sleep")))
    driver = open_job(names, Options(files=names, speed=1.0))
    driver.seek(1.0)
    async with BrrrtopApp(driver, interval_s=0.05).run_test(size=(width, 24)) as pilot:
        while "Rank 1 is" not in (text := (await settled(pilot)).text):
            await pilot.pause(0.02)
    assert max(map(len, text.splitlines())) <= width
