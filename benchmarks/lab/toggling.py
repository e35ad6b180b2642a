"""From which thread CUPTI may be switched without killing the trainer: a training loop that does it to itself.

    python benchmarks/lab/toggling.py --out DIR [--case thread --case main …] [--graphs] [--seconds 45] [--beside 3]

The loop is `soak_trainer.py busy` (loader workers, compiled block, allocations; with --graphs it replays CUDA
graphs). Its optimizer hook, or a second thread, makes the calls of a burst again and again:

thread      register, kernels and copies on, 5 ms, flush, off, flush: all from a second thread
main        the same from the optimizer's hook, on after one step and off after the next
main-sync   the same, with the device drained before each switch
flush-thread  switched in the hook, flushed from a second thread without pause
on          switched on once; a second thread flushes
…-finalize  each of the first three followed by cuptiFinalize

A case that crashes is started again until its time is up. Prints cycles, crashes and native frames.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

CASES = (
    "thread", "main", "main-sync", "flush-thread", "on", "thread-finalize", "main-finalize", "main-sync-finalize",
)  # fmt: skip
START_LIMIT_S = 60


class Burst:
    """The calls of one burst, and how many there were."""

    def __init__(self, finalize: bool) -> None:
        from cupti_lab import KERNEL, MEMCPY, Lab

        self.lab, self.kinds, self.finalize = Lab(), (KERNEL, MEMCPY, 2), finalize
        self.count = 0

    def on(self) -> None:
        self.lab.register()
        for kind in self.kinds:
            self.lab.enable(kind)

    def off(self) -> None:
        self.lab.flush()
        for kind in self.kinds:
            self.lab.disable(kind)
        self.lab.flush()
        if self.finalize:
            self.lab.finalize()
        self.count += 1
        if self.count % 50 == 0:
            print(f"cycles={self.count}", flush=True)


def by_thread(burst: Burst) -> None:
    while True:
        burst.on()
        time.sleep(0.005)
        burst.off()
        time.sleep(0.002)


def flushing(burst: Burst) -> None:
    while True:
        burst.lab.flush()
        time.sleep(0.003)


def trainee(case: str, graphs: bool, device: str) -> None:
    import soak_trainer
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    burst = Burst(case.endswith("-finalize"))
    steps = 0

    def hook(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps < 20:
            return
        if case.startswith("thread") and steps == 20:
            threading.Thread(target=by_thread, args=(burst,), daemon=True).start()
        if case in ("flush-thread", "on") and steps == 20:
            threading.Thread(target=flushing, args=(burst,), daemon=True).start()
        if case == "on":
            if steps == 20:
                burst.on()
            burst.count += 1
            if burst.count % 500 == 0:
                print(f"cycles={burst.count}", flush=True)
        elif case.startswith(("main", "flush")):
            if "sync" in case:
                torch.cuda.synchronize()
            (burst.off if steps % 2 else burst.on)()

    register_optimizer_step_post_hook(hook)
    soak_trainer.busy(argparse.Namespace(graphs=graphs, foreign_hook=False), torch.device(device))


def watch(case: str, graphs: bool, out: Path, seconds: float, preload: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        "case": case,
        "graphs": graphs,
        "cycles": 0,
        "trainers": 0,
        "ended": [],
    }
    said, end = [], time.monotonic() + seconds
    while time.monotonic() < end and found["trainers"] < 6:
        found["trainers"] += 1
        log = out / f"{case}{'-graphs' if graphs else ''}{found['trainers']}.out"
        words = [
            sys.executable,
            "-u",
            __file__,
            "--trainee",
            case,
            "--out",
            str(out),
            *(["--graphs"] if graphs else []),
        ]
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
            "LD_PRELOAD": str(preload)
        }
        with log.open("wb") as file:
            process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=env)
        size, grown = 0, time.monotonic() + START_LIMIT_S
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
            if log.stat().st_size != size:
                size, grown = log.stat().st_size, max(grown, time.monotonic())
            if time.monotonic() - grown > 15:
                found["ended"].append("hung")
                break
        if process.poll() is not None:
            found["ended"].append(process.returncode)
        process.kill()
        process.wait()
        text = log.read_text("utf-8", "replace")
        counts = [int(word[7:]) for word in text.split() if word.startswith("cycles=")]
        found["cycles"] += counts[-1] if counts else 0
        at = text.find("=== crash")
        said.append(
            text[at : at + 4000] if at >= 0 else text[-500:] if process.returncode != -9 else ""
        )
    return found | {"said": said}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--trainee", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--beside", type=int, default=1, help="cases at a time")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if args.trainee:
        trainee(args.trainee, args.graphs, args.device)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    from graph_crash import handler

    preload = handler(args.out)
    waiting, lock = list(args.case or CASES), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                case = waiting.pop(0)
            found = watch(case, args.graphs, args.out, args.seconds, preload)
            said = found.pop("said")
            with lock:
                print(json.dumps(found), flush=True)
                for text in filter(None, said):
                    print(f"--- {case}\n{text}", flush=True)

    workers = [threading.Thread(target=work) for _ in range(args.beside)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
