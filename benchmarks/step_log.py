"""A trainer under `stepped.py`, seen from outside: its steps, marks in them, windows between marks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import stepped

I8 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BucketStyle:
    """A moment right after a step at which the device had nothing left to do."""

    count: int
    time_ns: int
    worked: bool = True


@dataclass(frozen=True)
class Window:
    """Whole steps between two marks."""

    steps: int
    mean_ns: float
    longest_ns: int
    start_ns: int
    end_ns: int


def trainer_environment() -> dict[str, str]:
    """Ours without PYTHONPATH, which holds what only the monitor needs."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


class StepLog:
    """The mapped log of a trainer's steps.

    Args:
        path: Made anew, empty.
        alive: Whether the trainer still runs.
        tail: The last that it printed.
    """

    def __init__(self, path: Path, alive: Callable[[], bool], tail: Callable[[], str]) -> None:
        self.name = path.stem
        path.write_bytes(b"")
        os.truncate(path, 8 * (stepped.WORDS + stepped.SLOTS))
        self._words = np.memmap(path, np.int64, "r+")
        self._is_alive, self._tail = alive, tail

    @property
    def count(self) -> int:
        return int(self._words[stepped.COUNT])

    def wait_for_steps(self, least: int, limit_s: float) -> bool:
        end = time.monotonic() + limit_s
        while self._is_alive() and time.monotonic() < end:
            if self.count >= least:
                return True
            time.sleep(0.02)
        return False

    def order(self, code: int, limit_s: float = 30.0) -> BucketStyle:
        """Has the trainer do something at the end of its next step.

        Raises:
            RuntimeError: It ended, or has not done it in time.
        """
        number = int(self._words[stepped.ORDER]) + 1
        self._words[stepped.CODE] = code
        self._words[stepped.ORDER] = number
        end = time.monotonic() + limit_s
        while int(self._words[stepped.OBEYED]) != number:
            alive = self._is_alive()
            if not alive or time.monotonic() > end:
                raise RuntimeError(f"{self.name} {'hangs' if alive else 'ended'}: {self._tail()}")
            time.sleep(0.0005)
        at = [int(self._words[i]) for i in (stepped.AT_COUNT, stepped.AT_NS, stepped.OUTCOME)]
        return BucketStyle(at[0], at[1], not at[2])

    def mark(self) -> BucketStyle:
        return self.order(stepped.SYNC)

    def durations(self, start: BucketStyle, end: BucketStyle) -> I8:
        """Of the steps between marks, as the host saw them; without those the marks themselves delay."""
        return np.diff(self.ends(start, end))

    def ends(self, start: BucketStyle, end: BucketStyle) -> I8:
        """When the steps between marks ended, CLOCK_MONOTONIC in ns."""
        slots = stepped.WORDS + np.arange(start.count, end.count) % stepped.SLOTS
        return np.asarray(self._words[slots])

    def recent_ns(self, steps: int) -> I8:
        """Durations of the last steps, as the host saw them."""
        slots = stepped.WORDS + np.arange(self.count - steps - 1, self.count) % stepped.SLOTS
        return np.diff(self._words[slots])

    def window(self, start: BucketStyle, end: BucketStyle) -> Window | None:
        """None: not two whole steps."""
        steps = end.count - start.count
        durations = self.durations(start, end)
        if steps < 2 or not len(durations):
            return None
        mean_ns = (end.time_ns - start.time_ns) / steps
        return Window(steps, mean_ns, int(durations.max()), start.time_ns, end.time_ns)


class SteppedTrainer(StepLog):
    """One script under way.

    Args:
        script: The training script.
        arguments: Its own.
        folder: Where the log and what it prints go.
        cupti_from: A folder with cupti-python for its process.
    """

    def __init__(
        self, script: Path, arguments: list[str], folder: Path, cupti_from: str | None = None
    ) -> None:
        log = folder / f"{script.stem}.steps"
        super().__init__(log, lambda: self.alive, self.tail)
        self.output_path = folder / f"{self.name}.out"
        launcher = str(Path(stepped.__file__).resolve())
        rival = ["--cupti-from", cupti_from] if cupti_from else []
        command = [sys.executable, "-u", launcher, "--log", str(log.resolve()), *rival]
        with self.output_path.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, str(script.resolve()), *arguments],
                cwd=script.resolve().parent, stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, env=trainer_environment(),
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def pause(self) -> None:
        """Stops it, so that another has the machine."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def rss_bytes(self) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def tail(self) -> str:
        return " | ".join(self.output_path.read_text("utf-8", "replace").strip().splitlines()[-4:])

    def kill(self) -> None:
        if self.alive:
            self.process.kill()
        self.process.wait()
