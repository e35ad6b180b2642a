"""How fast and how lean `brrrtop analyze` is beside HolisticTraceAnalysis on the same trace.

    python benchmarks/analyze_speed.py TRACE [--rounds 5] [--hta-python PYTHON | --no-hta]
    python benchmarks/analyze_speed.py TRACE --times 16 --into LARGE.json.gz    only makes a trace

Each round runs, one after the other, a whole process of each: `python -m brrrtop analyze TRACE
--json`, and HTA loading the trace and doing its temporal and kernel breakdown with nanosecond
rounding off. So both meet the same state of the machine. Printed are wall time, processor time and
peak resident memory of each (smallest, median, largest), and the ratios round by round.

The trace that figures are given for is `tests/data/df_index_resolver/df_index_resolver.json.gz` of
HolisticTraceAnalysis' repository, 216,000 events; `--times 16` writes it one after the other 16 times, with
times, correlations and ids moved on, which makes 3.5 million.

Without `--hta-python` the script makes an environment with HTA of its own in the user's cache
folder, once; brrrtop's own environment stays as it is.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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


def measured(command: list[str], checkout: Path | None) -> Run:
    """One process from start to exit: wall time, and peak memory as the kernel counted it.

    Args:
        command: What to run.
        checkout: Of brrrtop, which it is to import; None: that does not matter.

    Raises:
        SystemExit: It failed.
    """
    environment = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if checkout is not None:
        also = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(checkout), also)))
    with tempfile.TemporaryFile() as text:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=checkout,
            stdout=subprocess.DEVNULL,
            stderr=text,
            env=environment,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            text.seek(0)
            tail = text.read().decode("utf-8", "replace")[-2000:]
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


MOVED = re.compile(
    rb'("(?:ts|correlation|External id|external id|id|Ev Idx)":\s*)(\d+)((?:\.\d+)?)'
)


def repeat(trace: Path, times: int, target: Path) -> None:
    """Writes a trace several times over, as if its run had gone on."""
    text = trace.read_bytes()
    text = gzip.decompress(text) if trace.suffix == ".gz" else text
    start = text.index(b"[", text.index(b'"traceEvents"')) + 1
    end = text.rindex(b"]")
    parts = MOVED.split(text[start:end].strip())
    keys, numbers = parts[1::4], [int(n) for n in parts[2::4]]
    is_time = [key.startswith(b'"ts"') for key in keys]
    times_us = [n for n, of_time in zip(numbers, is_time, strict=True) if of_time]
    middle = statistics.median(times_us)
    near = [t for t in times_us if abs(t - middle) < 3.6e9]
    span_us = max(near) - min(near) + 1000
    ids = [n for n, of_time in zip(numbers, is_time, strict=True) if not of_time]
    step = 1 + max((n for n in ids if n < 10**9), default=0)
    with gzip.open(target, "wb", 6) if target.suffix == ".gz" else target.open("wb") as file:
        file.write(text[:start])
        for copy in range(times):
            moved = list(parts)
            moved[2::4] = [
                b"%d" % (n + copy * (span_us if of_time else step if 0 < n < 10**9 else 0))
                for n, of_time in zip(numbers, is_time, strict=True)
            ]
            file.write((b"," if copy else b"") + b"".join(moved))
        file.write(text[end:])


def main() -> None:
    options = parsed()
    if options.into:
        repeat(options.trace, options.times, options.into)
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    trace = str(options.trace.resolve())
    ours = [sys.executable, "-m", "brrrtop", "analyze", trace, "--json", "--force"]
    contenders: dict[str, tuple[list[str], Path | None]] = {"brrrtop": (ours, ROOT)}
    if not options.no_hta:
        hta = options.hta_python or hta_python(cache)
        contenders["hta"] = ([hta, "-c", HTA_RUN, trace], None)
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for number in range(options.rounds + 1):
        for name, (command, checkout) in contenders.items():
            run = measured(command, checkout)
            if number:  # the first round warms the page cache and byte code of both
                runs[name].append(run)
    walls = {name: [run.wall_s for run in result] for name, result in runs.items()}
    peaks = {name: [run.peak_bytes / 1e6 for run in result] for name, result in runs.items()}
    cpus = {name: [run.cpu_s for run in result] for name, result in runs.items()}
    others = [name for name in contenders if name != "brrrtop"]
    ratios = {
        name: {
            what: [theirs / own for own, theirs in zip(of["brrrtop"], of[name], strict=True)]
            for what, of in (("wall", walls), ("cpu", cpus), ("peak", peaks))
        }
        for name in others
    }
    print(f"{options.trace.name}, {options.rounds} rounds; smallest / median / largest")
    for name in contenders:
        print(
            f"{name:8} wall {spread(walls[name], 's')}   cpu {spread(cpus[name], 's')}"
            f"   peak {spread(peaks[name], 'MB', 0)}"
        )
    for name, of in ratios.items():
        message = "; ".join(f"{what} {spread(values, 'times less')}" for what, values in of.items())
        print(f"brrrtop beside {name}: {message}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", type=Path, help="a Kineto trace, such as hta-v100-large.json.gz")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hta-python", help="an interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--no-hta", action="store_true")
    parser.add_argument("--times", type=int, default=16, help="for --into")
    parser.add_argument("--into", type=Path, help="make this larger trace, and nothing else")
    return parser.parse_args()


if __name__ == "__main__":
    main()
