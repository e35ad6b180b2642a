"""By what files of jax.profiler are known. Imports nothing: every file that is opened comes by here."""

from __future__ import annotations

import re

_MARKS = re.compile(
    rb'"highres-ticks"|"process_name",\s*"args":\s*\{\s*"name":\s*"/(device|host):[A-Z]'
)
"""In the head of a Chrome trace, and in the first of its events."""


def is_xspace(start: bytes) -> bool:
    """Whether a file begins with a plane, that is with its number or its name.

    The first byte is a line's end in a text, whose third is none of these two.
    """
    if start[:1] != b"\n":
        return False
    at = next((i for i in range(1, min(len(start), 11)) if start[i] < 128), None)
    return at is not None and start[at + 1 : at + 2] in (b"\x08", b"\x12")


def is_chrome_trace(text: bytes) -> bool:
    """Whether the beginning of a Chrome trace is one of jax.profiler's, or of TensorFlow's."""
    return _MARKS.search(text) is not None
