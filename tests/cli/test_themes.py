"""Which theme the screen opens in, and that regimes can be told apart in each of them."""

import pytest

from brrrtop.cli import show
from brrrtop.cli.arguments import parse
from brrrtop.cli.options import THEMES as NAMES
from brrrtop.cli.options import Options
from brrrtop.errors import UsageError
from brrrtop.model.snapshot import Settings
from brrrtop.tui.palette import THEMES


@pytest.fixture(autouse=True)
def no_variables(monkeypatch) -> None:
    monkeypatch.delenv(show.THEME_VARIABLE, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)


def chosen(option: str | None = None, kept: str | None = None) -> str:
    return show.palette_of(Options(theme=option), Settings(theme=kept)).theme


def test_an_option_goes_before_the_environment_that_before_the_file(monkeypatch):
    assert (chosen(), chosen(kept="light"), chosen(kept="gone")) == ("dark", "light", "dark")
    monkeypatch.setenv(show.THEME_VARIABLE, "high-contrast")
    assert chosen(kept="light") == "high-contrast"
    assert chosen("colour-blind", kept="light") == "colour-blind"
    assert parse(["demo", "--theme", "light"]).theme == "light"
    monkeypatch.setenv(show.THEME_VARIABLE, "nope")
    with pytest.raises(UsageError, match="there is no theme 'nope'"):
        chosen(kept="light")
    with pytest.raises(UsageError, match="nope"):
        parse(["demo", "--theme", "nope"])


def test_the_command_line_knows_every_theme():
    assert tuple(THEMES) == NAMES
