"""Terminals with 256 colours, sixteen, eight, none or ASCII alone tell the regimes apart."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import textual.constants
from rich.color import Color, ColorSystem
from rich.segment import Segment
from rich.style import Style

from brrrtop.cli import settings, show
from brrrtop.model.settings import Settings
from brrrtop.tui.painted import mapped
from brrrtop.tui.palette import DARK, LIGHT, MARKS, THEMES, Palette
from tests.cli.terminal import on_a_terminal
from tests.tui import snapshots
from tests.tui.shown import shown

REGIMES = ("compute", "memory", "overhead", "unknown")
PAIRS = tuple(itertools.combinations(REGIMES, 2))


def _as_sent(style: Style, theme: str, system: str) -> tuple[str, ...]:
    """The codes of the style's own colours, text and field, on such a terminal."""
    if system in ("16", "8"):
        style = mapped(style, THEMES[theme])
    numbered = ColorSystem.EIGHT_BIT if system == "256" else ColorSystem.STANDARD
    codes = []
    for colour in (style.color, style.bgcolor):
        if colour is None:
            continue
        sent = Color.downgrade(colour, numbered)
        codes.append(str(sent.number % 8 if system == "8" else sent.number))
    return tuple(codes)


@pytest.mark.parametrize("system", ["256", "16", "8"])
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_regimes_differ_on_terminals_of_few_colours(
    one: str, other: str, theme: str, system: str
) -> None:
    palette = Palette(theme)
    assert _as_sent(palette.style(one), theme, system) != _as_sent(
        palette.style(other), theme, system
    )
    first, second = (_as_sent(palette.filled(name), theme, system) for name in (one, other))
    assert first[1] != second[1], "the fields"
    assert first[0] != first[1], "text on its field"


@pytest.mark.parametrize("system", ["16", "8"])
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_names_on_the_cursor_have_the_colour_of_text(theme: str, system: str) -> None:
    """Cyan on blue, as of a compute-bound kernel's name, is hard to read."""
    palette = Palette(theme)
    text = _as_sent(palette.style("text") + palette.cursor, theme, system)
    for hue in MARKS:
        assert _as_sent(palette.style(hue) + palette.cursor, theme, system) == text
    assert text[0] != text[1]


@pytest.mark.parametrize("system", ["256", "16", "8"])
@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("hue", [*REGIMES, "text", "muted", "underfilled", "comm", "good", "alarm"])
def test_every_meaning_stands_out_from_the_background(hue: str, theme: str, system: str) -> None:
    palette = Palette(theme)
    for under in ("background", "raised"):
        field = Style(bgcolor=palette.palette[under])
        assert _as_sent(palette.style(hue), theme, system) != _as_sent(field, theme, system)


@pytest.mark.parametrize("dark", [True, False])
async def test_the_screen_has_only_the_sixteen(dark: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textual.constants, "COLOR_SYSTEM", "standard")
    palette = {value.lower() for value in (DARK if dark else LIGHT).values()}
    async with shown(snapshots.snapshot(), palette=Palette("dark" if dark else "light")) as screen:
        assert screen.app.console.color_system == "standard"
        for key in ("1", "r", "a", "question_mark"):
            await screen.press(key)
            seen = set()
            for segment in itertools.chain.from_iterable(screen.strips()):
                for colour in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                    if colour is not None:
                        seen.add(colour.number)
                        assert colour.triplet is None or colour.triplet.hex not in palette
            assert len(seen) >= 4, key


@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_below_a_dialog_the_sixteen_stay_what_they_are(
    theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(textual.constants, "COLOR_SYSTEM", "standard")

    def sent(segments: list[Segment]) -> list[tuple[str, int | None, int | None]]:
        styles = [(one.text, one.style or Style()) for one in segments]
        return [
            (text, *(c and c.downgrade(ColorSystem.STANDARD).number for c in (s.color, s.bgcolor)))
            for text, s in styles
        ]

    async with shown(snapshots.snapshot(), size=(120, 40), palette=Palette(theme)) as screen:
        await screen.text()
        before = [sent(list(line)) for line in screen.strips()[:3]]
        await screen.press("colon")
        assert [sent(list(line)) for line in screen.strips()[:3]] == before


def test_on_a_plain_xterm_the_bar_has_three_colours() -> None:
    """The bytes that reach the terminal, of the program itself."""
    with on_a_terminal("demo", "sync-bound", TERM="xterm", COLORTERM="") as screen:
        screen.resize(40, 120)
        while len(fields := _fields(screen.seen)) < 3:
            screen.read_for(0.05)
    assert len(set(fields.values())) == 3, fields


def _fields(written: bytes) -> dict[bytes, bytes]:
    """The background's number before each name in the bar of the split."""
    pattern = rb"\x1b\[(?:\d+;)*(4[1-7]|10[1-7])m\s*(compute|memory|waits)"
    return {name: number for number, name in re.findall(pattern, written)}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TERM": "alacritty"}, "256"),
        ({"TERM": "foot"}, "256"),
        ({"TERM": "xterm-ghostty"}, "256"),
        ({"TERM": "tmux"}, "256"),
        ({"TERM": "alacritty", "COLORTERM": "truecolor"}, None),
        ({"TERM": "xterm"}, None),
        ({"TERM": "linux"}, None),
        ({"TERM": "screen"}, None),
        ({"TERM": "xterm-256color"}, None),
        ({}, None),
    ],
)
def test_a_modern_terminal_has_256(environment: dict[str, str], expected: str | None) -> None:
    assert show.colour_system(environment) == expected


@pytest.mark.parametrize(
    ("text", "dark"),
    [("15;0", True), ("0;15", False), ("0;default;15", False), ("7;8", True), ("0;7", False), ("", True), ("x", True)],
)  # fmt: skip
def test_the_background_is_what_the_terminal_says(text: str, dark: bool) -> None:
    assert settings.theme_name({"COLORFGBG": text}, None) == ("dark" if dark else "light")
    assert settings.theme_name({"COLORFGBG": text}, "colour-blind") == "colour-blind"


async def test_theme_sort_order_and_hidden_panes_are_there_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert settings.load() == Settings()
    app = None
    async with shown(snapshots.snapshot()) as screen:
        app = screen.app
        app._remember = settings.save
        await screen.press("t", "t", "z", "s")
        await screen.press("colon", *"hide pane: figures", "enter")
    kept = settings.load()
    assert kept == Settings("high-contrast", ("figures",), "kernels", "mean")
    assert app.settings == kept


def test_a_settings_file_that_makes_no_sense_is_as_if_it_were_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = settings.path()
    path.parent.mkdir(parents=True)
    deep = "x = " + "[" * 5000 + "]" * 5000
    for text in ("theme = ", "hidden = 3\nzoomed = 'roof'", "\x00", deep):
        path.write_text(text)
        assert settings.load() == Settings()
    path.write_text('theme = "light"\nhidden = ["figures", "nonsense", "history"]')
    assert settings.load() == Settings("light", ("figures", "history"))
    path.unlink()
    path.mkdir()
    settings.save(Settings("dark"))
