"""Themes that somebody wrote: taken up, refused with what to write, warned about."""

from __future__ import annotations

from pathlib import Path

import pytest

from brrrtop.cli import settings, themes
from brrrtop.cli.arguments import parse
from brrrtop.cli.options import Options
from brrrtop.cli.themes import palette_of
from brrrtop.errors import UsageError
from brrrtop.model.settings import Settings
from brrrtop.tui.app import BrrrtopApp
from brrrtop.tui.palette import DARK, LIGHT, THEMES, Palette
from brrrtop.tui.sixteen import look_alikes
from tests.tui import snapshots
from tests.tui.drivers import ListDriver
from tests.tui.shown import shown

DUSK = """
base = "dark"
[colours]
background = "#1D2021"
compute = "#83a598"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(themes.VARIABLE, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    themes.folder().mkdir(parents=True)
    (themes.folder() / "dusk.toml").write_text(DUSK)
    return themes.folder()


def chosen(option: str | None = None, kept: str | None = None) -> tuple[str, str]:
    palette, notice = palette_of(Options(theme=option), Settings(theme=kept))
    return palette.theme, notice


def test_what_is_not_given_is_as_in_the_base() -> None:
    theme = themes.OwnThemes().themes["dusk"]
    assert theme.colours["background"] == "#1d2021"
    assert theme.colours["memory"] == DARK["memory"]
    assert theme.dark and not themes.OwnThemes().faults
    light = themes.folder() / "day.toml"
    light.write_text('base = "light"')
    assert themes.read(light).colours == LIGHT and not themes.read(light).dark


def test_an_option_goes_before_the_environment_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert chosen() == ("dark", "")
    assert chosen(kept="dusk") == ("dusk", "")
    monkeypatch.setenv(themes.VARIABLE, "light")
    assert chosen(kept="dusk") == ("light", "")
    assert chosen("dusk", kept="high-contrast") == ("dusk", "")
    assert parse(["demo", "--theme", "dusk"]).theme == "dusk"
    monkeypatch.setenv(themes.VARIABLE, "nope")
    with pytest.raises(UsageError, match="there is no theme 'nope'"):
        chosen(kept="dusk")


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("base = ", "cannot be read", "Invalid value"),
        ('base = "drak"', "base = 'drak' is no theme", "one of dark, light"),
        ("[colors]\n", "there is no 'colors'", "did you mean colours?"),
        ('[colours]\ncompute = "#12"', "compute = '#12' is no colour", 'write "#rrggbb"'),
        ("[colours]\ncompute = 7", "compute = 7 is no colour", 'write "#rrggbb"'),
        ('[colours]\ncomputer = "#123456"', "there is no 'computer'", "did you mean compute?"),
        ("[sixteen]\nmemory = 16", "memory = 16 is none of 16 colours", "write 0 to 15"),
        ("[sixteen]\nmemory = true", "memory = True is none of 16 colours", "write 0 to 15"),
        ("colours = 3", "colours is no table", "write [colours]"),
        ("\x00", "cannot be read", ""),
    ],
)
def test_a_mistake_is_refused_with_what_to_write(
    text: str, says: str, hint: str, folder: Path
) -> None:
    (folder / "dusk.toml").write_text(text)
    with pytest.raises(UsageError) as fault:
        chosen("dusk")
    assert says in fault.value.message and "dusk.toml" in fault.value.message
    assert hint in fault.value.action and fault.value.exit_code == 2
    with pytest.raises(UsageError, match=r"dusk\.toml"):
        parse(["demo", "--theme", "dusk"])
    name, notice = chosen(kept="dusk")
    assert name == "dark" and says in notice, "the screen opens in any case, and says why"


def test_a_name_that_is_taken_or_none_is_refused(folder: Path) -> None:
    (folder / "light.toml").write_text(DUSK)
    (folder / "a b.toml").write_text(DUSK)
    own = themes.OwnThemes()
    assert set(own.themes) == {"dusk"}
    assert "brrrtop has" in own.faults["light"].message
    assert "no name for a theme" in own.faults["a b"].message
    assert chosen("light") == ("light", ""), "brrrtop's own is still there"


def test_brrrtops_own_themes_tell_regimes_apart_everywhere() -> None:
    assert [look_alikes(theme) for theme in THEMES.values()] == [[]] * len(THEMES)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[colours]\ncompute = "#112233"\nmemory = "#112233"', "compute and memory look the same"),
        (
            '[colours]\ncompute = "#56b4e9"\nmemory = "#56b4ea"',
            "compute and memory look the same with 256 colours",
        ),
        ("[sixteen]\ncompute = 3", "compute and memory look the same with 16 colours"),
        ("[sixteen]\ncompute = 13", "compute and overhead look the same with 8 colours"),
        ("[sixteen]\nmemory = 0", "memory and background look the same with 16 colours"),
    ],
)
def test_regimes_that_look_the_same_are_warned_about(text: str, says: str, folder: Path) -> None:
    (folder / "dusk.toml").write_text(text)
    assert chosen("dusk") == ("dusk", f"theme dusk: {says}")


async def test_the_screen_has_its_colours_and_t_goes_through_it(folder: Path) -> None:
    (folder / "dusk.toml").write_text(DUSK + 'overhead = "#83a598"')
    palette, notice = palette_of(Options(theme="dusk"), Settings())
    app = BrrrtopApp(
        ListDriver([snapshots.snapshot()]),
        palette=palette, notice=notice, remember=settings.save, interval_s=5.0,
    )  # fmt: skip
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert app.screen.styles.background.hex.lower() == "#1d2021"
        assert "compute and overhead look the same" in str(app.query_one("Status").render_line(0))
        await pilot.press("t")
        assert app.palette.theme == "dark", "the first of brrrtop's own"
        await pilot.press(*["t"] * len(THEMES))
        assert app.palette.theme == "dusk" and settings.load().theme == "dusk"


async def test_with_sixteen_colours_its_own_numbers_are_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import textual.constants

    monkeypatch.setattr(textual.constants, "COLOR_SYSTEM", "standard")
    (folder / "dusk.toml").write_text("[sixteen]\ncompute = 12")
    own = tuple(themes.OwnThemes().themes.values())
    async with shown(snapshots.snapshot(), palette=Palette("dusk", own=own)) as screen:
        await screen.text()
        fields = {
            segment.style.bgcolor.number
            for line in screen.strips()
            for segment in line
            if segment.style and segment.style.bgcolor and "compute 30%" in segment.text
        }
    assert fields == {12}
