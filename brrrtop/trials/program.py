"""Starts a person's program with edits in it, reads its steps, and ends it without a trace."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, json

from brrrtop.errors import BrrrtopError
from brrrtop.model.trials import Header, Pace
from brrrtop.trials.pace import Trace, find_window, pace, saving
from collectors.attach import bootstrap, run_folders
from collectors.printable import printable
from collectors.trial import guardian

POLL_S = 0.1
CLEARLY_WORSE = -0.05
"""A trial whose interval ends below this saving is not measured to its end."""
SHORT = 60
"""Signs of a folder for temporary files: a socket's path has 107 at most, 44 of them below it."""
MURKY = 0.5
"""An interval as wide as this says nothing yet: something else disturbs the machine."""
EARLY_STEPS, EARLY_SHARE = 5, 0.25
"""Steps, and share of the seconds, before a trial may be called clearly worse."""
FAULT_SIGNS = 300
_ERROR = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt)\b.*")
_SITE = """

def _start(code, config):
    try:
        import sys
        from importlib.util import module_from_spec, spec_from_file_location
        spec = spec_from_file_location("_brrrtop_trial", code + "/__init__.py",
                                       submodule_search_locations=[code])
        module = sys.modules["_brrrtop_trial"] = module_from_spec(spec)
        spec.loader.exec_module(module)
        from _brrrtop_trial.entry import start
        start(config)
    except Exception:
        import traceback
        traceback.print_exc()


_start(%r, %r)
_chain(%r)
"""


class Outcome(Struct, frozen=True):
    pace: Pace | None
    header: Header | None
    fault: str | None
    took_s: float
    stopped_early: bool = False


class Program:
    """A command that can be run again and again.

    Args:
        argv: The command.
        folder: Private, of `guarded_folder`.
        workers: For a DataLoader that has none.
        scratch: Where logs and outputs of each trial are kept; None: they are removed.
    """

    def __init__(
        self, argv: Sequence[str], folder: Path, workers: int, scratch: Path | None = None
    ) -> None:
        self._argv, self._folder, self._workers = list(argv), folder, workers
        self._scratch = scratch
        self.process: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def running(
        self, edits: Sequence[str], through: Callable[[dict[str, str]], dict[str, str]] = dict
    ) -> Iterator[Trace]:
        """The program under way with these edits; all of it has ended afterwards.

        Args:
            through: Makes the environment to run in from that of the trial.

        Raises:
            BrrrtopError: It cannot be started.
        """
        trial = self._folder / "trial"
        shutil.rmtree(trial, ignore_errors=True)
        outputs = (
            self._scratch / ("+".join(edits) or "base") if self._scratch else trial / "outputs"
        )
        for one in (trial / "steps", outputs):
            one.mkdir(parents=True, exist_ok=True)
        self._log = outputs / "output.log"
        config = {"folder": str(trial / "steps"), "edits": list(edits), "workers": self._workers,
                  "outputs": str(outputs.absolute())}  # fmt: skip
        (trial / "trial.json").write_bytes(json.encode(config))
        code = str(Path(guardian.__file__).parent)
        site = bootstrap.CHAIN + _SITE % (code, str(trial / "trial.json"), str(trial))
        (trial / bootstrap.SITE_NAME).write_text(site, "utf-8")
        ahead = os.pathsep.join(filter(None, (str(trial), os.environ.get("PYTHONPATH"))))
        environment = {
            **os.environ, guardian.MARK: str(self._folder), "PYTHONPATH": ahead,
            "WANDB_MODE": "offline", "WANDB_DIR": str(outputs.absolute()),
            "TMPDIR": str((self._folder / guardian.TEMPORARY).readlink()),
        }  # fmt: skip
        try:
            with self._log.open("wb") as log, _heeding_interrupts():
                self.process = subprocess.Popen(
                    self._argv, env=through(environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as fault:
            reason = (fault.strerror or str(fault)).lower()
            raise BrrrtopError(f"{self._argv[0]!r} cannot be run: {reason}") from fault
        try:
            yield Trace(trial / "steps")
        finally:
            self._end()

    def _end(self) -> None:
        process = self.process
        assert process is not None

        def interrupt() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)

        guardian.end(str(self._folder), interrupt)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)

    def run(
        self, edits: Sequence[str], seconds: float, limit_s: float, base: Pace | None = None
    ) -> Outcome:
        """The program with these edits until its pace is known, or it ends, or `limit_s` is over.

        Args:
            base: What it is compared with; far slower than that, it is ended early.
        """
        began_s = time.monotonic()
        early = False
        with self.running(edits) as trace:
            assert self.process is not None
            while True:
                code = self.process.poll()
                trace.update()
                window = find_window(trace.marks, seconds)
                over = code is not None or time.monotonic() - began_s > limit_s
                ready = window is not None and window.complete
                if window is not None and not ready and base is not None:
                    early = _clearly_worse(trace, seconds, base)
                if over or ready or early or trace.fault or _unchanged(trace.header, edits):
                    break
                time.sleep(POLL_S)
        trace.update()
        window = find_window(trace.marks, seconds)
        measured = None if window is None else pace(trace, window)
        fault = self._fault(trace, code, measured, limit_s)
        fault = _unchanged(trace.header, edits) or fault
        took_s = time.monotonic() - began_s
        return Outcome(None if fault else measured, trace.header, fault, took_s, early)

    def _fault(
        self, trace: Trace, code: int | None, measured: Pace | None, limit_s: float
    ) -> str | None:
        if trace.fault:
            return f"brrrtop cannot edit it: {trace.fault}"
        if code and code < 0:
            return f"it was ended by {signal.Signals(-code).name}"
        if code:
            return self._last_line() or f"it ended with code {code}"
        if measured is not None and measured.steps >= 3:
            return None
        count = trace.marks[-1]["n"] if trace.marks else 0
        if code == 0 and not count:
            return (
                "it ended and no step was seen: no optimizer of torch, no DataLoader, no backward"
            )
        if code == 0:
            return f"it ended by itself after {count} steps, too early to be measured"
        return f"no steady steps within {limit_s:.0f} s ({count} steps seen)"

    def _last_line(self) -> str:
        """The last line that names an error, else the last line, of what the program printed."""
        text = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
        lines = [printable(line.strip()) for line in text.splitlines() if line.strip()]
        # torchrun prints tables after the error, each line of ranks with `[rank0]: ` before it.
        bare = [re.sub(r"^\[rank\d+\]:\s*", "", line) for line in lines]
        errors = [line for line in bare if _ERROR.match(line) and "ChildFailedError" not in line]
        return (errors or bare or [""])[-1][:FAULT_SIGNS]


