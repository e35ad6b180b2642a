"""What /proc says of a process, as it stands there now. Standard library only.

Raises OSError or ValueError where the process is gone or may not be looked into, unless said otherwise.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from brrrtop.text.printable import printable

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; the name before it may hold anything."""
    text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    return text[text.rindex(")") + 2 :].split()


def status(pid: int) -> dict[str, str]:
    """/proc/PID/status; empty where it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
    except OSError:
        return {}
    return {k: v.strip() for k, _, v in (line.partition(":") for line in text.splitlines())}


def name_of(pid: int) -> str:
    """What the kernel calls it; `?` where that cannot be read."""
    return printable(status(pid).get("Name", "?"))


def cmdline(pid: int) -> tuple[str, ...]:
    """The words it was started with; none of a zombie."""
    line = Path(f"/proc/{pid}/cmdline").read_bytes()
    return tuple(
        word.decode("utf-8", "replace") for word in line.rstrip(b"\0").split(b"\0") if line
    )


def environ(pid: int) -> dict[str, str]:
    """The environment it was started with; later changes do not show."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    texts = (pair.decode("utf-8", "surrogateescape") for pair in pairs if b"=" in pair)
    return dict(text.split("=", 1) for text in texts)


def cpu_s(fields: list[str]) -> float:
    """CPU time that a process has used so far, by its `stat`."""
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def age_s(start_ticks: int) -> float:
    """Since a process was started, by the time of its start in ticks since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / TICKS_PER_S
