"""Hardware counters from a process of their own, for the monitor: whatever they do, it goes on."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from collectors.gpu.counters.sampler import CounterThread
from collectors.gpu.devices import OURS
from collectors.gpu.feed import SamplerFeed
from collectors.process.proc import end_with
from collectors.protocol.frames import OBSERVED, Decoder, Frame, Kind, WireError, encode

_WORKER = (
    "import sys; sys.path[:] = [*filter(None, sys.path), {root!r}]; "
    "ours = {{name: type(sys)(name) for name in ('collectors', 'brrrtop')}}; "
    "[setattr(one, '__path__', [{root!r} + '/' + name]) for name, one in ours.items()]; "
    "sys.modules.update(ours); from collectors.gpu.counters.process import main; main()"
)
"""Our packages by their own path, and what lies beside it only after the standard library."""
_CHUNK_BYTES = 1 << 18
_SPANS = 64
"""In one line: what is longer than PIPE_BUF, 4096 bytes, a full pipe may take a part of (pipe(7))."""
SETTLES_S = 8.0
"""Nobody waits longer for the counters to be switched on, first samples included: 2 to 3 s where all
is well (H200), and `counters.SILENT_S` more where none come."""
ENDS_S = 3.0
"""From its last word to its end; `counter_worker` leaves at once."""
KILLED_S = 1.0
"""For a killed worker to be gone: a driver that hangs may hold it all the same."""
_CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})


def worker_command() -> list[str]:
    """Nothing is imported from the folder it is started in, which may hold a `collectors` too."""
    root = str(Path(__file__).resolve().parents[3])
    return [sys.executable, "-c", _WORKER.format(root=root), str(os.getpid())]


class CounterProcess(SamplerFeed):
    """Implements `Feed` as `CounterThread` does, which it has in another process.

    Args:
        command: What to start instead of the worker.
    """

    carries = CounterThread.carries

    def __init__(self, command: Sequence[str] | None = None) -> None:
        super().__init__()
        self._command = list(command or worker_command())
        self._process: subprocess.Popen[bytes] | None = None
        self._state: dict[str, Any] = {}
        self._began_s = time.monotonic()
        self._matched = False
        self._tried = threading.Event()
        """The worker runs, or could not be started."""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        """Of the worker's stdin."""
        self._reader = threading.Thread(target=self._run, name="brrrtop-counters", daemon=True)

    def start(self) -> None:
        self._reader.start()
        self._tried.wait()  # as long as starting a process takes

    # --- as CounterThread -----------------------------------------------------------

    def match(self, uuids: Mapping[int, str]) -> None:
        if uuids and not self._matched:
            self._matched, self._began_s = True, time.monotonic()
        self._tell({"match": dict(uuids)})

    def expect(self, until_ns: int | None) -> None:
        self._tell({"expect": until_ns})

    def traced(self, spans: npt.NDArray[np.void]) -> None:
        rows = [[int(row["start_ns"]), int(row["end_ns"])] for row in spans]
        for at in range(0, len(rows), _SPANS):
            self._tell({"traced": rows[at : at + _SPANS]})

    @property
    def remarks(self) -> list[str]:
        return list(self._state.get("notes", ()))

    @property
    def worker(self) -> int | None:
        process = self._process
        return None if process is None or self._ended.is_set() else process.pid

    @property
    def active(self) -> bool:
        return bool(self._state.get("active")) and not self._ended.is_set()

    @property
    def settling(self) -> bool:
        """Sampling is about to be switched on: a bad moment to begin tracing."""
        begins = time.monotonic() - self._began_s < SETTLES_S and not self._ended.is_set()
        return begins and bool(self._state.get("settling", True))

    def close(self, wait_s: float = 3.0) -> bool:
        process = self._process
        if process is None:
            return True
        with contextlib.suppress(OSError), self._lock:
            assert process.stdin is not None
            process.stdin.close()
        code = _code_of(process, wait_s)
        OURS.discard(process.pid)
        self._reader.join(1.0)
        assert process.stdout is not None
        if not self._reader.is_alive():
            process.stdout.close()
        return code is not None

    # --- the worker -----------------------------------------------------------------

    def _tell(self, what: dict[str, Any]) -> None:
        """Lost where the worker reads nothing."""
        process = self._process
        if process is None or self._ended.is_set():
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError, ValueError), self._lock:  # it ended: the reader says why
            process.stdin.write(json.dumps(what).encode() + b"\n")

    def _run(self) -> None:
        """Starts the worker and stays until it has ended: it is killed when this thread ends."""
        try:
            self._process = self._begin()
        except OSError as fault:
            self._end(f"hardware counters are off: {fault}")
            return
        finally:
            self._tried.set()
        self._read(self._process)

    def _begin(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        OURS.add(process.pid)
        return process

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        decoder, why = Decoder(), ""
        assert process.stdout is not None
        try:
            while data := os.read(process.stdout.fileno(), _CHUNK_BYTES):
                for frame in decoder.feed(data):
                    if frame.kind == Kind.STATUS:
                        self._state = frame.body
                    else:
                        self._frames.append(frame)
        except (OSError, WireError) as fault:
            why = str(fault)
            process.kill()
        how = ended_how(_code_of(process, ENDS_S))
        OURS.discard(process.pid)
        self._end(f"hardware counters are off: {why or how}")

    def _end(self, message: str) -> None:
        self._state = {"notes": [message]}
        self._ended.set()


def _code_of(process: subprocess.Popen[bytes], wait_s: float) -> int | None:
    """How a worker ended that has said its last word; None: it did not end, and was killed."""
    try:
        return process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_S)
    return None


