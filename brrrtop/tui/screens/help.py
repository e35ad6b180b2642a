"""What the words, letters and keys mean; the three regimes in a table."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases
from brrrtop.tui.palette import MARKS, Look, letter
from brrrtop.tui.renderables.line import wrapped
from brrrtop.tui.screens.help_text import FACTS, KEYS, REGIME_TABLE, TERMS
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.scrolled import Scrolled


class Help(Scrolled):
    topic = "help"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        look = self.look
        return [
            *_heading("Keys", look, first=True),
            *_entries(KEYS, look, width, 16),
            *_heading("The three regimes: the fix for one does nothing for another", look),
            *_regimes(look, width),
            *_heading("Letters of kernels and of the account", look),
            *_letters(look, width),
            *_heading("Terms", look),
            *_entries(TERMS, look, width, 16),
            *_heading("Worth knowing", look),
            *(line for fact in FACTS for line in _bullet(fact, look, width)),
        ]


def _heading(title: str, look: Look, first: bool = False) -> list[Text]:
    head = Text.styled(title, look.style("compute", bold=True))
    return [head] if first else [Text(), head]


def _entries(
    entries: tuple[tuple[str, str], ...], look: Look, width: int, indent: int
) -> list[Text]:
    lines = []
    for term, meaning in entries:
        for i, line in enumerate(wrapped(meaning, max(10, width - indent))):
            text = Text(no_wrap=True)
            text.append(f"{term if not i else '':<{indent}}", look.style("text", bold=True))
            lines.append(text.append(line, look.style("text")))
    return lines


def _regimes(look: Look, width: int) -> list[Text]:
    lines = []
    for regime, means, helps, wastes in REGIME_TABLE:
        head = Text(no_wrap=True).append(f" {letter(regime)} {regime} ", look.filled(regime))
        lines.append(head.append(f"  {means}", look.style("text")))
        lines += _entries((("  helps", helps), ("  waste", wastes)), look, width, 10)
    return lines


def _letters(look: Look, width: int) -> list[Text]:
    lines, line = [], Text(no_wrap=True)
    for bucket in MARKS:
        if bucket in ("overhead", "mixed", "comm", "copy"):
            continue
        piece = Text(no_wrap=True).append(letter(bucket), look.filled(bucket))
        piece.append(f" {phrases.bucket(bucket)}".ljust(24), look.style("text"))
        if line.cell_len + piece.cell_len > width and line:
            lines.append(line)
            line = Text(no_wrap=True)
        line.append_text(piece)
    return [*lines, line]


def _bullet(fact: str, look: Look, width: int) -> list[Text]:
    return [
        Text.styled(("• " if not i else "  ") + line, look.style("text"))
        for i, line in enumerate(wrapped(fact, max(10, width - 2)))
    ]


class HelpView(SubView):
    def body(self) -> Help:
        return Help()
