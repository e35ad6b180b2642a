"""Threads in a trainer that wait, one in each system call that a stop can cut short: `tests/fakes/waits`.

They come into any program by LD_PRELOAD and write what their calls returned into a file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from tests.waits import SOURCE, Wait, read_report  # noqa: E402

_WRITTEN_EVERY_S = 0.5


class Waiting:
    """The threads of one trainer.

    Args:
        folder: Where the library is built and the report is written.
        name: The trainer's.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._report = (folder / f"{name}.waits").resolve()
        self._report.unlink(missing_ok=True)
        library = folder.resolve() / "libwaits.so"
        if not library.exists():
            compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
            flags = ["-O1", "-fPIC", "-shared", "-o", str(library), str(SOURCE)]
            subprocess.run([compiler, *flags, "-lpthread", "-lrt"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "WAITS_REPORT": str(self._report)}
        self._before: dict[str, Wait] = {}

    def read(self) -> dict[str, Wait]:
        """What all calls up to now returned, by name."""
        time.sleep(2 * _WRITTEN_EVERY_S)
        return read_report(self._report.read_text()) if self._report.exists() else {}

    def begin(self) -> None:
        """From here on calls count: a SIGCONT before ends some in EINTR by itself."""
        self._before = self.read()

    def result(self) -> dict[str, object]:
        """Calls since `begin`, how many ended in EINTR or too early by name, and the longest of 5 ms."""
        after = self.read()
        calls = {name: wait.calls for name, wait in after.items()}
        cut = {name: wait.cut_short for name, wait in after.items()}
        early = {name: wait.early for name, wait in after.items()}
        for name, wait in self._before.items():
            calls[name] -= wait.calls
            cut[name] -= wait.cut_short
            early[name] -= wait.early
        return {
            "system_calls": sum(calls.values()),
            "kinds": len(after),
            "eintr": {name: count for name, count in cut.items() if count},
            "early": {name: count for name, count in early.items() if count},
            "longest_ms": max((wait.longest_us for wait in after.values()), default=0) / 1e3,
        }
