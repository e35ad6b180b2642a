"""Text from elsewhere, made safe to show: the one place that decides which characters are.

Names, messages, command lines and file names belong to whoever wrote them. A terminal obeys what is
in them: escape sequences write the clipboard and wipe the screen, bidirectional overrides turn a
line round, characters without width hide words. Text is cleaned where it enters (the wire, a trace,
/proc) and once more where it leaves (stdout, stderr, the screen).
"""

from __future__ import annotations

import re
from typing import Any

INSTEAD = "?"
"""Stands for each character that is not shown."""

_INVISIBLE = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
)
"""Letters and marks that Unicode calls printable and that are not seen (Default_Ignorable_Code_Point)."""
_HIDDEN = re.compile(f"[{_INVISIBLE}]")
_PILED = re.compile("(?:(?<=^)|(?<=\\s)|(?<=[\u0300-\u036f]{2}))[\u0300-\u036f]+")
"""Accents without a letter below them, and from the third on one letter: they reach other lines."""
_JSON_SAFE = re.compile(rb'(?:[ -\[\]-~]|\\["\\/])*')
"""JSON whose strings hold nothing but printable ASCII."""


def printable(text: str) -> str:
    """`text` in one line, with a `?` for each character that a terminal would obey or not show.

    White space of any kind becomes a space. What is printable stays as it is, in any language.
    """
    if text.isascii() and text.isprintable():
        return text
    if not text.isprintable():
        text = "".join(map(_escape, text))
    return _PILED.sub(INSTEAD, _HIDDEN.sub(INSTEAD, text))


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else INSTEAD


def printable_lines(text: str) -> str:
    """`text` with each of its lines made `printable`; the line feeds stay."""
    if "\n" not in text:
        return printable(text)
    return "\n".join(map(printable, text.split("\n")))


def printable_data(value: Any) -> Any:
    """JSON data with all of its strings made `printable`, the keys too."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [printable_data(item) for item in value]
    if isinstance(value, dict):
        return {printable_data(key): printable_data(item) for key, item in value.items()}
    return value


def is_printable_json(payload: bytes) -> bool:
    """Whether the strings of this JSON are known to be printable, told from its bytes alone."""
    return _JSON_SAFE.fullmatch(payload) is not None
