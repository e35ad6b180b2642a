"""What both apps are: in a palette, on a terminal that may have few colours and glyphs, and may go away.

What every line goes through last, on its way to the terminal: nothing to obey, colours, glyphs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import ClassVar, TypeVar

from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme as TextualTheme

from brrrtop.tui.palette import THEMES, Palette, Theme, to_ascii
from brrrtop.tui.terminal import textual_driver
from collectors.printable import printable

Result = TypeVar("Result")


class ThemedApp(App[Result]):
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False

    def __init__(self, palette: Palette | None) -> None:
        super().__init__(driver_class=textual_driver())
        self.palette = palette or Palette()
        if self.no_color:
            self.palette = replace(self.palette, colour=False)
        if self.console.color_system == "standard" and self.palette.theme == "dark":
            # Of sixteen colours the nearest to the dark theme's are the same for two regimes.
            self.palette = self.palette.with_theme("high-contrast")
        self._begin()
        self.animation_level = "none"

    def _begin(self) -> None:
        """Makes the themes known, and starts in the palette's.

        A theme that is set when the app runs has Textual parse all style sheets another two times.
        """
        for theme in THEMES.values():
            self.register_theme(textual_theme(theme))
        self.set_reactive(App.theme, textual_name(self.palette))
        dark = self.current_theme.dark
        self.update_classes({"-dark-mode": dark, "-light-mode": not dark}, update=False)
        self._refresh_truecolor_filter(self.ansi_theme)
        self.stylesheet.set_variables(self.get_css_variables())

    def get_line_filters(self) -> Sequence[LineFilter]:
        filters = [*super().get_line_filters(), HARMLESS]
        if not self.palette.colour:
            filters.append(COLOURLESS)
        if self.palette.ascii:
            filters.append(ASCIIFIED)
        return filters

    def take_theme(self, name: str = "") -> None:
        self.palette = self.palette.with_theme(name)
        self.theme = textual_name(self.palette)


def textual_name(palette: Palette) -> str:
    return f"brrrtop-{palette.theme}"


def textual_theme(theme: Theme) -> TextualTheme:
    palette = theme.colours
    return TextualTheme(
        name=f"brrrtop-{theme.name}",
        dark=theme.dark,
        primary=palette["compute"],
        secondary=palette["memory"],
        error=palette["alarm"],
        success=palette["good"],
        foreground=palette["text"],
        background=palette["background"],
        surface=palette["raised"],
        panel=palette["raised"],
    )


class EachPiece(LineFilter):
    """Changes each piece of a line by itself."""

    def __init__(self, change: Callable[[Segment], Segment]) -> None:
        super().__init__()
        self._change = change

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [self._change(segment) for segment in segments]


def colourless(segment: Segment) -> Segment:
    """Keeps bold, underline and reverse, and drops every colour, the background's too."""
    text, style, control = segment
    return Segment(text, _weight_only(style) if style else style, control)


@lru_cache(1024)
def _weight_only(style: Style) -> Style:
    return Style(
        bold=style.bold,
        reverse=style.reverse,
        underline=style.underline,
        italic=style.italic,
        meta=style.meta or None,
    )


def harmless(segment: Segment) -> Segment:
    """Lets nothing through that a terminal would obey. Text is cleaned where it enters too.

    As wide as before: what has no width goes, what is not shown is a `?`.
    """
    text = segment.text if segment.control else printable(segment.text)
    if text == segment.text:
        return segment
    shown = (printable(sign).ljust(cell_len(sign))[: cell_len(sign)] for sign in segment.text)
    return Segment("".join(shown), segment.style, segment.control)


def asciified(segment: Segment) -> Segment:
    """Replaces every glyph beyond ASCII by one or two of the same width."""
    if segment.text.isascii():
        return segment
    text = "".join(
        character if character.isascii() else to_ascii(character).ljust(cell_len(character), "?")
        for character in segment.text
    )
    return Segment(text, segment.style, segment.control)


HARMLESS, COLOURLESS, ASCIIFIED = EachPiece(harmless), EachPiece(colourless), EachPiece(asciified)
"""Made once, as Textual keeps what a filter made of a line."""


_SIGNS = {
    "question_mark": "?", "full_stop": ".", "comma": ",", "slash": "/", "colon": ":",
    "left": "←", "right": "→", "up": "↑", "down": "↓", "plus": "+", "minus": "-",
    "equals_sign": "=", "greater_than_sign": ">", "less_than_sign": "<", "escape": "esc",
    "left_square_bracket": "[", "right_square_bracket": "]", "left_curly_bracket": "{",
    "right_curly_bracket": "}", "pageup": "PgUp", "pagedown": "PgDn", "home": "Home", "end": "End",
}  # fmt: skip


def key(
    keys: str,
    action: str,
    word: str = "",
    means: str = "",
    *,
    sign: str = "",
    priority: bool = False,
) -> Binding:
    """A binding of some keys.

    Args:
        word: What it does, for the last line of the screen; empty: it is not there.
        means: What it does, for help; empty: another binding says it.
        sign: The keys as they are shown, where that is not the first one of them.
    """
    return Binding(
        keys,
        action,
        word,
        show=bool(word),
        key_display=sign or None,
        priority=priority,
        tooltip=means,
    )


def name_of(key: str) -> str:
    """`ctrl+p` → `Ctrl-P`, `question_mark` → `?`."""
    if "+" in key:
        modifier, plain = key.split("+", 1)
        return f"{modifier.title()}-{_SIGNS.get(plain, plain.upper())}"
    if key.startswith("f") and key[1:].isdigit():
        return key.upper()
    return _SIGNS.get(key, key)


def sign_of(binding: Binding) -> str:
    return binding.key_display or name_of(binding.key.split(",")[0])


def meanings(*owners: type) -> Iterator[tuple[str, str]]:
    """All keys with what they do, by the classes that bind them; those with one meaning together."""
    keys: dict[str, list[str]] = {}
    for binding in _bindings(owners):
        if isinstance(binding, Binding) and binding.tooltip:
            keys.setdefault(binding.tooltip, []).extend(map(name_of, binding.key.split(",")))
    for means, names in keys.items():
        yield "  ".join(dict.fromkeys(names)), means


def _bindings(owners: Iterable[type]) -> Iterator[BindingType]:
    for owner in owners:
        yield from owner.__dict__.get("BINDINGS", ())
