"""The interpreter's own door: `sys.remote_exec` of CPython 3.14 and newer (PEP 768)."""

from __future__ import annotations

import sys

from collectors.attach.files import Place
from collectors.attach.method import Attempt
from collectors.errors import NoSuchProcess
from collectors.process.process import Process

_SINCE = (3, 14)
_SCRIPT = "boot.py"


class RemoteExec:
    """Leaves the path of a script in the trainer; its main thread runs it. Stops nobody."""

    name = "remote_exec"
    handshake_s = 4.0
    needs_main_thread = True

    def why_not(self, process: Process) -> str:
        """Empty: it can be tried."""
        python = process.python
        theirs = python.version if python else None
        if theirs is None or theirs < _SINCE:
            return "the trainer's Python has no remote execution (3.14 and newer do)"
        ours = sys.version_info[:2]
        if theirs != ours or not hasattr(sys, "remote_exec"):
            return (
                f"brrrtop runs on Python {ours[0]}.{ours[1]} and the trainer on "
                f"{theirs[0]}.{theirs[1]}: they must be the same"
            )
        if process.environ.get("PYTHON_DISABLE_REMOTE_DEBUG"):
            return "PYTHON_DISABLE_REMOTE_DEBUG is set in the trainer"
        return ""

    def enter(self, process: Process, text: str, place: Place, limit_s: float) -> Attempt:
        reason = self.why_not(process)
        if reason:
            return Attempt(self.name, False, reason)
        place.write(_SCRIPT, text)
        try:
            sys.remote_exec(process.pid, f"{place.inside}/{_SCRIPT}")  # type: ignore[attr-defined]
        except ProcessLookupError as fault:
            raise NoSuchProcess(f"process {process.pid} exited during the attach") from fault
        except (OSError, RuntimeError) as fault:
            return Attempt(self.name, False, f"the interpreter refused: {fault}")
        return Attempt(self.name, True)
