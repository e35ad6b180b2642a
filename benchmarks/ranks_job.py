"""A job under torchrun, and what goes wrong in it."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import ranks_plan
from step_log import StepLog, Window, trainer_environment

HERE = Path(__file__).resolve().parent
START_LIMIT_S = 90.0
RECENT_STEPS = 12


class Job:
    """One that loads its modules at once and begins when it is told to."""

    def __init__(self, name: str, kind: str, args: argparse.Namespace) -> None:
        self.name, self.folder = name, (args.out / "jobs" / name).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in self.folder.iterdir():
            file.unlink()
        self.pids: list[int] = []
        self.ranks: int = args.ranks
        plan = self.folder / "plan"
        plan.write_bytes(bytes(8 * ranks_plan.WORDS))
        self._plan = np.memmap(plan, np.int64, "r+")
        self.logs = [
            StepLog(self.folder / f"rank{rank}.steps", self.alive, self.tail)
            for rank in range(args.ranks)
        ]
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                   str(args.ranks), str(HERE / "ranks_trainer.py"), kind, "--folder", str(self.folder),
                   "--device", args.device]  # fmt: skip
        env = trainer_environment() | {"OMP_NUM_THREADS": "1"}
        with (self.folder / "output").open("wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env,
                start_new_session=True,
            )  # fmt: skip

    def begin(self) -> None:
        """Lets it touch the GPUs."""
        (self.folder / "begin").touch()

    def go(self) -> list[int]:
        """Process ids of its ranks, which train from now on.

        Raises:
            RuntimeError: They do not get warm.
        """
        self.begin()
        files = [self.folder / f"rank{rank}.pid" for rank in range(self.ranks)]
        end = time.monotonic() + START_LIMIT_S
        while not all(file.exists() and file.read_text() for file in files):
            if not self.alive() or time.monotonic() > end:
                raise RuntimeError(f"{self.name} does not train: {self.tail()}")
            time.sleep(0.05)
        self.pids = [int(file.read_text()) for file in files]
        (self.folder / "go").touch()
        return self.pids

    def goes_wrong(self, kind: int, rank: int, size_s: float) -> None:
        """From the next step on."""
        self._plan[ranks_plan.RANK] = rank
        self._plan[ranks_plan.SIZE_US] = round(size_s * 1e6)
        self._plan[ranks_plan.KIND] = kind

    def goes_well(self) -> None:
        self._plan[ranks_plan.KIND] = 0

    def step_s(self, steps: int = RECENT_STEPS, limit_s: float = 15.0) -> float:
        """Median of the next steps of the first rank.

        Raises:
            RuntimeError: They do not come.
        """
        log = self.logs[0]
        first = log.count
        if not log.wait_for_steps(first + steps + 1, limit_s):
            raise RuntimeError(f"{self.name} makes no steps: {self.tail()}")
        return float(np.median(log.recent_ns(steps))) / 1e9

    def window(self, steps: int) -> list[Window]:
        """So many steps of each rank from the middle between two readings of its loss, between two moments at
        which its GPU had nothing left to do.

        Raises:
            RuntimeError: It ended, or too few steps came.
        """
        log = self.logs[0]
        first = log.count + (ranks_plan.LOG_STEPS // 2 - log.count) % ranks_plan.LOG_STEPS
        log.wait_for_steps(first, START_LIMIT_S)
        starts = [log.mark() for log in self.logs]
        log.wait_for_steps(first + steps, START_LIMIT_S)
        ends = [log.mark() for log in self.logs]
        windows = [
            log.window(start, end) for log, start, end in zip(self.logs, starts, ends, strict=True)
        ]
        if None in windows:
            raise RuntimeError(f"{self.name}: steps are longer than a window")
        return [one for one in windows if one is not None]

    def losses(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.f4"

    def alive(self) -> bool:
        return self.process.poll() is None

    def tail(self) -> str:
        return (self.folder / "output").read_text("utf-8", "replace")[-600:]

    def kill(self) -> None:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        with contextlib.suppress(OSError):  # which tells of ranks that are not warm yet, too
            self.pids = [*{*self.pids, *map(int, children.read_text().split())}]
        for pid in self.pids:  # torchrun's ranks are groups of their own
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Neighbour:
    """A process that keeps the GPU of one rank busy; it imports torch at once and begins when told to."""

    def __init__(self, rank: int, args: argparse.Namespace) -> None:
        device = f"cuda:{rank}" if args.device == "cuda" else "cpu"
        command = [sys.executable, str(HERE / "ranks_neighbour.py"), device]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=trainer_environment()
        )

    def begin(self) -> None:
        """Raises RuntimeError where it does not run."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        there = select.select([self.process.stdout], [], [], START_LIMIT_S)[0]
        if not there or self.process.stdout.readline() != b"ready\n":
            raise RuntimeError("the neighbour does not run")

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
