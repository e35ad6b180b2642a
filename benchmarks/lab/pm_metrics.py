"""Which counters this GPU samples in one pass, and what reading them costs. Needs the GPU, no trainer.

    python benchmarks/lab/pm_metrics.py [--out FILE] [--interval-us 200] [--seconds 2]

Prints one JSON object a line: the pass sets CUPTI names itself, the candidates beside the metrics that
`collectors.counter_device` samples, and the time of a new evaluator, a decode and an evaluation.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collectors import counter_device as counters
from collectors.counter_library import load_cupti, loaded_cupti
from collectors.cuda_devices import cuda_ordinals

CANDIDATES = (
    "sm__inst_executed_realtime", "sm__inst_executed", "sm__inst_issued", "sm__issue_active",
    "smsp__inst_executed", "smsp__inst_issued", "smsp__issue_active", "sm__pipe_fma_cycles_active",
    "sm__pipe_fmaheavy_cycles_active", "sm__pipe_alu_cycles_active", "sm__pipe_shared_cycles_active",
    "sm__inst_executed_pipe_fma", "sm__inst_executed_pipe_alu", "sm__inst_executed_pipe_lsu",
    "sm__inst_executed_pipe_xu", "l1tex__throughput", "l1tex__data_pipe_lsu_wavefronts",
    "l1tex__t_sectors", "l1tex__lsuin_requests", "lts__t_sectors", "lts__t_requests", "lts__t_bytes",
    "lts__d_sectors", "lts__average_t_sector_hit_rate_realtime", "lts__t_sectors_op_read",
    "l2__throughput", "sm__memory_throughput", "gpc__cycles_elapsed", "pcie__read_bytes",
    "nvlrx__bytes", "sm__ctas_active",
)  # fmt: skip


def say(**found: Any) -> None:
    line = json.dumps(found, default=str)
    print(line, flush=True)
    if OUT is not None:
        with OUT.open("a") as out:
            out.write(line + "\n")


def tried(what: str, work: Callable[[], Any]) -> Any:
    """What `work` gives; a fault is printed and gives None."""
    try:
        return work()
    except Exception as fault:
        say(tried=what, fault=f"{type(fault).__name__}: {fault}"[:300])
        return None


def accepted(collector: Any, metrics: list[str], interval_ns: int) -> str:
    try:
        collector.configure(
            metrics=metrics, hardware_buffer_size=64 << 20, sampling_interval=interval_ns
        )
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"[:120]
    return "yes"


def main() -> None:
    global OUT
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--interval-us", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    OUT = args.out
    interval = round(args.interval_us * 1000)
    load_cupti()
    from cupti import pm_sampling, profiler_host

    say(ordinals=tried("ordinals", cuda_ordinals), loaded=loaded_cupti())
    collector = pm_sampling.Collector(device_index=0)
    collector.enable()
    try:
        chip = str(collector._chip_name)
        sets = tried("sets", lambda: profiler_host.get_single_pass_sets(chip)) or []
        say(chip=chip, sets=sets)
        for name in sets:
            say(
                set=name,
                metrics=tried(
                    name,
                    lambda name=name: profiler_host.get_metrics_in_single_pass_set(chip, name),
                ),
            )
        base = list(counters.COUNTERS.values())
        say(base=accepted(collector, base, interval))
        for metric in CANDIDATES:
            full = metric + counters._P
            say(
                metric=metric,
                alone=accepted(collector, [full], interval),
                with_base=accepted(collector, [*base, full], interval),
            )
        began = time.perf_counter()
        host = profiler_host.ProfilerHost(chip, profiler_host.ProfilerType.PM_SAMPLING)
        host.initialize()
        say(evaluator_ms=(time.perf_counter() - began) * 1e3)
        host.deinitialize()
    finally:
        collector.disable()
    for most in (512, 1024, 4096):
        tried(f"read {most}", lambda most=most: read(pm_sampling, interval, args.seconds, most))


def read(sampling: Any, interval: int, seconds: float, most: int) -> None:
    """What draining costs, as the monitor drains."""
    device = counters.DeviceCounters(sampling, 0, interval)
    took = {"decode": 0.0, "evaluate": 0.0}
    counts, end = [], time.perf_counter() + seconds
    try:
        while time.perf_counter() < end:
            time.sleep(0.2)
            began = time.perf_counter()
            decoded = device._collector.decode(max_samples=most)
            middle = time.perf_counter()
            rows = list(decoded)
            took["decode"] += middle - began
            took["evaluate"] += time.perf_counter() - middle
            late = time.time_ns() - rows[-1].end_timestamp if rows else None
            counts.append((len(rows), late))
    finally:
        device.close()
    samples = sum(count for count, _ in counts) or 1
    say(
        most=most, batches=counts[:12], decode_ms=took["decode"] * 1e3 / max(1, len(counts)),
        evaluate_us=took["evaluate"] * 1e6 / samples, columns=device.columns,
    )  # fmt: skip


OUT: Path | None = None

if __name__ == "__main__":
    main()
