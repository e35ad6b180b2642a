"""What each reading of PM samples brings in a live watch, beside which other parts.

    python benchmarks/lab/pm_live.py --script zoo/gpt_bf16.py --out DIR [--case alone --case gpm …] [--seconds 6]

alone    the counters' thread by itself, as often as it likes
gpm      the same beside NVML and GPM
agent    beside an agent that traces a burst every two seconds
live     beside both, as `brrrtop attach --counters`

Prints each decode: when, how long it took, how many samples, or its fault; then one JSON line a case.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from step_log import SteppedTrainer  # noqa: E402

CASES = ("alone", "gpm", "agent", "live")


def noted(device_class: type, began_s: float, found: dict[str, Any]) -> None:
    """Has each decode and each new start told."""
    made = device_class._open

    def opened(self: Any) -> None:
        made(self)
        decode = self._collector.decode

        def told(**given: Any) -> Any:
            at, line = time.monotonic(), ""
            try:
                samples = decode(**given)
                line = f"{len(samples)} of {given['max_samples']}"
                found["samples"] += len(samples)
                return samples
            except BaseException as fault:
                line = f"{type(fault).__name__}: {fault}"
                found["faults"] += 1
                raise
            finally:
                took_ms = (time.monotonic() - at) * 1e3
                print(f"  {at - began_s:6.2f} s decode {took_ms:7.1f} ms {line}", flush=True)

        if getattr(decode, "is_noted", False):
            return
        told.is_noted = True  # type: ignore[attr-defined]
        self._collector.decode = told
        print(f"  {time.monotonic() - began_s:6.2f} s opened {self.columns}", flush=True)

    device_class._open = opened  # type: ignore[attr-defined]


def watch(trainer: SteppedTrainer, case: str, seconds: float) -> dict[str, Any]:
    from collectors import control, counter_device, native
    from collectors.attach import attach
    from collectors.counters import CounterThread
    from collectors.cuda_devices import cuda_ordinals
    from collectors.nvml_thread import GaugeThread
    from collectors.wire import Kind

    found: dict[str, Any] = {"case": case, "samples": 0, "faults": 0, "frames": {}, "held_us": []}
    counter_device.sampling_module()
    uuid = next(iter(cuda_ordinals()))
    began = time.monotonic()
    made = counter_device.DeviceCounters._open
    noted(counter_device.DeviceCounters, began, found)
    gauges = GaugeThread(trainer.pid) if case in ("gpm", "live") else None
    attached = attach(trainer.pid, native.agent_files()) if case in ("agent", "live") else None
    counters = CounterThread(trainer.pid)
    try:
        if gauges is not None:
            gauges.start()
        counters.start()
        counters.match({0: f"GPU-{uuid}"})
        due = began + 1.5
        while time.monotonic() < began + seconds:
            time.sleep(0.05)
            for frame in counters.drain():
                name = str(int(frame.kind))
                found["frames"][name] = found["frames"].get(name, 0) + 1
            if attached is None:
                continue
            if time.monotonic() > due:
                due += 2.0
                counters.expect(time.time_ns() + 600_000_000)
                attached.client.send(control.burst(3, 600_000_000))
            for frame in attached.client.frames():
                if frame.kind == Kind.OBSERVED:
                    counters.traced(frame.body)
                elif frame.kind == Kind.STATUS and "traced" in frame.body:
                    found["held_us"].append(frame.body["traced"]["held_us"])
    finally:
        found["says"] = counters.says
        found["closed"] = counters.close(5.0)
        if attached is not None:
            attached.leave()
        if gauges is not None:
            gauges.close()
        counter_device.DeviceCounters._open = made  # type: ignore[method-assign]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--seconds", type=float, default=6.0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    trainer = SteppedTrainer(args.script, ["--seconds", "300"], args.out)
    try:
        if not trainer.wait_for_steps(30, 90):
            raise SystemExit(trainer.tail())
        for case in args.case or CASES:
            print(json.dumps(watch(trainer, case, args.seconds)), flush=True)
    finally:
        trainer.kill()


if __name__ == "__main__":
    main()
