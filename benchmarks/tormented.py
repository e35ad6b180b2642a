"""A trainer that `soak.py` torments, and whether it still lives."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from step_log import trainer_environment

HERE = Path(__file__).resolve().parent
SILENT_S = 5.0


class Tormented:
    """A trainer in a process of its own; it shows life by a file that grows."""

    def __init__(
        self,
        folder: Path,
        name: str,
        words: list[str],
        grows: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.output_path = folder / f"{name}.out"
        self._grows = grows or self.output_path
        command = [sys.executable, "-u", str(HERE / "soak_trainer.py"), *words]
        with self.output_path.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env=trainer_environment() | (environment or {}), cwd=folder,
            )  # fmt: skip
        self._size, self._grown_s = 0, time.monotonic()
        self.silence_s = 0.0

    @property
    def pid(self) -> int:
        return self.process.pid

    def what_is_wrong(self) -> str | None:
        """What is wrong with it, if anything."""
        if self.process.poll() is not None:
            return f"the trainer ended with {self.process.returncode}: {self.tail()}"
        size, now = self.size(), time.monotonic()
        if size > self._size:
            self._size, self._grown_s = size, now
        self.silence_s = max(self.silence_s, now - self._grown_s)
        return (
            f"the trainer was silent for {SILENT_S:.0f} s"
            if now - self._grown_s > SILENT_S
            else None
        )

    def size(self) -> int:
        return self._grows.stat().st_size if self._grows.exists() else 0

    def wait_for(self, size: int, limit_s: float) -> None:
        """Until its file has grown to that many bytes.

        Raises:
            RuntimeError: It has not.
        """
        end = time.monotonic() + limit_s
        while self.size() < size:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"it does not train: {self.tail()}")
            time.sleep(0.05)
        self._size, self._grown_s = self.size(), time.monotonic()

    def tail(self) -> str:
        return " | ".join(self.output_path.read_text("utf-8", "replace").strip().splitlines()[-3:])[
            -400:
        ]

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
