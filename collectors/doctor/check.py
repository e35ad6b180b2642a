"""The shape of one finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(str, Enum):
    """How a check came out."""

    FINE = "fine"
    NOTE = "note"
    """Works, and there is something to know."""
    WAIT = "wait"
    """Passes by itself."""
    BAD = "bad"
    """Attaching, or tracing kernels, does not work until this is mended."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at or tried."""

    name: str
    status: Status
    says: str
    fix: str = ""
    """The command or change that helps; empty when there is nothing to mend."""
    blocks: str = ""
    """What it prevents while it is bad, or to be waited for: `attach`, `kernels` or `counters`."""
    denied: bool = False
    """It is bad for want of a permission."""


def fine(name: str, says: str) -> Check:
    return Check(name, Status.FINE, says)


def note(name: str, says: str, fix: str = "") -> Check:
    return Check(name, Status.NOTE, says, fix)


def wait(name: str, says: str, fix: str = "", blocks: str = "") -> Check:
    return Check(name, Status.WAIT, says, fix, blocks)


def bad(name: str, says: str, fix: str, blocks: str = "attach", *, denied: bool = False) -> Check:
    return Check(name, Status.BAD, says, fix, blocks, denied)
