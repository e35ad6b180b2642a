"""Measures every edit on every model, on all GPUs of this machine, in one command.

    python -m benchmarks.gains.measure --out DIR [--deadline 540] [--processes 5] [--what gains,live]
        [--models NAME,…] [--live NAME,…] [--pairs]

Several processes a GPU build, compile and warm up side by side, one model each. When one measures, all
others of that GPU, with their compilers and loaders, are stopped (SIGSTOP) and go on afterwards. The base loop
is measured before and after each edit. Results are appended to DIR/results.jsonl as they come; recordings
are packed into DIR/gains-N.tar. Models are taken in the order of `--models`; `--live` names those that
are recorded; `--pairs` makes two edits at once, too. `--skip FILE` leaves out what an earlier results.jsonl has.
`--smoke` measures three models.
"""

from __future__ import annotations

import argparse
import contextlib
import json
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gains.loops import Public, in_turn
from benchmarks.gains.report import rows_of

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ("example_mnist", "table_mlp_pageable", "nanogpt_char_written")
PACK_BYTES, MOST_BYTES = 15 << 20, 60 << 20
"""Of one tar file, and of all."""
PART_S = 200.0
"""Longest a part may take, without the time that its process was stopped."""
DRAIN_S = 0.03
"""From stopping the others to measuring: what they had queued, a step at most, is mostly done by then, and
`timing.SETTLE_S` of unmeasured steps follow."""


@dataclass
class Log:
    """results.jsonl, one line a part."""

    file: Path
    began: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def row(self, **facts: Any) -> None:
        facts["at_s"] = round(time.monotonic() - self.began, 1)
        with self.lock, self.file.open("a") as out:
            out.write(json.dumps(facts) + "\n")
            text = next((facts[k] for k in ("failed", "ms", "note", "bytes") if facts.get(k)), None)
            print(
                f"{facts['at_s']:6.1f} {facts.get('model')} {facts.get('part')} {str(text)[:120]}",
                flush=True,
            )


class Gpu:
    """One GPU, the processes on it, and whose turn it is."""

    def __init__(self, index: int, cpus: str) -> None:
        self.index, self.cpus = index, cpus
        self.turn = threading.Lock()
        self.running: set[int] = set()
        """Process groups. Changed only by who has the turn."""
        self.alone_s = 0.0

    def _signal(self, number: signal.Signals, but: int | None = None) -> None:
        for group in self.running - {but}:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)

    @contextlib.contextmanager
    def alone(self, group: int) -> Iterator[None]:
        """All other process groups of this GPU stand still."""
        with self.turn:
            began = time.monotonic()
            try:
                self._signal(signal.SIGSTOP, but=group)
                time.sleep(DRAIN_S)
                yield
            finally:
                self._signal(signal.SIGCONT)
                self.alone_s += time.monotonic() - began


