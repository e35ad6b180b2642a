"""Turns what `collect.py` made into recordings with their counters beside them, for replay anywhere.

    python -m benchmarks.truth.keep FROM tests/recordings/h200 [--steps 2]
    python -m benchmarks.truth.keep FROM --sweep [--steps 2]
    python -m benchmarks.truth.keep FROM --blind --steps 1  (later rounds: 2)

Per script: NAME.brrr (the trace, with what the script measured and what a monitor should say as
provenance) and, where it was counted, NAME.ncu.csv.gz or NAME.ranges.csv.gz. Of long steps only
`--steps` are kept, with whatever they launched; so of every script of a sweep, which goes to
tests/recordings/h200-sweep. Of those written blind, those go to tests/recordings/blind that were
counted, with `--uncounted` the others, too.
"""

from __future__ import annotations

import argparse
import ast
import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.truth.runs import BLIND, SWEEP
from brrrtop.session.converting import convert, read_meta
from brrrtop.session.opening import open_source
from brrrtop.session.source import Source
from brrrtop.tables import Span
from collectors.wire import Frame, Kind, MarkClass

ZOO = Path(__file__).resolve().parents[1] / "zoo"
SWEPT = ZOO.with_name("sweep")
UNSEEN = ZOO.with_name("blind")
LONG = 20_000
"""Kernels; a recording with more is cut."""
LARGE = 12_100
"""The same for the scripts written blind; of one with fewer, a checkpoint every eighth step is the plant."""
READ = ("graphics_util", "sm_util", "any_tensor_util", "dram_bw_util", "fp64_util", "fp32_util",
        "fp16_util")  # fmt: skip
"""Of what NVML read beside the undisturbed loop: the columns that `runs.GPM` knows."""
COUNTED = {
    "ncu": "Nsight Compute, first kernels of a step in launch order, clocks not locked",
    "ranges": "CUPTI range profiler, every kernel of a step in launch order, clocks not locked",
}
"""By what a file of counters is called."""
LAUNCHED = (Kind.KERNELS, Kind.COPIES, Kind.LINKS)


class Cut:
    """A source that gives only what the middle steps launched."""

    def __init__(self, source: Source, steps: int, most: int = LONG) -> None:
        self._source = source
        self._steps = steps
        self._most = most
        self.info = source.info

    @property
    def span(self) -> Span | None:
        return self._source.span

    @property
    def ended(self) -> bool:
        return self._source.ended

    def frames(self, until_ns: int | None = None) -> Iterator[Frame]:
        frames = list(self._source.frames(until_ns))
        kernels = sum(len(f.body) for f in frames if f.kind == Kind.KERNELS)
        yield from frames if kernels <= self._most else self._middle(frames)

    def seek(self, t_ns: int) -> None:
        self._source.seek(t_ns)

    def close(self) -> None:
        self._source.close()

    def _middle(self, frames: list[Frame]) -> Iterator[Frame]:
        marks = [f.body for f in frames if f.kind == Kind.MARKS]
        steps = [body["start_ns"][body["mark_class"] == MarkClass.STEP] for body in marks]
        starts = np.sort(np.concatenate(steps)) if steps else np.empty(0, np.int64)
        if not len(starts):
            yield from frames
            return
        first, until = min(1, len(starts) - 1), 1 + self._steps
        low = int(starts[first])
        high = int(starts[until]) if until < len(starts) else np.iinfo(np.int64).max
        calls = np.concatenate([f.body for f in frames if f.kind == Kind.CALLS])
        inside = (calls["start_ns"] >= low) & (calls["start_ns"] < high)
        launched = np.unique(calls["correlation"][inside])
        links = np.concatenate([f.body for f in frames if f.kind == Kind.LINKS])
        used = set(links["op_id"][np.isin(links["correlation"], launched)].tolist())
        for frame in frames:
            body: Any = frame.body
            if frame.kind in LAUNCHED:
                body = body[np.isin(body["correlation"], launched)]
            elif frame.kind in (Kind.CALLS, Kind.MARKS):
                body = body[(body["start_ns"] >= low) & (body["start_ns"] < high)]
            elif frame.kind == Kind.OPS:
                body = [row for row in body if row[0] in used]
            yield replace(frame, body=body)


def stated(script: Path) -> Any:
    """What a monitor should say of a script, read from its TRUTH without running it."""
    for node in ast.parse(script.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TRUTH":
            return ast.literal_eval(node.value)
    raise SystemExit(f"{script.name} states no TRUTH")


def readings(meta: dict[str, Any]) -> dict[str, Any]:
    """NVML's readings beside the undisturbed loop; empty without any.

    As provenance, not as gauges: they are of another run of the loop than the kernels.
    """
    nvml = meta.get("nvml") or {}
    windows = [{key: one[key] for key in READ} for one in nvml.get("gpm_windows") or ()]
    smi = {"sm_mhz": (nvml.get("nvidia_smi") or {}).get("sm_mhz")}
    return {"nvml": {"gpm_windows": windows, "nvidia_smi": smi}} if windows else {}


def facts_of(name: str, scripts: Path, meta: dict[str, Any]) -> dict[str, Any]:
    """A recording's provenance; scripts that are not of this repository say what they are beside
    their trace, and those of a sweep need not be anything."""
    script = scripts / f"{name}.py"
    states = script.exists() and "\nTRUTH = " in script.read_text()
    folder = f"benchmarks/{scripts.name}" if script.exists() else scripts.name
    return {
        "script": f"{folder}/{name}.py",
        "truth": stated(script) if states else meta.get("truth") or {},
        "step_ms": meta.get("step_ms"),
        **readings(meta),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--sweep", action="store_true", help="of benchmarks/sweep")
    kind.add_argument("--blind", action="store_true", help="of benchmarks/blind")
    parser.add_argument("--uncounted", action="store_true", help="with --blind")
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()
    if args.sweep:
        keep(args.folder, args.out or SWEEP, SWEPT, args.steps, 0)
    elif args.blind:
        keep(args.folder, args.out or BLIND, UNSEEN, args.steps, LARGE, not args.uncounted)
    elif args.out:
        keep(args.folder, args.out, ZOO, args.steps, LONG)
    else:
        parser.error("say where to: tests/recordings/h200, or --sweep, or --blind")


def keep(
    folder: Path, out: Path, scripts: Path, steps: int, most: int, counted: bool = False
) -> None:
    """Everything traced in `folder`, as recordings in `out`.

    Args:
        scripts: The folder they are of.
        most: Kernels; a recording with more is cut to `steps`.
        counted: Only those that were counted.
    """
    out.mkdir(parents=True, exist_ok=True)
    for trace in sorted(folder.glob("*.trace.json.gz")):
        name = trace.name.partition(".")[0]
        kinds = [by for by in COUNTED if trace.with_name(f"{name}.{by}.csv").exists()]
        if counted and not kinds:
            continue
        meta = read_meta(trace.with_name(f"{name}.meta.json"))
        facts = facts_of(name, scripts, meta)
        for by in kinds:
            facts["counters"] = COUNTED[by]
            # A fixed time in the header: the same counters give the same file.
            packed = gzip.compress(trace.with_name(f"{name}.{by}.csv").read_bytes(), 9, mtime=0)
            (out / f"{name}.{by}.csv.gz").write_bytes(packed)
        source = Cut(open_source(trace), steps, most)
        beside = {key: value for key, value in meta.items() if key != "nvml"}
        convert(source, out / f"{name}.brrr", facts, beside)
        print(name, (out / f"{name}.brrr").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