def ended_how(code: int | None) -> str:
    if code is None:
        return "the process that reads them does not end and was killed"
    if code >= 0:
        return f"the process that reads them ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    guess = ", most likely in CUPTI" if -code in _CRASHES else ""
    return f"the process that reads them died of {name}{guess}; the trainer goes on"


_EVERY_S = 0.05


def serve(counters: CounterThread, requests: BinaryIO, out: BinaryIO) -> None:
    """Until `requests` ends, or nobody reads `out`."""
    ended = threading.Event()
    threading.Thread(target=_heed, args=(counters, requests, ended), daemon=True).start()
    counters.start()
    before: dict[str, Any] = {}
    try:
        while not ended.wait(_EVERY_S):
            frames = counters.drain()
            state = {
                "notes": counters.remarks, "active": counters.active, "settling": counters.settling,
            }  # fmt: skip
            if state != before:
                frames.append(Frame(Kind.STATUS, state, time.time_ns()))
                before = state
            out.write(b"".join(map(encode, frames)))
            out.flush()
    except BrokenPipeError:
        pass
    finally:
        counters.close()


def _heed(counters: CounterThread, requests: BinaryIO, ended: threading.Event) -> None:
    try:
        for line in requests:
            _obey(counters, *next(iter(json.loads(line).items())))
    except ValueError:  # a monitor that was killed in the middle of a line
        pass
    finally:
        ended.set()


def _obey(counters: CounterThread, what: str, value: Any) -> None:
    if what == "match":
        counters.match({int(number): uuid for number, uuid in value.items()})
    elif what == "expect":
        counters.expect(value)
    elif what == "traced":
        rows = np.zeros(len(value), OBSERVED)
        for row, (start_ns, end_ns) in zip(rows, value, strict=True):
            row["start_ns"], row["end_ns"] = start_ns, end_ns
        counters.traced(rows)


def main() -> None:
    """Its argument is the number of the monitor, to whom the terminal's interrupt belongs."""
    end_with(int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever CUPTI prints is no frame
    serve(CounterThread(), sys.stdin.buffer, frames)
    os._exit(0)  # a driver that hangs in its own end must not keep us
