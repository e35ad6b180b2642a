"""What the words, letters and keys mean; the three regimes in a table."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases
from brrrtop.tui.palette import MARKS, Palette, letter
from brrrtop.tui.renderables.line import wrapped
from brrrtop.tui.screens.help_text import FACTS, KEYS, REGIME_TABLE, TERMS
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.scrolled import Scrolled


class Help(Scrolled):
    topic = "help"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        palette = self.palette
        return [
            *_heading("Keys", palette, first=True),
            *_entries(KEYS, palette, width, 16),
            *_heading("The three regimes: the fix for one does nothing for another", palette),
            *_regimes(palette, width),
            *_heading("Letters of kernels and of the account", palette),
            *_letters(palette, width),
            *_heading("Terms", palette),
            *_entries(TERMS, palette, width, 16),
            *_heading("Worth knowing", palette),
            *(line for fact in FACTS for line in _bullet(fact, palette, width)),
        ]


def _heading(title: str, palette: Palette, first: bool = False) -> list[Text]:
    head = Text.styled(title, palette.style("compute", bold=True))
    return [head] if first else [Text(), head]


def _entries(
    entries: tuple[tuple[str, str], ...], palette: Palette, width: int, indent: int
) -> list[Text]:
    lines = []
    for name, sentence in entries:
        term, meaning = palette.keys(name), palette.keys(sentence)
        if cell_len(term) >= indent:
            lines.append(Text.styled(term, palette.style("text", bold=True)))
            term = ""
        for i, line in enumerate(wrapped(meaning, max(10, width - indent))):
            text = Text(no_wrap=True)
            text.append(f"{term if not i else '':<{indent}}", palette.style("text", bold=True))
            lines.append(text.append(line, palette.style("text")))
    return lines


def _regimes(palette: Palette, width: int) -> list[Text]:
    lines = []
    for regime, means, helps, wastes in REGIME_TABLE:
        head = Text(no_wrap=True).append(f" {letter(regime)} {regime} ", palette.filled(regime))
        lines.append(head.append(f"  {means}", palette.style("text")))
        lines += _entries((("  helps", helps), ("  waste", wastes)), palette, width, 10)
    return lines


def _letters(palette: Palette, width: int) -> list[Text]:
    lines, line = [], Text(no_wrap=True)
    for bucket in MARKS:
        if bucket in ("overhead", "mixed", "comm", "copy"):
            continue
        piece = Text(no_wrap=True).append(letter(bucket), palette.filled(bucket))
        piece.append(f" {phrases.bucket(bucket)}".ljust(24), palette.style("text"))
        if line.cell_len + piece.cell_len > width and line:
            lines.append(line)
            line = Text(no_wrap=True)
        line.append_text(piece)
    return [*lines, line]


def _bullet(fact: str, palette: Palette, width: int) -> list[Text]:
    return [
        Text.styled(("• " if not i else "  ") + line, palette.style("text"))
        for i, line in enumerate(wrapped(fact, max(10, width - 2)))
    ]


class HelpView(SubView):
    def body(self) -> Help:
        return Help()
