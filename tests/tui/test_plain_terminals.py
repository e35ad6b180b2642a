"""Terminals without colour, without Unicode, or with neither lose no meaning."""

import pytest

from brrrtop.model.host_tables import NO_TABLES
from brrrtop.tui.palette import Palette
from tests.tui import snapshots
from tests.tui.shown import shown

ASCII = Palette(colour=False, ascii=True)
KEYS = ("1", "question_mark", "r", "a", "l", "enter", "slash", "S")
"""One after the other, each from the main screen."""


async def test_ascii_means_every_character_of_every_view() -> None:
    async with shown(snapshots.snapshot(), palette=ASCII, size=(120, 40)) as screen:
        seen = {key: await screen.press("escape", "1", key) for key in KEYS}
    assert len(set(seen.values())) == len(KEYS)
    for key, text in seen.items():
        assert text.strip() and text.isascii(), key


async def test_no_colour_means_no_colour_at_all() -> None:
    async with shown(snapshots.snapshot(), palette=Palette(colour=False)) as screen:
        for key in KEYS:
            await screen.press("escape", "1", key)
            styles = [segment.style for line in screen.strips() for segment in line]
            assert not any(style and (style.color or style.bgcolor) for style in styles), key


async def test_without_colour_words_carry_the_bounds_and_bold_the_badge() -> None:
    snapshot = snapshots.snapshot(tables=NO_TABLES)
    async with shown(snapshot, palette=Palette(colour=False), size=(120, 45)) as screen:
        text = await screen.text()
        bold = "".join(
            segment.text
            for line in screen.strips()
            for segment in line
            if segment.style and segment.style.bold
        )
    assert "WAITS FOR DATA" in bold
    rows = [line.split() for line in text.splitlines()]
    for share, bound in (
        ("31%", "compute"),
        ("18%", "bandwidth"),
        ("9%", "network"),
        ("5%", "copy"),
        ("4%", "too"),
    ):
        assert any(row[:1] == [share] and bound in row for row in rows), bound


async def test_without_colour_the_cursor_is_reversed() -> None:
    async with shown(snapshots.snapshot(), palette=Palette(colour=False)) as screen:
        await screen.press("down")
        reversed_text = "".join(
            segment.text
            for line in screen.strips()
            for segment in line
            if segment.style and segment.style.reverse
        )
    assert "CUDAFunctor_add" in reversed_text


async def test_the_environment_can_ask_for_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown(snapshots.snapshot()) as screen:
        await screen.text()
        assert not screen.app.palette.colour


@pytest.mark.parametrize("key", ["S", "colon"])
async def test_without_colour_a_dialog_has_an_edge(key: str) -> None:
    """Nothing else tells it from the screen that it covers."""
    async with shown(snapshots.snapshot(), palette=ASCII, size=(80, 24)) as screen:
        text = await screen.press(key)
    edges = sum(line.count("|") == 2 or "------" in line for line in text.splitlines())
    assert edges >= 2, text
