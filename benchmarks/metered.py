"""Runs a training script with a clock around every read-back: what it measures of its own syncs.

    python benchmarks/metered.py SCRIPT [ITS ARGUMENTS ...] > NAME.meter.json

Times `Tensor.item`, `.cpu`, `.tolist`, `.numpy` and truth values of tensors on the host, outermost
call only, over the steps after the first twenty (an optimizer's `step` ends one). Nothing of brrrtop
runs beside it. `stalls.py` holds the result against the account, as it does meters of the script.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

READS = ("item", "cpu", "tolist", "numpy", "__bool__", "__float__", "__int__")
WARM_UP = 20


class Meter:
    """Sums the time in reads, and counts steps."""

    def __init__(self) -> None:
        self.steps = -WARM_UP
        self.read_s = 0.0
        self.reads = 0
        self.began_s = 0.0
        self.ended_s = 0.0
        self._inside = False

    def timed(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            if self._inside:
                return read(*args, **more)
            self._inside = True
            began_s = time.perf_counter()
            try:
                return read(*args, **more)
            finally:
                self._inside = False
                if self.steps >= 0:
                    self.read_s += time.perf_counter() - began_s
                    self.reads += 1

        return call

    def step(self, *_: object) -> None:
        self.steps += 1
        now_s = time.perf_counter()
        if self.steps == 0:
            self.began_s = now_s
        self.ended_s = now_s

    def report(self, script: str) -> dict[str, Any]:
        """In the shape of a meta file of the zoo; steps None when too few were made."""
        steps = self.steps if self.steps > 0 else None
        wall_ms = 1e3 * (self.ended_s - self.began_s)
        return {
            "name": script,
            "steps": steps,
            "step_ms": wall_ms / steps if steps else None,
            "reads_per_step": self.reads / steps if steps else None,
            "meters_ms_per_step": {"read_back": 1e3 * self.read_s / steps} if steps else {},
        }


def main(arguments: list[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    meter = Meter()
    for name in READS:
        setattr(torch.Tensor, name, meter.timed(getattr(torch.Tensor, name)))
    register_optimizer_step_post_hook(meter.step)
    script, sys.argv = arguments[0], arguments
    sys.path.insert(0, script.rpartition("/")[0] or ".")
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leaving:
        if leaving.code:
            raise
    finally:
        sys.stdout = out
    print(json.dumps(meter.report(script.rpartition("/")[2].removesuffix(".py")), indent=1))
    return 0 if meter.steps > 0 else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
