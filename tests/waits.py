"""What came of the system calls of `tests/fakes/waits`, by name."""

from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent / "fakes" / "waits" / "waits.c"
BEGIN = """
waiting = load({library!r}); text = ctypes.create_string_buffer(1 << 14)
def report():
    waiting.waits_report(text, len(text))
    return text.value.decode()
waiting.waits_limit({limit_ms})
waiting.waits_begin()
"""
"""For a trainer of `tests/agent/child.py`."""


class Wait(NamedTuple):
    """A thread that makes one system call again and again, each for 5 ms or until it is woken."""

    tid: int
    calls: int
    cut_short: int
    """Of its calls, ended in EINTR."""
    early: int
    """Ended before their time limit."""
    odd: int
    """The last other error number; of one that ended early, -errno, or 1,000 and what it returned."""
    longest_us: int


def odd_waits(text: str) -> dict[str, Wait]:
    """Those of which a call returned what it would not alone."""
    waits = read_report(text)
    return {name: one for name, one in waits.items() if one.cut_short or one.early or one.odd}


def read_report(text: str) -> dict[str, Wait]:
    rows = [line.split("\t") for line in text.splitlines() if "\t" in line]
    return {name: Wait(*map(int, numbers)) for name, *numbers in rows}
