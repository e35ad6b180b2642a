"""Where samples found the host, on the screen: the verdict's line and the advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from brrrtop.model.snapshot import Snapshot
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from tests.tui.shown import shown

READS = Path(__file__).resolve().parents[1] / "recordings" / "host" / "reads.brrr"


@pytest.fixture(scope="module")
def read() -> Snapshot:
    source = open_source(READS)
    snapshot = analyze(source)
    source.close()
    return snapshot


async def test_the_verdict_says_at_which_line_the_host_is(read: Snapshot) -> None:
    async with shown(read, size=(120, 40)) as screen:
        text = await screen.text()
    assert "WAITS FOR FILES" in text and "at nb/reader.py:30" in text


async def test_at_80_columns_the_line_is_not_cut(read: Snapshot) -> None:
    async with shown(read, size=(80, 24)) as screen:
        text = await screen.text()
    assert text.count("nb/reader.py:30") == 2, "in the headline and in the advice"


async def test_advice_names_the_line_and_what_to_do_with_it(read: Snapshot) -> None:
    async with shown(read, size=(120, 60)) as screen:
        text = " ".join((await screen.text()).split())
    assert (
        "in 38 of 41 samples the main thread is at nb/reader.py:30, rows = np.load(path);" in text
    )
    assert "do `rows = np.load(path)` ahead" in text