@contextlib.contextmanager
def _heeding_interrupts() -> Iterator[None]:
    """A shell lets what it starts in the background ignore SIGINT; what starts meanwhile does not."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        if ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _clearly_worse(trace: Trace, seconds: float, base: Pace) -> bool:
    window = find_window(trace.marks, seconds)
    so_far = None if window is None else pace(trace, window)
    if so_far is None or so_far.steps < EARLY_STEPS or so_far.blocks < 3:
        return False
    long_enough = so_far.steps * so_far.step_ns >= EARLY_SHARE * seconds * 1e9
    _, low, high = saving(so_far, base)
    return long_enough and high < CLEARLY_WORSE and high - low < MURKY


def _unchanged(header: Header | None, edits: Sequence[str]) -> str | None:
    """Why the edits are not in the program; None: they are, or nobody knows yet."""
    if header is None:
        return None
    for edit in edits:
        problem = header.facts.problems.get(edit)
        if edit.partition("-")[0] == "loader" or edit == "double-batch":
            problem = problem or header.facts.problems.get("loader")
        if problem:
            return problem[:FAULT_SIGNS]
        if not header.facts.counts.get(edit):
            return "the program has nothing that this edit changes, or sets it itself"
    return None


@contextlib.contextmanager
def guarded_folder() -> Iterator[Path]:
    """A private folder. Whatever becomes of us, a guardian ends the programs that belong to it and
    removes it.
    """
    folder = run_folders.make()
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", guardian.__file__, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, cwd="/",
    )  # fmt: skip
    usual = tempfile.gettempdir()
    short = tempfile.mkdtemp(prefix="try-", dir=usual if len(usual) <= SHORT else "/tmp")
    (folder / guardian.TEMPORARY).symlink_to(short)
    try:
        yield folder
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait()
