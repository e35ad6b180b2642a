"""`with brrrtop.watch():` in a training script: the monitor beside it, its reports in here.

The training comes first. What runs in this process is the agent that `brrrtop attach` brings, loaded
without stopping anything, and one thread that waits at a pipe. A fault here ends the watching with a
warning, never the training.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any, Protocol

_LEAVE_LIMIT_S = 5.0
_LONGEST_PAUSE_S = 1.0


def watch(
    *,
    log: Log | Sequence[Log] = (),
    interval_s: float = 5.0,
    record: str | None = None,
    max_overhead: float = 0.01,
    when: str = "cuda",
) -> Watch:
    """Watches the program that calls this, from a process of its own beside it.

    Args:
        log: Where figures go at each `step()` after a new report: functions of figures, lines and step.
        interval_s: Between two reports.
        record: A file to be written for `brrrtop replay`.
        max_overhead: Share of the step time that watching may cost.
        when: Begin once the program has imported `torch` and, with `cuda`, uses the GPU.

    Returns:
        A context manager; or `start()` and `stop()` it.
    """
    logs = (log,) if callable(log) else tuple(log)
    options = ["--interval", str(interval_s), "--max-overhead", str(max_overhead)]
    if record is not None:
        options += ["--record", record]
    return Watch(logs, options, when)


class Watch:
    """A monitor on this process. Use one at a time, from the process that trains."""

    def __init__(self, logs: tuple[Log, ...], options: list[str], when: str) -> None:
        if when not in ("cuda", "torch"):
            raise ValueError(f"when is 'cuda' or 'torch', not {when!r}")
        self._logs, self._options, self._when = logs, options, when
        self._thread: threading.Thread | None = None
        self._monitor: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._line, self._count, self._logged, self._steps = b"", 0, 0, 0
        self.problem: str | None = None
        """Why nothing is watched; None: nothing is wrong."""

    def start(self) -> Watch:
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="brrrtop-watch", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Ends watching, and logs the last report."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._lock:
            self._stopping.set()
            monitor = self._monitor
        if monitor is not None:
            with contextlib.suppress(OSError):
                monitor.terminate()
            try:
                monitor.wait(_LEAVE_LIMIT_S)
            except subprocess.TimeoutExpired:
                monitor.kill()
        thread.join(_LEAVE_LIMIT_S)
        self._log(self._steps)

    def __enter__(self) -> Watch:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def report(self) -> dict[str, Any] | None:
        line = self._line
        if not line:
            return None
        import msgspec

        report: dict[str, Any] = msgspec.json.decode(line)
        return report

    @property
    def report_count(self) -> int:
        """Reports so far."""
        return self._count

    def step(self, number: int | None = None) -> None:
        """Call it once a training step: logs what is new. Costs nothing where nothing is.

        Args:
            number: Of the step; None: counted here.
        """
        self._steps = self._steps + 1 if number is None else number
        if self._count != self._logged:
            self._log(self._steps)

    def _log(self, step: int) -> None:
        count, report = self._count, self.report if self._logs else None
        if report is None or count == self._logged:
            return
        self._logged = count
        figures, lines = figures_of(report), lines_of(report)
        for log in self._logs:
            try:
                log(figures, lines, step)
            except Exception as fault:  # noqa: BLE001  a logger's fault must not end the training
                self._fail(f"a log failed and gets no more: {type(fault).__name__}: {fault}")
                self._logs = tuple(one for one in self._logs if one is not log)

    def _run(self) -> None:
        try:
            if self._wait_for_gpu():
                with _agent():
                    self._read()
        except Exception as fault:  # noqa: BLE001  whatever fails here, the training goes on
            action = getattr(fault, "action", "")
            self._fail(f"{fault}; {action}" if action else f"{type(fault).__name__}: {fault}")

    def _wait_for_gpu(self) -> bool:
        """Whether the program uses the GPU now; False: it was stopped before."""
        pause_s = 0.05
        while not self._stopping.is_set():
            torch = sys.modules.get("torch")
            spec = getattr(torch, "__spec__", None)
            if torch is not None and not getattr(spec, "_initializing", False):
                cuda = getattr(torch, "cuda", None)
                if self._when == "torch" or getattr(cuda, "_initialized", False):
                    return True
            self._stopping.wait(pause_s)
            pause_s = min(pause_s * 1.05, _LONGEST_PAUSE_S)
        return False

    def _read(self) -> None:
        """Starts the monitor and keeps its newest line until it ends."""
        command = [sys.executable, "-m", "brrrtop", "attach", str(os.getpid()), "--yes", "--json"]
        with tempfile.TemporaryFile() as stderr:
            with self._lock:
                if self._stopping.is_set():
                    return
                self._monitor = subprocess.Popen(
                    [*command, *self._options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=stderr, start_new_session=True,
                )  # fmt: skip
            pipe: IO[bytes] | None = self._monitor.stdout
            assert pipe is not None
            with pipe:
                for line in pipe:
                    self._line, self._count = line, self._count + 1
            code = self._monitor.wait()
            self._monitor = None
            if code and not self._stopping.is_set():
                stderr.seek(0)
                lines = stderr.read().decode(errors="replace").strip().splitlines()
                self._fail(lines[-1] if lines else f"the monitor ended with {code}")

    def _fail(self, why: str) -> None:
        self.problem = why
        warnings.warn(f"brrrtop: {why}", RuntimeWarning, stacklevel=3)


def _agent() -> AbstractContextManager[None]:
    """The agent in this very process, as `brrrtop run` has it: nobody stops us for it."""
    from collectors.attach import agent_library, launch

    return launch.listening(agent_library.agent_files())


PREFIX = "brrrtop/"
_LEAST = 0.001
"""Of wall time: idle causes below it are logged once they were above."""


class Log(Protocol):
    """Takes figures and lines; `step` is the training's own number."""

    def __call__(self, figures: Mapping[str, float], lines: tuple[str, ...], step: int) -> None: ...


def figures_of(report: Mapping[str, Any]) -> dict[str, float]:
    """Split, step time, idle time by cause and simulated gains of a report's plain data.

    What nobody measured has no figure.
    """
    figures: dict[str, Any] = {f"split/{name}": share for name, share in report["split"].items()}
    figures["step_ms"] = report["window"]["step_ms"]
    figures["confidence"] = report["confidence"]
    figures["cost_of_watching"] = report["overhead"]["step_cost_share"]
    whole, account = report["window"]["duration_ns"], report["account"]
    if whole:
        idle = {f"idle/{cause}": ns for cause, ns in account["idle_ns"].items()}
        exposed = {name: account[f"{name}_ns"] for name in ("exposed_comm", "exposed_copy")}
        for name, ns in (*idle.items(), *exposed.items()):
            if ns is not None and ns >= _LEAST * whole:
                figures[name] = ns / whole
    for row in report["whatif"] or ():
        figures[f"whatif/{row['edit']}"] = row["saves"]
    return {PREFIX + name: float(value) for name, value in figures.items() if value is not None}


def lines_of(report: Mapping[str, Any]) -> tuple[str, ...]:
    """The verdict, advice with its line to try, and the newest events."""
    sure = report["confidence"]
    verdict = f"{report['regime']}-bound" + (f" ({report['cause']})" if report["cause"] else "")
    lines = [verdict + (f", {sure:.0%} sure" if sure is not None else "")]
    lines += [f"{one['id']}: {one['says']} Try: {one['try']}" for one in report["advisories"] or ()]
    lines += [f"{one['kind']}: {one['says']}" for one in report.get("events", ())]
    return tuple(lines)
