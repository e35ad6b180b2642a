"""What advice promises beside what its fix wins: pairs of loops, one changed thing each.

    python benchmarks/promises.py record --out DIR     # on a GPU; needs torch alone
    python benchmarks/promises.py judge DIR            # anywhere; needs brrrtop

`record` times each loop with nothing attached, before and after, in turns, then traces eight steps
of each. Each pair has a process of its own; one that fails is noted and the others go on. What it
found lies in DIR/promises.tar. `judge` asks brrrtop about the traces: what it promised beside what
was measured, whether the advice is gone after the fix, and what its own comparison says was won.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

WARM_UP, TIMED, ROUNDS, TRACED = 12, 20, 3, 8
PAIR_SECONDS = 240.0
"""Most one pair may take; the compiler is the slowest part."""
PART_BYTES = 15 << 20
"""Largest tar: results travel in parts."""


def known() -> dict[str, Any]:
    """The pairs by the advice whose fix they are."""
    from pairs import moving, multiplying, waiting

    pairs = (*waiting.PAIRS, *multiplying.PAIRS, *moving.PAIRS)
    return {build.__name__.replace("_", "-"): build for build in pairs}


def measure(kind: str, out: Path, device: str, tiny: bool) -> int:
    """One pair, in this process: its times and traces, or the reason why there are none."""
    found: dict[str, Any] = {"kind": kind, **surroundings(device)}
    try:
        _measure(kind, out, device, tiny, found)
    except Exception as error:
        text = str(error).strip().splitlines() or [""]
        found["failed"] = f"{type(error).__name__}: {text[0][:300]}"
    (out / f"{kind}.json").write_text(json.dumps(found, indent=1))
    sys.stdout.flush()
    # Workers of loaders and compilers are in this process's group; the parent ends them.
    os._exit(1 if "failed" in found else 0)


def _measure(kind: str, out: Path, device: str, tiny: bool, found: dict[str, Any]) -> None:
    import torch
    from pairs.place import Place

    torch.manual_seed(0)
    place = Place(device, tiny)
    build = known()[kind]
    steps = build(place, False), build(place, True)
    for step in steps:
        for _ in range(WARM_UP):
            step()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for side, step in zip(times, steps, strict=True):
            side.append(milliseconds(step, device))
    before, after = (statistics.median(side) for side in times)
    found |= {"before_ms": before, "after_ms": after, "times_ms": times}
    print(f"{kind}: {before:.2f} ms -> {after:.2f} ms", flush=True)
    for step, name in zip(steps, (kind, f"{kind}.after"), strict=True):
        trace(step, out / f"{name}.trace.json.gz", device)


def wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def milliseconds(step: Any, device: str) -> float:
    """Wall a step. One goes first: it finds the allocator as the other loop left it."""
    step()
    wait(device)
    began = time.perf_counter()
    for _ in range(TIMED):
        step()
    wait(device)
    return 1000 * (time.perf_counter() - began) / TIMED


def trace(step: Any, path: Path, device: str) -> None:
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=2, active=TRACED, repeat=1),
        on_trace_ready=lambda found: found.export_chrome_trace(str(path)),
        record_shapes=True,
    ) as profiler:
        # No wait before the traced steps: the queue is as full as in any other step.
        for _ in range(2 + TRACED):
            step()
            profiler.step()


def surroundings(device: str) -> dict[str, Any]:
    import torch

    found: dict[str, Any] = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "device": device,
        "driver": None,
    }
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
    if tool := shutil.which("nvidia-smi"):
        ask = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
        answer = subprocess.run(ask, capture_output=True, text=True, timeout=20, check=False)
        found["driver"] = answer.stdout.partition("\n")[0].strip() or None
    return found


@dataclass
class Recorder:
    """Runs pairs, each in a process of its own, one at a time on each GPU."""

    out: Path
    options: argparse.Namespace
    ends: float
    """Monotonic time at which the last one is stopped."""
    running: dict[int, tuple[str, subprocess.Popen[bytes], float]] = field(default_factory=dict)
    """By GPU: the pair, its process and when it is stopped."""

    def run(self, kinds: list[str]) -> None:
        waiting = list(kinds)
        try:
            while waiting or self.running:
                for gpu in range(self.options.gpus):
                    if gpu not in self.running and waiting and time.monotonic() < self.ends:
                        self.start(gpu, waiting.pop(0))
                self.look()
                if not self.running and time.monotonic() >= self.ends:
                    break
                time.sleep(0.05)
        finally:
            for _, process, _ in self.running.values():
                end(process)
        for kind in waiting:
            self.note(kind, "no time was left for it")

    def start(self, gpu: int, kind: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), "one", kind]
        command += ["--out", str(self.out), "--device", self.options.device]
        command += ["--tiny"] if self.options.tiny else []
        environment = dict(os.environ)
        if self.options.gpus > 1:
            visible = [v for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v]
            environment["CUDA_VISIBLE_DEVICES"] = visible[gpu] if visible else str(gpu)
        with (self.out / f"{kind}.log").open("wb") as log:
            process = subprocess.Popen(command, stderr=log, env=environment, start_new_session=True)
        stops = min(time.monotonic() + PAIR_SECONDS, self.ends)
        self.running[gpu] = (kind, process, stops)

    def look(self) -> None:
        for gpu, (kind, process, stops) in list(self.running.items()):
            late = time.monotonic() >= stops
            if process.poll() is None and not late:
                continue
            end(process)
            del self.running[gpu]
            log = self.out / f"{kind}.log"
            if not (self.out / f"{kind}.json").exists():
                last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1][:300]
                self.note(kind, "stopped at its limit" if late else f"it ended early: {last}")
            elif failed := json.loads((self.out / f"{kind}.json").read_text()).get("failed"):
                print(f"{kind}: {failed}", flush=True)
            log.unlink()

    def note(self, kind: str, failed: str) -> None:
        print(f"{kind}: {failed}", flush=True)
        (self.out / f"{kind}.json").write_text(json.dumps({"kind": kind, "failed": failed}))
        for left in self.out.glob(f"{kind}*.trace.json.gz"):
            left.unlink()


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a pair with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=20)


def record(options: argparse.Namespace) -> int:
    pairs = known()
    wanted = [name for name in options.only.split(",") if name] or list(pairs)
    if strange := [name for name in wanted if name not in pairs]:
        print(f"no such pair: {', '.join(strange)}; there are {', '.join(pairs)}")
        return 2
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + options.deadline
    Recorder(out, options, ends).run(wanted)
    files = [out / f"{kind}{tail}" for kind in wanted for tail in TAILS]
    for path in pack([path for path in files if path.exists()], out):
        print(f"{path}: {path.stat().st_size / (1 << 20):.1f} MiB")
    return 0


TAILS = (".json", ".trace.json.gz", ".after.trace.json.gz")
"""What one pair leaves."""


def pack(files: list[Path], out: Path) -> list[Path]:
    """Moves files into as few tars as their limit allows."""
    parts: list[list[Path]] = [[]]
    room = PART_BYTES
    for path in files:
        size = path.stat().st_size + 2048
        if size > room and parts[-1]:
            parts.append([])
            room = PART_BYTES
        parts[-1].append(path)
        room -= size
    made = []
    for number, part in enumerate(parts, 1):
        made.append(out / ("promises.tar" if len(parts) == 1 else f"promises-{number}.tar"))
        with tarfile.open(made[-1], "w") as tar:
            for path in part:
                tar.add(path, arcname=path.name)
    for path in files:
        path.unlink()
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("--only", default="", help="advisory ids, separated by commas")
    recording.add_argument("--deadline", type=float, default=540.0, metavar="SECONDS")
    recording.add_argument("--gpus", type=int, default=1)
    one = verbs.add_parser("one", help="one pair in this process")
    one.add_argument("kind")
    for parsing in (recording, one):
        parsing.add_argument("--out", type=Path, required=True)
        parsing.add_argument("--device", default="cuda")
        parsing.add_argument("--tiny", action="store_true", help="tries the plumbing")
    judging = verbs.add_parser("judge")
    judging.add_argument("found", type=Path, help="the folder, or a tar from it")
    judging.add_argument("--json", type=Path, help="write what was found there too")
    judging.add_argument("--readme", type=Path, help="replace the table in there")
    options = parser.parse_args()
    if options.verb == "one":
        return measure(options.kind, options.out, options.device, options.tiny)
    if options.verb == "record":
        return record(options)
    import judged

    return judged.judge(options.found, options.json, options.readme)


if __name__ == "__main__":
    raise SystemExit(main())
