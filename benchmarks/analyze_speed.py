"""How fast and how lean `brrrtop analyze` is beside HolisticTraceAnalysis on the same trace.

    python benchmarks/analyze_speed.py TRACE [--rounds 5] [--hta-python PYTHON]

Each round runs, one after the other, a whole process of each: `python -m brrrtop analyze TRACE
--json`, and HTA loading the trace and doing its temporal and kernel breakdown with nanosecond
rounding off. So both meet the same state of the machine. Printed are wall time, processor time and
peak resident memory of each (smallest, median, largest), and the ratios round by round.

Without `--hta-python` the script makes an environment with HTA of its own in the user's cache
folder, once; brrrtop's own environment stays as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

HTA = "HolisticTraceAnalysis==0.5.0"
HTA_RUN = """
import sys, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
found.get_temporal_breakdown(visualize=False)
found.get_gpu_kernel_breakdown(visualize=False)
"""
LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Run:
    wall_s: float
    cpu_s: float
    peak_bytes: int


def measured(command: list[str]) -> Run:
    """One process from start to exit: wall time, and peak memory as the kernel counted it.

    Raises:
        SystemExit: It failed.
    """
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env={**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"},
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            tail = said.read().decode("utf-8", "replace")[-2000:]
            raise SystemExit(f"{' '.join(command[:4])} failed ({process.returncode}):\n{tail}")
    return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def hta_python(cache: Path) -> str:
    """The interpreter of an environment with HTA; made on first use."""
    folder = cache / "brrrtop" / "hta-venv"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        print(f"making {folder} with {HTA} ...", file=sys.stderr)
        venv.EnvBuilder(with_pip=True, clear=True).create(folder)
        subprocess.run([python, "-m", "pip", "install", "-q", HTA], check=True)
        ready.touch()
    return str(python)


def spread(values: list[float], unit: str, digits: int = 2) -> str:
    """Smallest, median and largest."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{low:.{digits}f} / {middle:.{digits}f} / {high:.{digits}f} {unit}"


def main() -> None:
    options = parsed()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    hta = options.hta_python or hta_python(cache)
    trace = str(options.trace.resolve())
    contenders = {
        "brrrtop": [sys.executable, "-m", "brrrtop", "analyze", trace, "--json"],
        "hta": [hta, "-c", HTA_RUN, trace],
    }
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for number in range(options.rounds + 1):
        for name, command in contenders.items():
            run = measured(command)
            if number:  # the first round warms the page cache and byte code of both
                runs[name].append(run)
    walls = {name: [run.wall_s for run in found] for name, found in runs.items()}
    peaks = {name: [run.peak_bytes / 1e6 for run in found] for name, found in runs.items()}
    cpus = {name: [run.cpu_s for run in found] for name, found in runs.items()}
    ratios = [b / a for a, b in zip(walls["brrrtop"], walls["hta"], strict=True)]
    cpu_ratios = [b / a for a, b in zip(cpus["brrrtop"], cpus["hta"], strict=True)]
    if options.json:
        print(json.dumps({"wall_s": walls, "cpu_s": cpus, "peak_mb": peaks, "ratio": ratios}))
        return
    print(f"{options.trace.name}, {options.rounds} rounds; smallest / median / largest")
    for name in contenders:
        print(
            f"{name:8} wall {spread(walls[name], 's')}   cpu {spread(cpus[name], 's')}"
            f"   peak {spread(peaks[name], 'MB', 0)}"
        )
    print(
        f"brrrtop: {spread(ratios, 'times faster', 1)}; cpu {spread(cpu_ratios, 'times less', 1)}"
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=Path, help="a Kineto trace, such as hta-v100-large.json.gz")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hta-python", help="an interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
