"""Everything that can be done on the screen, by name: the command palette's list."""

from __future__ import annotations

from collections.abc import Sequence

from brrrtop.model.settings import PANES, ZOOMED, Settings
from brrrtop.tui.palette import THEMES
from brrrtop.tui.screens.commands import Command

_FIXED: tuple[Command, ...] = (
    ("one step as a picture", "p", "app.step_picture"),
    ("all advice", "a", "app.advice"),
    ("what if: every edit", "w", "app.whatif"),
    ("code while the GPU idles", "C", "app.code"),
    ("loader: waits and workers", "L", "app.loader"),
    ("ops, modules and memory", "T", "app.tables"),
    ("before and after", "b", "app.compare"),
    ("roofline", "r", "app.roofline"),
    ("log", "l", "app.log"),
    ("help", "?", "app.help"),
    ("main screen", "1", "app.main"),
    ("mark a baseline", "m", "app.baseline"),
    ("copy what to try first", "y", "app.copy"),
    ("filter kernels", "/", "screen.filter"),
    ("sort kernels by the next column", "s", "screen.sort(1)"),
    ("reverse the order of kernels", "I", "screen.reverse"),
    ("next GPU", "d", "app.device(1)"),
    ("pause, go on", "space", "app.pause"),
    ("trace a few steps now", "n", "app.burst"),
    ("trace without pauses, or in bursts again", "c", "app.continuous"),
    ("record op shapes", "o", "app.shapes"),
    ("save: recording, picture (SVG), report (HTML)", "S", "app.save"),
    ("all panes", "Z", "screen.zoom(0)"),
    ("draw the screen anew", "F5", "app.repaint"),
    ("quit", "q", "app.quit"),
)


def commands(settings: Settings, themes: Sequence[str] = tuple(THEMES)) -> tuple[Command, ...]:
    """The commands that there are, with what each of them would do now."""
    panes = []
    for name in PANES:
        does = "show" if name in settings.hidden else "hide"
        panes.append((f"{does} pane: {name}", "", f"screen.hide('{name}')"))
        if name in ZOOMED:
            panes.append((f"zoom pane: {name}", "z", f"screen.zoom_pane('{name}')"))
    looks = ((f"theme: {name}", "t", f"app.theme('{name}')") for name in themes)
    return (*_FIXED, *panes, *looks)
