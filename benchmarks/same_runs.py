"""What nvidia-smi, key_averages, HTA, TraceLens and brrrtop say about the same runs: a table in Markdown.

    python -m benchmarks.same_runs FOLDER --hta-python PYTHON --tracelens COMMAND

A folder holds `NAME.trace.json.gz`, a torch.profiler trace of a few steps of a script with one planted
bottleneck, and `NAME.meta.json` with what was planted and NVML's utilisation of the same script unprofiled.
The others read the trace files themselves: HolisticTraceAnalysis 0.5.0 by its API (nanosecond rounding off),
TraceLens by `TraceLens_generate_perf_report_pytorch`. What `key_averages` would list first is added up here:
time of the kernels that each op launched itself.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import brrrtop
from brrrtop.model.advice import Advisory

HTA_RUN = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
trace = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
time = trace.get_temporal_breakdown(visualize=False).iloc[0]
idle, _ = trace.get_idle_time_breakdown(visualize=False)
waits = idle.groupby("idle_category")["idle_time"].sum()
print("\\n" + json.dumps({
    "idle": float(time["idle_time_pctg"]), "compute": float(time["compute_time_pctg"]),
    "other": float(time["non_compute_time_pctg"]), "host": float(waits.get("host_wait", 0) / max(waits.sum(), 1)),
}))
"""
COLUMNS = (
    "planted",
    "`nvidia-smi`, nvitop",
    "`key_averages`, first row",
    "HTA",
    "TraceLens",
    "brrrtop",
)


def key_averages(trace: Path) -> str:
    """The op with the most kernel time of its own, and its share of all kernel time."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    names = {
        e["args"]["External id"]: e["name"]
        for e in events
        if e.get("cat") == "cpu_op" and "External id" in e.get("args", {})
    }
    spent: Counter[str] = Counter()
    for e in events:
        if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            spent[names.get(e["args"].get("External id"), "no op")] += e["dur"]
    (name, most), *_ = spent.most_common(1)
    return f"`{name}` {most / spent.total():.0%}"


def hta(python: str, trace: Path) -> str:
    environment = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"}
    command = [python, "-c", HTA_RUN, str(trace.resolve())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        return f"fails: {done.stderr.strip().splitlines()[-1]}"
    of: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    text = f"idle {of['idle']:.0f} %, compute {of['compute']:.0f} %, other {of['other']:.0f} %"
    return text + (f"; {of['host']:.0%} of idle is host wait" if of["idle"] >= 5 else "")


def tracelens(command: str, trace: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        call = [command, "--profile_json_path", str(trace), "--output_csvs_dir", folder]
        done = subprocess.run(call, capture_output=True, text=True)
        if done.returncode:
            return f"fails: {done.stderr.strip().splitlines()[-1]}"
        time = {row["type"]: float(row["percent"]) for row in rows(folder, "gpu_timeline")}
        first = rows(folder, "ops_summary_by_category")[0]
    share = float(first["Percentage (%)"])
    exposed = time["exposed_memcpy_time"]
    copies = f", copies {exposed:.0f} %" if exposed >= 1 else ""
    return (
        f"idle {time['idle_time']:.0f} %{copies}; {first['op category']} {share:.0f} % of kernels"
    )


def rows(folder: str, sheet: str) -> list[dict[str, str]]:
    with (Path(folder) / f"{sheet}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def ours(trace: Path, planted: list[str]) -> str:
    """The verdict; the planted advice, its place and predicted saving; the first where it is not given."""
    report = brrrtop.analyze(trace)
    says = f"{report.regime}-bound" + (f" ({report.cause})" if report.cause else "")
    places = list(enumerate(report.advisories, 1))
    shown = [(place, one) for place, one in places if one.kind in planted] or places[:1]
    return "; ".join([says, *(f"{place}. {simulate_edits(one)}" for place, one in shown)])


def simulate_edits(advice: Advisory) -> str:
    return f"`{advice.kind}`" + ("" if advice.saves is None else f" saves {advice.saves:.0%}")


def main() -> None:
    options = parsed()
    print(f"| script | {' | '.join(COLUMNS)} |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for meta in sorted(options.folder.glob("*.meta.json")):
        about = json.loads(meta.read_text())
        trace = options.folder / f"{about['name']}.trace.json.gz"
        advice = about["truth"]["advice"]
        cells = [
            ", ".join(f"`{one}`" for one in advice),
            f"{about['nvml']['nvidia_smi']['gpu_util']:.0f} %",
            key_averages(trace),
            hta(options.hta_python, trace),
            tracelens(options.tracelens, trace),
            ours(trace, advice),
        ]
        print(f"| {about['name']} | {' | '.join(cells)} |", flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hta-python", required=True, help="an interpreter that has HTA")
    parser.add_argument("--tracelens", required=True, help="its report command")
    return parser.parse_args()


if __name__ == "__main__":
    main()
