"""What can be done on the screens, once for the list of all commands and for the line of keys."""

from __future__ import annotations

from brrrtop.model.settings import PANES, ZOOMED, Settings
from brrrtop.tui.palette import THEMES

Command = tuple[str, str, str]
"""What it does, its key (empty: none), the action behind it."""
Key = tuple[str, str, str]
"""Key as shown, what it does in a word, the action behind it."""

_COMMANDS = (
    ("one step as a picture", "p", "app.step_picture", "one step"),
    ("all advice", "a", "app.advice", "advice"),
    ("what if: every edit", "w", "app.whatif", "what-if"),
    ("code while the GPU idles", "C", "app.code", "code"),
    ("the run in figures: phases, steps, counters", "i", "app.details", "figures"),
    ("loader: waits and workers", "L", "app.loader", "loader"),
    ("ops, modules and memory", "T", "app.tables", "tables"),
    ("before and after", "b", "app.compare", "before/after"),
    ("roofline", "r", "app.roofline", "roofline"),
    ("log", "l", "app.log", "log"),
    ("help", "?", "app.help", "help"),
    ("main screen", "1", "app.main", "main"),
    ("mark a baseline", "m", "app.baseline", "mark"),
    ("copy what to try first", "y", "app.copy", "copy"),
    ("filter kernels", "/", "screen.filter", "filter"),
    ("sort kernels by the next column", "s", "screen.sort(1)", "sort"),
    ("reverse the order of kernels", "I", "screen.reverse", "reverse"),
    ("next GPU", "d", "app.device(1)", "next GPU"),
    ("pause, go on", "space", "app.pause", "pause"),
    ("trace a few steps now", "n", "app.burst", "trace"),
    ("trace without pauses, or in bursts again", "c", "app.continuous", "continuous"),
    ("record op shapes", "o", "app.shapes", "shapes"),
    ("save: recording, picture (SVG), report (HTML)", "S", "app.save", "save"),
    ("all panes", "Z", "screen.zoom(0)", "all panes"),
    ("draw the screen anew", "F5", "app.repaint", "repaint"),
    ("quit", "q", "app.quit", "quit"),
)
"""What each does, its key, its action, and what it does in a word."""
_KEYS: dict[str, Key] = {
    **{key: (key, word, action) for _, key, action, word in _COMMANDS},
    "esc": ("esc", "back", "app.main"),
    ":": (":", "commands", "app.commands"),
    "z": ("z", "zoom", "screen.zoom(1)"),
}


def commands(settings: Settings) -> tuple[Command, ...]:
    """The commands that there are, with what each of them would do now."""
    panes = []
    for name in PANES:
        does = "show" if name in settings.hidden else "hide"
        panes.append((f"{does} pane: {name}", "", f"screen.hide('{name}')"))
        if name in ZOOMED:
            panes.append((f"zoom pane: {name}", "z", f"screen.zoom_pane('{name}')"))
    looks = ((f"theme: {name}", "t", f"app.theme('{name}')") for name in THEMES)
    return (*(command[:3] for command in _COMMANDS), *panes, *looks)


def keys(names: str) -> tuple[Key, ...]:
    """These keys as the last line of a screen has them."""
    return tuple(_KEYS[name] for name in names.split())


MAIN_KEYS: tuple[Key, ...] = (
    *keys("? q space /"),
    ("enter", "kernel", "screen.open"),
    *keys("p a w"),
)
MAIN_LAST = keys("m i C y : z r l L b s")
"""Of the main screen; these are left out before all others where not all fit."""
VIEW_KEYS = keys("esc q space ? : p a w C i T r l b")
"""Of the screens that lie over it."""
CHOOSE: Key = ("↑↓", "choose", "focused.choose(1)")
FOLLOW: Key = ("enter", "watch its successor", "app.follow")
BURSTS = keys("n o")
"""Where the trainer is traced in bursts."""
