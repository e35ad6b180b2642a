"""What each probe costs the trainer, in us of CPU a call: with it and without it, in turns.

    python benchmarks/probe_cost.py [--library PATH] [--pairs 30]

Without `--library` one whose functions are empty is compiled: the figures are Python's part alone.
With the agent's own, and no monitor, they include its look whether somebody listens.
Needs torch; runs on the CPU.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import io
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

AGENT = Path(__file__).resolve().parents[1] / "collectors" / "agent"
EMPTY = """
#include <stdint.h>
int brrr_start(const char *a, const char *b, const char *c) { return 0; }
int brrr_stop(void) { return 0; }
int brrr_wait(int ms) { return 0; }
int brrr_frame(uint16_t k, const char *r, uint32_t bytes, uint32_t n) { return 0; }
void brrr_graphs(int n) {}
void brrr_capture(int begins) {}
void brrr_collection(int begins, int generation) {}
int brrr_yield(const char *w) { return 0; }
int brrr_resume(void) { return 0; }
uint32_t brrr_name(const char *t) { return 1; }
const char *brrr_last_error(void) { return ""; }
void brrr_step(int64_t t, uint32_t tid) {}
void brrr_mark(uint16_t c, int64_t a, int64_t b, int64_t v, uint32_t n, uint32_t t) {}
"""


class Rows(Dataset[int]):
    """As quick as a data set can be, so that the probe is the larger part."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> int:
        return index


def steps() -> int:
    for _ in range(1000):
        OPTIMIZER.step()
    return 1000


def batches() -> int:
    return sum(1 for _ in DataLoader(Rows(), batch_size=2, collate_fn=len))


def collections() -> int:
    for _ in range(1000):
        gc.collect(0)
    return 1000


def saves() -> int:
    for _ in range(20):
        torch.save(None, io.BytesIO())
    return 20


WEIGHT = torch.nn.Parameter(torch.ones(1))
WEIGHT.grad = torch.zeros(1)
OPTIMIZER = torch.optim.SGD([WEIGHT], lr=0.0, foreach=False)


def empty_library(folder: str) -> str:
    """A compiled library that does nothing."""
    source, built = Path(folder, "empty.c"), Path(folder, "empty.so")
    source.write_text(EMPTY)
    subprocess.run(["cc", "-O2", "-w", "-shared", "-fPIC", "-o", built, source], check=True)
    return str(built)


def agent_control(library: str) -> Any:
    """The agent, loaded as in a trainer, its thread not started."""
    spec = importlib.util.spec_from_file_location(
        "_brrrtop_agent", AGENT / "__init__.py", submodule_search_locations=[str(AGENT)]
    )
    assert spec is not None
    sys.modules["_brrrtop_agent"] = importlib.util.module_from_spec(spec)
    from _brrrtop_agent.control import Control  # type: ignore[import-not-found]
    from _brrrtop_agent.library import Native  # type: ignore[import-not-found]

    return Control(Native(library), "")


def call_us(work: Callable[[], int]) -> float:
    begun = time.thread_time()  # CPU time: all of it is this thread's, and neighbours do not show
    count = work()
    return (time.thread_time() - begun) / count * 1e6


def compare(probe: Any, work: Callable[[], int], pairs: int) -> tuple[float, float, float, float]:
    """A plain call, what the probe adds (median of the pairs), the middle half of that; all us."""
    plain, added = [], []
    for pair in range(pairs + 2):
        times = {}
        for on in (pair % 2 == 0, pair % 2 == 1):
            (probe.install if on else probe.remove)()
            times[on] = call_us(work)
        if pair >= 2:
            plain.append(times[False])
            added.append(times[True] - times[False])
    probe.remove()
    low, middle, high = statistics.quantiles(added, n=4)
    return statistics.median(plain), middle, low, high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library")
    parser.add_argument("--pairs", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        control = agent_control(options.library or empty_library(folder))
    probes = {probe.name: probe for probe in control.probes}
    print(f"Python {platform.python_version()}, torch {torch.__version__}, {platform.machine()}")
    print(f"probe        one call  probe adds   middle half of {options.pairs} pairs (us)")
    works = {"steps": steps, "loader": batches, "gc": collections, "saving": saves}
    for name, work in works.items():
        plain, middle, low, high = compare(probes[name], work, options.pairs)
        print(f"{name:10} {plain:10.2f} {middle:11.2f}   {low:.2f} to {high:.2f}")
    control.hook()
    for label, call, count in (
        ("a stack sample", lambda: control.stacks.sample(time.time_ns()), 2000),
        ("a quiet round of the control thread", lambda: control._round(time.time_ns()), 200),
    ):
        call()
        times = []
        for _ in range(count):
            begun = time.thread_time()
            call()
            times.append((time.thread_time() - begun) * 1e6)
        print(f"{label}: median {statistics.median(times):.1f} us, longest {max(times):.0f} us")
    control.unhook()


if __name__ == "__main__":
    main()
