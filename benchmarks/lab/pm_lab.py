"""Hardware counter samples beside the kernels of a running trainer, both as they come, for offline study.

    python benchmarks/lab/pm_lab.py --script zoo/gpt_bf16.py --out DIR [--interval-us 100] [--seconds 6]

Attaches, traces continuously for the given time while PM sampling runs in this process, and writes
DIR/NAME.npz: `kernels` (wire rows), `names` (JSON), `samples` (SAMPLE rows, on the GPU's clock), `pairs`
(host time of each reading and the GPU's time of its newest sample). Prints what sampling itself
cost in steps a second.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from step_log import SteppedTrainer  # noqa: E402


def rate(trainer: SteppedTrainer, seconds: float, meanwhile: Callable[[], Any] = int) -> float:
    """Steps a second."""
    count, began = trainer.count, time.perf_counter()
    while time.perf_counter() - began < seconds:
        time.sleep(0.01)
        meanwhile()
    return (trainer.count - count) / (time.perf_counter() - began)


def sampled(
    trainer: SteppedTrainer, interval_ns: int, seconds: float, library: Path | None
) -> dict[str, Any]:
    if library is not None:
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    from cupti import pm_sampling

    from collectors import control, native
    from collectors.attach import attach
    from collectors.counter_device import DeviceCounters
    from collectors.cuda_devices import cuda_ordinals
    from collectors.wire import Kind

    class Noted(DeviceCounters):
        """Keeps the two clocks of each reading too."""

        def drain(self, device: int) -> Any:
            rows = super().drain(device)
            if len(rows):
                pairs.append((time.time_ns(), int(rows["end_ns"][-1])))
            return rows

    found: dict[str, Any] = {}
    pairs: list[tuple[int, int]] = []
    cuda_ordinals()  # starts the driver, without which CUPTI's profiler refuses
    counters = Noted(pm_sampling, 0, interval_ns)
    found["columns"] = counters.columns
    found["rate_sampled"] = rate(trainer, 1.5, lambda: counters.drain(0))
    attached = attach(trainer.pid, native.agent_files())
    rows, kernels, copies, names = [], [], [], []
    try:
        attached.client.send(control.continuous(True))
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.01)
            rows.append(counters.drain(0))
            for frame in attached.client.frames():
                if frame.kind == Kind.KERNELS:
                    kernels.append(frame.body)
                elif frame.kind == Kind.COPIES:
                    copies.append(frame.body)
                elif frame.kind == Kind.NAMES:
                    names.append(frame.body)
    finally:
        attached.leave()
        counters.close()
    found |= {
        "samples": np.concatenate([r for r in rows if len(r)] or [np.zeros(0)]),
        "kernels": np.concatenate(kernels) if kernels else np.zeros(0),
        "copies": np.concatenate(copies) if copies else np.zeros(0),
        "pairs": np.array(pairs, np.int64),
        "names": json.dumps(names, default=str),
        "lost": counters.lost_buffers,
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--script", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--interval-us", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--cupti", type=Path, help="the libcupti that cupti-python wants")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    smi = ["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem", "--format=csv,noheader"]
    for script in args.script:
        trainer = SteppedTrainer(script, ["--seconds", "300"], args.out)
        said: dict[str, Any] = {"script": script.stem}
        try:
            if not trainer.wait_for_steps(30, 90):
                raise RuntimeError(trainer.tail())
            time.sleep(1)
            said["rate_before"] = rate(trainer, 1.5)
            said["clocks_before"] = subprocess.run(
                smi, capture_output=True, text=True, check=False
            ).stdout.strip()
            found = sampled(trainer, int(args.interval_us * 1000), args.seconds, args.cupti)
            said["clocks_after"] = subprocess.run(
                smi, capture_output=True, text=True, check=False
            ).stdout.strip()
            said["rate_after"] = rate(trainer, 1.5)
            arrays = {k: v for k, v in found.items() if isinstance(v, np.ndarray)}
            said |= {
                k: v for k, v in found.items() if not isinstance(v, np.ndarray) and k != "names"
            }
            said |= {k: len(v) for k, v in arrays.items()}
            np.savez_compressed(
                args.out / f"{script.stem}.npz", names=np.array(found["names"]), **arrays
            )
        except Exception as fault:
            said["error"] = f"{type(fault).__name__}: {fault}"
            traceback.print_exc()
        finally:
            trainer.kill()
            (args.out / f"{script.stem}.steps").unlink()
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