class Child:
    """A worker: a process group of its own, and what it tells."""

    def __init__(
        self, gpu: Gpu, name: str, parts: list[str], args: argparse.Namespace, work: Path
    ) -> None:
        self.gpu, self.name = gpu, name
        cache = work / "cache" / name
        log = (work / "logs" / f"{name}.log").open("ab")
        env = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": str(gpu.index),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
            "TRITON_CACHE_DIR": str(cache / "triton"),
            "TORCHINDUCTOR_COMPILE_THREADS": "4",
            "OMP_NUM_THREADS": "4",
            "GAINS_MONITOR_PATH": env_path(),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
        }
        env.pop("PYTHONPATH", None)
        command = [sys.executable, "-m", "benchmarks.gains.worker", name, "--parts", ",".join(parts),
                   "--cpus", gpu.cpus, "--out", str(work / "kept"), "--seconds", str(args.seconds),
                   "--live-s", str(args.live_s), "--advised", str(args.advised), f"--attach={args.attach}", *(["--tiny"] if args.tiny else [])]  # fmt: skip
        with gpu.turn:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, start_new_session=True,
            )  # fmt: skip
            gpu.running.add(self.process.pid)
        log.close()
        self.lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def next(self, seconds: float) -> dict[str, Any] | None:
        """What it tells next; None when it has ended.

        Raises:
            queue.Empty: Nothing came.
        """
        return self.lines.get(timeout=max(0.01, seconds))

    def go(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write("go\n")
            self.process.stdin.flush()

    def end(self) -> None:
        """Kills the whole group, stopped or not."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with self.gpu.turn:
            self.gpu.running.discard(self.process.pid)


def env_path() -> str:
    return os.environ.get("GAINS_MONITOR_PATH") or os.environ.get("PYTHONPATH", "")


def _follow(child: Child, left: list[str], log: Log, until: float) -> tuple[str | None, str | None]:
    """Follows a worker to its end, taking what is done out of `left`.

    Returns: Why it was given up, None: it ended by itself; and the part it was at, None: between two.
    """
    gpu, facts = child.gpu, {"model": child.name, "gpu": child.gpu.index}
    began, stopped = time.monotonic(), gpu.alone_s
    text: dict[str, Any] | None = None
    part: str | None = None
    while True:
        limit = min(until, began + PART_S + gpu.alone_s - stopped)
        if time.monotonic() > limit:
            return "time was up" if limit == until else f"took longer than {PART_S:.0f} s", part
        try:
            text = child.next(min(2.0, limit - time.monotonic()))
        except queue.Empty:
            continue
        if text is None:
            return f"the process ended with {child.process.wait()}" if left else None, part
        if "ask" in text:
            with gpu.alone(child.process.pid):
                child.go()
                try:
                    text = child.next(min(text["limit_s"], until - time.monotonic()))
                except queue.Empty:
                    if time.monotonic() >= until:
                        return "time was up", part
                    return f"measuring took longer than {text['limit_s']} s", part
            if text is None:
                return f"the process ended with {child.process.wait()}", part
        part = text.get("begin", part)
        left += text.get("more", ())
        if "part" in text:
            left.remove(text["part"])
            part = None
            log.row(**facts, **text)
            began, stopped = time.monotonic(), gpu.alone_s


def model_on(
    gpu: Gpu, model: Public, parts: list[str], args: argparse.Namespace, work: Path, log: Log
) -> None:
    """All parts of a model; a part that ends its process is failed, the others go on in a new one."""
    left = list(parts)
    while left and time.monotonic() < args.until:
        before = len(left)
        child = Child(gpu, model.name, left, args, work)
        try:
            reason, at = _follow(child, left, log, args.until)
        finally:
            child.end()
        if reason and left and (at or len(left) == before):
            part = at if at in left else left[0]
            left.remove(part)
            tail = (
                (work / "logs" / f"{model.name}.log").read_bytes()[-400:].decode("utf-8", "replace")
            )
            log.row(model=model.name, gpu=gpu.index, part=part, failed=reason, tail=tail)
    for part in left:
        log.row(model=model.name, gpu=gpu.index, part=part, failed="time was up")
    shutil.rmtree(work / "cache" / model.name, ignore_errors=True)


def wanted(model: Public, args: argparse.Namespace, done: set[tuple[str, str]]) -> list[str]:
    """Parts still to be done."""
    if args.advised:
        return ["live"]
    what = args.what.split(",")
    edits = args.edits.split(",") if args.edits else model.edits
    gains = [e for e in model.edits if e in edits and (args.pairs or "+" not in e)]
    gains = [e for e in gains if (model.name, e) not in done]
    asked = args.live is None or model.name in args.live.split(",")
    seen = ["live"] if "live" in what and asked and (model.name, "live") not in done else []
    bases = ["base", "base-again"] if any("compile" not in e for e in gains) else []
    return [*bases, *gains, *seen] if "gains" in what and gains else seen


def pack(kept: Path, out: Path) -> list[str]:
    """Everything in `kept` in tar files that are small enough to be carried; what did not fit, by name."""
    size, number, total, left = PACK_BYTES, 0, 0, []
    tar: tarfile.TarFile | None = None
    for file in sorted(kept.iterdir()):
        grows = file.stat().st_size + 1536
        if grows > PACK_BYTES or total + grows > MOST_BYTES:
            left.append(file.name)
            continue
        if size + grows > PACK_BYTES:
            if tar:
                tar.close()
            number, size = number + 1, 0
            tar = tarfile.open(out / f"gains-{number}.tar", "w")  # noqa: SIM115
        assert tar is not None
        tar.add(file, file.name)
        size, total = size + grows, total + grows
    if tar:
        tar.close()
    return left


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--deadline", type=float, default=540.0, help="seconds from now")
    parser.add_argument("--processes", type=int, default=5, help="a GPU")
    parser.add_argument("--gpus", type=int, help="default: all")
    parser.add_argument("--seconds", type=float, default=0.35, help="measured of each loop")
    parser.add_argument("--live-s", type=float, default=8.0, help="of a recording")
    parser.add_argument("--live", help="only these are recorded")
    parser.add_argument("--pairs", action="store_true", help="two edits at once, too")
    parser.add_argument("--what", default="gains,live")
    parser.add_argument("--edits", help="only these")
    parser.add_argument(
        "--advised", type=int, default=0, help="watch first, then make the first N edits advised"
    )
    parser.add_argument("--models", help="only these")
    parser.add_argument("--skip", type=Path, action="append", default=[], help="results of before")
    parser.add_argument("--attach", default="", help="more options for brrrtop attach")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="tiny models on the CPU")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    args.until = time.monotonic() + (min(args.deadline, 80.0) if args.smoke else args.deadline)
    args.out.mkdir(parents=True, exist_ok=True)
    log = Log(args.out / "results.jsonl")
    from benchmarks.gains import MODELS

    names = SMOKE if args.smoke else args.models.split(",") if args.models else None
    models = [MODELS[name] for name in names] if names else in_turn()
    rows = [row for file in args.skip for row in rows_of(file)]
    done = {(r["model"], r["part"]) for r in rows if r.get("failed") != "time was up"}
    work = Path(tempfile.mkdtemp(prefix="gains-"))
    for folder in ("kept", "logs", "cache"):
        (work / folder).mkdir()
    todo: queue.SimpleQueue[tuple[Public, list[str]]] = queue.SimpleQueue()
    for model in models:
        if parts := wanted(model, args, done):
            todo.put((model, parts))
    gpus = _gpus(args.gpus)
    if "live" in args.what:  # once, before anybody could be stopped while it builds
        build = "from collectors.attach.agent_library import library_path; print(library_path())"
        subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=False, timeout=120)
    log.row(model=None, part="machine", note=_machine(), gpus=len(gpus), processes=args.processes)

    def serve(gpu: Gpu) -> None:
        with contextlib.suppress(queue.Empty):
            while time.monotonic() < args.until:
                model, parts = todo.get_nowait()
                try:
                    model_on(gpu, model, parts, args, work, log)
                except Exception as fault:
                    log.row(model=model.name, part="all", failed=f"measure: {fault!r}")

    threads = [
        threading.Thread(target=serve, args=(g,)) for _ in range(args.processes) for g in gpus
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.2)
    for thread in threads:
        thread.join()
    while not todo.empty():
        log.row(model=todo.get()[0].name, part="all", failed="time was up")
    log.row(model=None, part="end", note=str({g.index: round(g.alone_s, 1) for g in gpus}))
    for name in pack(work / "kept", args.out):
        log.row(model=name.partition(".")[0], part="pack", failed=f"{name} did not fit")
    shutil.rmtree(work, ignore_errors=True)


def _gpus(count: int | None) -> list[Gpu]:
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = [int(one) for one in named.split(",") if one] or list(
        range(torch.cuda.device_count())
    )
    numbers = numbers[:count] or [0]
    count = len(numbers)
    # Threads of one core stay together: a compiler beside a measured loop on its core slows it down.
    cores = sorted(os.sched_getaffinity(0), key=lambda cpu: (_core(cpu), cpu))
    share = max(1, len(cores) // count)
    mine = [cores[i * share : (i + 1) * share] for i in range(count)]
    return [Gpu(i, ",".join(map(str, some))) for i, some in zip(numbers, mine, strict=True)]


def _core(cpu: int) -> int:
    """The first thread of a CPU's core."""
    file = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return int(file.read_text().replace("-", ",").split(",")[0])
    except (OSError, ValueError):
        return cpu


def _machine() -> str:
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{name}, torch {torch.__version__}, {os.cpu_count()} cores"


if __name__ == "__main__":
    main()
