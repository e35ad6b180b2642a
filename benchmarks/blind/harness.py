"""The zoo's harness for scripts that were written blind, against a driver of another name.

Their writers had seen neither brrrtop's source nor its tests, and TRUTH (what a monitor should say,
and must not say) was fixed before anything ran. It stays as predicted, also where it turned out
wrong (benchmarks/results/h200-blind.json). A NAME_fixed.py is NAME.py with its plant mended.

tests/recordings/blind was recorded by that driver, which besides read NVML beside a second, undisturbed
loop (the readings are in the provenance); this one does not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))
from zoo import harness as zoo

T = TypeVar("T")


@dataclass(frozen=True)
class Config(zoo.Setting):
    """What a script builds itself from."""

    leaving: ExitStack

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def amp(self, dtype: torch.dtype = torch.bfloat16) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, dtype=dtype)

    def timed(self, meter: str) -> AbstractContextManager[object]:
        """Where the other driver adds up the host's time under a name; here nobody asks for it."""
        return nullcontext(meter)

    def at_exit(self, close: Callable[[], object]) -> None:
        self.leaving.callback(close)


def forever(loader: Iterable[T]) -> Iterator[T]:
    """The loader's batches, over and over."""
    while True:
        yield from loader


def main(
    file: str,
    truth: dict[str, object],
    build: Callable[[Config], zoo.Step],
    timed_steps: int = 30,
    active_steps: int = zoo.TRACED,
) -> None:
    """Runs one script by its command line, which is that of the zoo.

    Args:
        timed_steps: Whose mean is the step time of a recording.
        active_steps: Steps of its trace.
    """
    with ExitStack() as leaving:
        zoo.main(
            file,
            truth,
            lambda s: build(Config(s.device, s.tiny, leaving)),
            timed_steps,
            active_steps,
        )
