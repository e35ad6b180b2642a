"""Terminals with 256 colours, sixteen, eight, none or ASCII alone tell the regimes apart."""

import itertools
import re

import pytest
import textual.constants
from rich.color import Color, ColorSystem

from brrrtop.cli import show
from brrrtop.model.snapshot import Settings
from brrrtop.tui.palette import THEMES, Palette
from tests.cli.terminal import on_a_terminal
from tests.tui import snapshots
from tests.tui.shown import shown

REGIMES = ("compute", "memory", "overhead", "unknown")
PAIRS = tuple(itertools.combinations(REGIMES, 2))


@pytest.mark.parametrize(("theme", "system"), [
    *((theme, ColorSystem.EIGHT_BIT) for theme in THEMES),
    ("high-contrast", ColorSystem.STANDARD), ("light", ColorSystem.STANDARD),
])  # fmt: skip
def test_regimes_differ_on_terminals_of_few_colours(theme, system):
    palette = Palette(theme).palette
    for one, other in (*PAIRS, *((name, "background") for name in REGIMES), ("on_fill", "compute")):
        sent = [Color.parse(palette[name]).downgrade(system).number for name in (one, other)]
        assert sent[0] != sent[1], (one, other)


@pytest.mark.parametrize(("theme", "drawn"), [("dark", "high-contrast"), ("light", "light")])
async def test_of_sixteen_colours_dark_is_drawn_in_high_contrast(theme, drawn, monkeypatch):
    monkeypatch.setattr(textual.constants, "COLOR_SYSTEM", "standard")
    async with shown(snapshots.snapshot(), palette=Palette(theme)) as screen:
        assert screen.app.console.color_system == "standard"
        assert screen.app.palette.theme == drawn


def test_on_a_plain_xterm_the_bar_has_three_colours():
    """The bytes that reach the terminal, of the program itself."""
    with on_a_terminal("demo", "sync-bound", TERM="xterm", COLORTERM="") as screen:
        screen.resize(40, 120)
        while len(fields := _fields(screen.seen)) < 3:
            screen.read_for(0.05)
    assert len(set(fields.values())) == 3, fields


def _fields(written: bytes) -> dict[bytes, bytes]:
    """The background's number before each name in the bar of the split."""
    pattern = rb"\x1b\[(?:\d+;)*(4[1-7]|10[1-7])m\s*(compute|reads|waits)"
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
def test_a_modern_terminal_has_256(environment, expected):
    assert show.colour_system(environment) == expected


@pytest.mark.parametrize(
    ("text", "dark"),
    [("15;0", True), ("0;15", False), ("0;default;15", False), ("7;8", True), ("0;7", False), ("", True), ("x", True)],
)  # fmt: skip
def test_the_background_is_what_the_terminal_says(text, dark):
    assert show.theme_name({"COLORFGBG": text}, None) == ("dark" if dark else "light")
    assert show.theme_name({"COLORFGBG": text}, "colour-blind") == "colour-blind"


async def test_theme_zoom_and_hidden_panes_are_there_at_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert show.load_settings() == Settings()
    app = None
    async with shown(snapshots.snapshot()) as screen:
        app = screen.app
        app._remember = show.save_settings
        await screen.press("t", "t", "z")
        await screen.press("colon", *"hide pane: figures", "enter")
    kept = show.load_settings()
    assert kept == Settings("high-contrast", ("figures",), "kernels")
    assert app.settings == kept


def test_a_settings_file_that_makes_no_sense_is_as_if_it_were_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = show.settings_path()
    path.parent.mkdir(parents=True)
    deep = "x = " + "[" * 5000 + "]" * 5000
    for text in ("theme = ", "hidden = 3\nzoomed = 'roof'", "\x00", deep):
        path.write_text(text)
        assert show.load_settings() == Settings()
    path.write_text('theme = "light"\nhidden = ["figures", "nonsense", "history"]')
    assert show.load_settings() == Settings("light", ("figures", "history"))
    path.unlink()
    path.mkdir()
    show.save_settings(Settings("dark"))
