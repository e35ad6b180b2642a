"""Records the zoo on GPUs: a profiler trace, step time, and Nsight Compute's counters of one step.

    python benchmarks/truth/collect.py --out DIR [--only held-out] [--gpus 4] [--deadline 540]
    python benchmarks/truth/collect.py --out DIR --zoo OTHER [--only resnet50_fp32,item_sync]
    python benchmarks/truth/collect.py --out DIR --zoo benchmarks/sweep --by cupti --kernels 9000 --limit 280

Per script: NAME.trace.json.gz, NAME.meta.json and NAME.ncu.csv (index, kernel, grid, block and the
metrics below, in launch order), all of them packed into DIR/truth.tar (truth-1.tar … when they are
large). ncu replays every kernel several times, so only the first `--kernels` of the step are
profiled; recording and counting are each cut off after `--limit` seconds. With `--by cupti` the
whole step is counted by `counting` and goes to NAME.ranges.csv instead.

Scripts wait in one line for `--gpus` GPUs, one script a GPU at a time. At `--deadline` whatever runs
is stopped and what was finished is packed. A script of another folder has to know `--profile-dir`
and `--ncu-step`, as those of `benchmarks/zoo` do. `benchmarks/sweep` is no model but kernels by
family, in an order drawn once: what was counted of a script is a fair sample of it.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import queue
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

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
"""Those in view when the estimator's constants were set."""
HELD_OUT = (
    "vit",
    "volume",
    "llama",
    "bert",
    "shampoo",
    "wavenet",
    "clickrate",
    "mobile",
    "contrastive",
    "windows",
    "scan",
    "accumulate",
    "histograms",
    "serving",
)
"""Those written afterwards, to see what the constants are worth elsewhere."""
SETS = {"own": SCRIPTS, "held-out": HELD_OUT}
METRICS = (
    "gpu__time_duration.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "launch__waves_per_multiprocessor",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
)
COLUMNS = ("index", "kernel", "grid", "block", *METRICS)
PACK_BYTES = 15 << 20
"""Of one tar file, with its headers."""
LOG = "collect.log"
NCU_STEP = "--ncu-step"
LEFT_OUT = "left out: "
"""How a script tells, on stderr, of a part of it that this machine cannot run."""


@dataclass
class Job:
    """What all GPUs share."""

    zoo: Path
    out: Path
    kernels: int
    limit_s: float
    until: float
    """By `time.monotonic`: nothing starts and nothing goes on after it."""
    traces: bool = True
    by: str = "ncu"
    """What counts: ncu, or cupti (`counting`)."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, line: str) -> None:
        """To the terminal, and to the log that is packed with the results."""
        with self.lock, (self.out / LOG).open("a") as log:
            log.write(line + "\n")
            print(line, flush=True)


@dataclass(frozen=True)
class Ended:
    """A process that is over; `code` is None when it was stopped or never started."""

    code: int | None
    out: str
    err: str

    @property
    def why(self) -> str:
        """The last words of it."""
        text = self.err.strip() or self.out.strip()
        return "stopped" if self.code is None else " ".join(text.splitlines()[-2:])[-200:]


def trainers_of(process: psutil.Process) -> list[psutil.Process]:
    """The processes under ncu that it counts. The command may be a script that starts the real ncu:
    that one must live on, it has the counts."""
    found = []
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line, program = child.cmdline(), Path(child.exe()).name
            if program.startswith("python") and NCU_STEP in line and "--metrics" not in line:
                found.append(child)
    return found


def after_child(process: subprocess.Popen[bytes], patience_s: float = 10.0) -> int | None:
    """The exit status of ncu once its trainer was ended, gently at first: it then tells what it counted."""
    for number in (signal.SIGINT, signal.SIGKILL):
        for trainer in trainers_of(psutil.Process(process.pid)):
            with contextlib.suppress(psutil.Error):
                trainer.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(patience_s)
    return None


def bounded(
    command: Sequence[str], job: Job, env: dict[str, str], end_child: bool = False
) -> Ended:
    """Runs a command in the zoo until it ends, its limit is over or the deadline has come."""
    began = time.monotonic()
    if began >= job.until:
        return Ended(None, "", "")
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command, cwd=job.zoo, env=env, stdout=out, stderr=err, start_new_session=True
        )
        # Looked at anew each time: an interrupt moves the deadline.
        while process.poll() is None and time.monotonic() < min(job.until, began + job.limit_s):
            time.sleep(0.1)
        code = process.poll()
        if code is None and end_child:
            code = after_child(process)
        if code is None:
            # ncu's trainer is its child: the whole group has to go.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read(), err.read())


def trace(script: str, job: Job, env: dict[str, str]) -> str:
    ended = bounded([sys.executable, f"{script}.py", "--profile-dir", str(job.out)], job, env)
    for line in ended.err.splitlines():
        if line.startswith(LEFT_OUT):
            job.say(f"{script:18} {line}")
    recorded = (job.out / f"{script}.meta.json").exists()
    if ended.code == 0 and recorded and (job.out / f"{script}.trace.json.gz").exists():
        return "ok"
    # A trace that was cut off is no trace.
    for path in job.out.glob(f"{script}.*"):
        path.unlink()
    return f"failed: {ended.why}"


def ranges(script: str, job: Job, env: dict[str, str]) -> str:
    """Counts by CUPTI; ncu's ways with a trainer that is cut off are not needed."""
    out, path = job.out / f"{script}.ranges.csv", [str(ZOO.parents[1]), env.get("PYTHONPATH", "")]
    counting = [sys.executable, "-m", "benchmarks.truth.counting", str(job.zoo / f"{script}.py")]
    command = [*counting, "--out", str(out), "--most", str(job.kernels)]
    ended = bounded(command, job, env | {"PYTHONPATH": os.pathsep.join(path)})
    return ended.why if out.exists() and ended.code == 0 else f"no counters: {ended.why}"


