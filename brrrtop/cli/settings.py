"""The settings file: what was chosen on the screen, and may be written by hand.

    theme = "high-contrast"     # dark, light, high-contrast, colour-blind, or one of your own (`themes`)
    hidden = ["gauges"]         # history, step, account, advice, loader, kernels, side, pace, gauges
    zoomed = ""
    sort = "mean"

It is `config.toml` in the user's configuration folder. Options of a command and the environment go
before it. What cannot be read is as if it were not there: a screen opens in any case.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs

from brrrtop.model.settings import PANES, ZOOMED, Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]


def path() -> Path:
    return Path(platformdirs.user_config_dir("brrrtop")) / "config.toml"


def read(file: Path) -> dict[str, Any]:
    """A TOML file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no TOML.
    """
    given: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    return given


def load() -> Settings:
    """What is in the file; the defaults for what is not, or makes no sense."""
    given: dict[str, object] = {}
    with suppress(OSError, ValueError):
        given = read(path())
    hidden = given.get("hidden")
    names = hidden if isinstance(hidden, list) else []
    theme, zoomed, sort = (given.get(key) for key in ("theme", "zoomed", "sort"))
    return Settings(
        theme=theme if isinstance(theme, str) else None,
        hidden=tuple(name for name in PANES if name in names),
        zoomed=zoomed if isinstance(zoomed, str) and zoomed in ZOOMED else "",
        sort=sort if isinstance(sort, str) else Settings().sort,
    )


def save(settings: Settings) -> None:
    """For the next time; where nothing can be written, not."""
    lines = [] if settings.theme is None else [f'theme = "{settings.theme}"']
    listed = ", ".join(f'"{name}"' for name in settings.hidden)
    lines += [f"hidden = [{listed}]", f'zoomed = "{settings.zoomed}"', f'sort = "{settings.sort}"']
    with suppress(OSError):
        path().parent.mkdir(parents=True, exist_ok=True)
        path().write_text("\n".join(lines) + "\n", "utf-8")
