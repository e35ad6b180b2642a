"""Text that a terminal obeys or hides, and the check that none of it comes through."""

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

from brrrtop.sources.recording import RecordingWriter
from brrrtop.sources.registry import open_source
from collectors.protocol.frames import Frame, Kind

OBEYED = (
    "\x1b[31m", "\x1b]0;pwned\x07", "\x1b]52;c;cHduZWQ=\x1b\\", "\x1b[2J", "\x1bP", "\x9b2J", "\x9d0;a\x9c",
    "\x07", "\x08\x08", "\r", "\n", "\x7f", "\x00", "\x85", "\u2028",
)  # fmt: skip
HIDDEN = (
    "\u202e", "\u202d", "\u2066", "\u2069", "\u200e", "\u061c", "\u200b", "\u200d", "\u2060", "\ufeff",
    "\u00ad", "\u034f", "\u3164", "\ufe0f", "\U000e0041",
)  # fmt: skip
ALL = "".join((*OBEYED, *HIDDEN))

texts = st.lists(
    st.one_of(st.sampled_from((*OBEYED, *HIDDEN)), st.text(max_size=8)), min_size=1, max_size=6
).map("".join)
"""Anything, with what does harm in most of it."""
lines = st.lists(
    st.one_of(
        st.sampled_from((*OBEYED, *HIDDEN)),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    ),
    min_size=1,
    max_size=6,
).map("".join)
"""The same, as far as UTF-8 can carry it."""

_SHOWN_ALTHOUGH_HIDDEN = set("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")


def harm(text: str, allowed: str = "\n") -> list[str]:
    """The characters in `text` that are obeyed or not shown; empty is how it should be."""
    return [
        f"U+{ord(sign):04X}"
        for sign in text
        if sign not in allowed
        and (
            unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
            or sign in _SHOWN_ALTHOUGH_HIDDEN
            or 0xFE00 <= ord(sign) <= 0xFE0F
        )
    ]


def strings_in(value: Any) -> Iterator[str]:
    """Every string in a value of ours, however deep."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from strings_in(getattr(value, name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings_in(key)
            yield from strings_in(item)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from strings_in(item)


def recording(original: Path, target: Path, text: str) -> Path:
    """A copy of a recording in which every text that its trainer wrote has `text` in it."""
    source = open_source(original)
    writer = RecordingWriter(target)
    for frame in source.frames():
        writer.write(Frame(frame.kind, _with(text, frame), frame.sent_ns, frame.flags))
    last = frame.sent_ns
    says = {"says": f"told {text}", "state": text, "tier": "kernels", "gauges": [text]}
    writer.write(Frame(Kind.STATUS, says, last))
    writer.write(Frame(Kind.END, {"reason": f"ended {text}"}, last))
    writer.close()
    source.close()
    return target


def _with(text: str, frame: Frame) -> Any:
    if frame.kind == Kind.NAMES:
        return {key: _mixed(name, text) for key, name in frame.body.items()}
    if frame.kind == Kind.HELLO:
        message = {"cmdline": ["python", f"train{text}.py"], "torch": text, "notes": [text]}
        return {**frame.body, **message}
    if frame.kind == Kind.DEVICE:
        return {**frame.body, "name": f"NVIDIA H200 {text}"}
    return frame.body


def _mixed(name: str, text: str) -> str:
    """At the end, where a name is still classed by its beginning."""
    return f"{name}{text}"
