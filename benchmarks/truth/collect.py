"""Records the zoo on a GPU: a profiler trace, step time, and Nsight Compute's counters of one step.

    python benchmarks/truth/collect.py --out DIR [--only vision,moe] [--kernels 110] [--limit 75]

Per script DIR gets NAME.trace.json.gz, NAME.meta.json and NAME.ncu.csv (index, kernel, grid, block and
the metrics below, in launch order). ncu replays every kernel several times, so only the first
`--kernels` of the step are profiled and a script is cut off after `--limit` seconds.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import time
from pathlib import Path

ZOO = Path(__file__).resolve().parents[1] / "zoo"
SCRIPTS = (
    "vision",
    "speech",
    "diffusion",
    "recommender",
    "graph",
    "lora",
    "moe",
    "fp8",
    "decode",
    "mixed",
)
METRICS = (
    "gpu__time_duration.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "launch__waves_per_multiprocessor",
)


def trace(script: str, out: Path, limit_s: float) -> str:
    command = [sys.executable, f"{script}.py", "--profile-dir", str(out)]
    done = subprocess.run(
        command, cwd=ZOO, capture_output=True, text=True, timeout=limit_s, check=False
    )
    return "ok" if done.returncode == 0 else f"failed: {done.stderr.strip().splitlines()[-1:]}"


def counters(script: str, out: Path, kernels: int, limit_s: float) -> str:
    command = [
        "ncu", "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none",
        "--csv", "--page", "raw", "--launch-count", str(kernels), "--metrics", ",".join(METRICS),
        "--target-processes", "application-only", sys.executable, f"{script}.py", "--ncu-step",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=ZOO, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))[1:]
    with (out / f"{script}.ncu.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["index", "kernel", "grid", "block", *METRICS])
        for index, row in enumerate(rows):
            writer.writerow(
                [
                    index,
                    row["Kernel Name"],
                    row["Grid Size"],
                    row["Block Size"],
                    *(row.get(m, "") for m in METRICS),
                ]
            )
    return (
        f"{len(rows)} kernels"
        if rows
        else f"no counters: {done.stderr.strip()[-200:] or done.stdout.strip()[-200:]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default=",".join(SCRIPTS))
    parser.add_argument("--kernels", type=int, default=110)
    parser.add_argument("--limit", type=float, default=75.0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for script in args.only.split(","):
        began = time.perf_counter()
        traced = trace(script, args.out, args.limit)
        counted = counters(script, args.out, args.kernels, args.limit)
        print(
            f"{script:12} trace {traced}; ncu {counted}; {time.perf_counter() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
