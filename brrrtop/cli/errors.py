"""Exceptions as sentences: what happened, what helps, and the exit code."""

from __future__ import annotations

import errno

from brrrtop.errors import BrrrtopError

FAILURE = 1


def error_text(fault: Exception) -> tuple[str, int]:
    """The text for stderr and the exit code."""
    message = getattr(fault, "message", None) or str(fault)
    action = getattr(fault, "action", "")
    if isinstance(fault, BrrrtopError):
        return _sentence(message, action), fault.exit_code
    if _is_collectors_own(fault):
        return _sentence(message, action), int(getattr(fault, "exit_code", FAILURE))
    if isinstance(fault, OSError):
        return _sentence(_os_sentence(fault), ""), FAILURE
    if isinstance(fault, MemoryError):
        return _sentence("not enough memory", "try a shorter recording or `--steps 1-3`"), FAILURE
    if isinstance(fault, ImportError):
        return _sentence(f"this installation is incomplete: {fault}", "install brrrtop again"), 1
    bug = f"a fault of brrrtop's own: {type(fault).__name__}: {fault}"
    return _sentence(bug, "set BRRRTOP_TRACEBACK=1 to see where, and report it"), FAILURE


def _is_collectors_own(fault: Exception) -> bool:
    """An error that `collectors` raised for people: it carries an `action` of its own."""
    return type(fault).__module__.startswith("collectors.") and hasattr(fault, "action")


def _os_sentence(fault: OSError) -> str:
    where = f": {fault.filename}" if fault.filename else ""
    if fault.errno == errno.ENOSPC:
        return f"no space left on the disk{where}"
    return f"{(fault.strerror or str(fault)).lower()}{where}"


def _sentence(message: str, action: str) -> str:
    return f"brrrtop: {message}" + (f"\n  {action}" if action else "")
