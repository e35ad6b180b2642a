"""What came of the system calls of `tests/fakes/waits`, by name."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent / "fakes" / "waits" / "waits.c"


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


def read_report(text: str) -> dict[str, Wait]:
    rows = [line.split("\t") for line in text.splitlines() if "\t" in line]
    return {name: Wait(*map(int, numbers)) for name, *numbers in rows}