def counters(script: str, job: Job, env: dict[str, str]) -> str:
    command = [
        "ncu", "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none",
        "--csv", "--page", "raw", "--launch-count", str(job.kernels), "--metrics", ",".join(METRICS),
        "--target-processes", "application-only", sys.executable, f"{script}.py", NCU_STEP,
    ]  # fmt: skip
    ended = bounded(command, job, env, end_child=True)
    lines = [line for line in ended.out.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))[1:]
    if not rows or ended.code is None:
        begun = (ended.out + ended.err).count("==PROF== Profiling")
        return f"no counters of {begun} kernels begun: {ended.why}"
    with (job.out / f"{script}.ncu.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for index, row in enumerate(rows):
            named = (row["Kernel Name"], row["Grid Size"], row["Block Size"])
            writer.writerow([index, *named, *(row.get(m, "") for m in METRICS)])
    return f"{len(rows)} kernels"


def work(gpu: str, waiting: queue.SimpleQueue[str], job: Job) -> None:
    """One GPU's share: the next script in line, until none is left or the deadline has come."""
    # ncu lets one instance at a time profile, by a lock in the folder for temporary files: each
    # GPU has its own folder.
    with tempfile.TemporaryDirectory(prefix=f"truth{gpu}-") as folder:
        env = os.environ | {"CUDA_VISIBLE_DEVICES": gpu, "TMPDIR": folder}
        while True:
            try:
                script = waiting.get_nowait()
            except queue.Empty:
                return
            if time.monotonic() >= job.until:
                job.say(f"{script:18} not started")
                continue
            began = time.monotonic()
            traced = trace(script, job, env) if job.traces else "left out"
            counted = "not started"
            if traced in ("ok", "left out"):
                counted = (ranges if job.by == "cupti" else counters)(script, job, env)
            took = time.monotonic() - began
            job.say(f"{script:18} gpu {gpu}: trace {traced}; {job.by} {counted}; {took:.0f} s")


def spread(scripts: Sequence[str], gpus: Sequence[str], job: Job) -> None:
    """All scripts over all GPUs."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for script in scripts:
        waiting.put(script)
    threads = [threading.Thread(target=work, args=(gpu, waiting, job)) for gpu in gpus]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        job.until = time.monotonic()
        for thread in threads:
            thread.join()


def pack(out: Path, scripts: Sequence[str]) -> list[Path]:
    """Moves what was written into as few tar files as their size allows; a script's files together
    as far as they go."""
    files = [path for script in scripts for path in sorted(out.glob(f"{script}.*"))]
    parts: list[list[Path]] = [[]]
    size = 0
    for path in [out / LOG, *files]:
        needs = 512 + -(-path.stat().st_size // 512) * 512
        if parts[-1] and size + needs > PACK_BYTES - tarfile.RECORDSIZE:
            parts.append([])
            size = 0
        parts[-1].append(path)
        size += needs
    tars = []
    for number, part in enumerate(parts, 1):
        tars.append(out / ("truth.tar" if len(parts) == 1 else f"truth-{number}.tar"))
        with tarfile.open(tars[-1], "w") as tar:
            for path in part:
                tar.add(path, path.name)
        for path in part:
            path.unlink()
    return tars


def chosen(only: str | None, zoo: Path) -> list[str]:
    """The scripts a command line names: a set, names, or everything that states a TRUTH."""
    if only is None and zoo != ZOO:
        found = (p.stem for p in sorted(zoo.glob("*.py")) if "\nTRUTH = " in p.read_text())
        return [name for name in found if not name.startswith("_")]
    only = only or "own"
    names = list(SETS[only]) if only in SETS and zoo == ZOO else only.split(",")
    missing = [name for name in names if not (zoo / f"{name}.py").is_file()]
    if missing or not names:
        raise SystemExit(f"{zoo} has no script {', '.join(missing) or only}: see its *.py")
    return names


def visible(count: int) -> list[str]:
    """The first GPUs of those this process may use."""
    given = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    if given and len(given) < count:
        raise SystemExit(f"CUDA_VISIBLE_DEVICES names {len(given)} GPUs: ask for --gpus that many")
    return (given or [str(gpu) for gpu in range(count)])[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--zoo", type=Path, default=ZOO)
    parser.add_argument("--only", help="own, held-out, or names with commas between")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--kernels", type=int, default=110)
    parser.add_argument("--limit", type=float, default=75.0)
    parser.add_argument("--by", choices=("ncu", "cupti"), default="ncu", help="what counts")
    parser.add_argument("--counters-only", action="store_true", help="the traces are there already")
    parser.add_argument("--deadline", type=float, default=float("inf"))
    args = parser.parse_args()
    until = time.monotonic() + args.deadline
    zoo, out = args.zoo.resolve(), args.out.resolve()
    scripts, gpus = chosen(args.only, zoo), visible(max(1, args.gpus))
    out.mkdir(parents=True, exist_ok=True)
    if args.by == "ncu" and not shutil.which("ncu"):
        raise SystemExit("ncu is not on PATH: add the folder of Nsight Compute to it")
    held = [p for name in ("truth", "collect", *scripts) for p in out.glob(f"{name}[.-]*")]
    if held:
        raise SystemExit(f"{out} holds {held[0].name} already: name an empty folder")
    job = Job(zoo, out, args.kernels, args.limit, until, not args.counters_only, args.by)
    job.say(f"{len(scripts)} scripts of {zoo.name} on GPU {', '.join(gpus)}")
    spread(scripts, gpus, job)
    for tar in pack(out, scripts):
        print(f"{tar.name}: {tar.stat().st_size / (1 << 20):.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
