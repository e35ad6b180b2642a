"""What is said of a trainer beside another one on its GPU, and of one that reads its files in the training loop.

    python benchmarks/lab/neighbours.py --zoo DIR --out DIR [--part shared --part reads] [--seconds 8]

shared   gpt_bf16 is watched while pointwise_chain runs on the same GPU, and again once that is gone
reads    a loop that takes each batch from a big .npy file by np.load, from the disk each time

Prints one JSON line a watch: regime, idle causes as shares of the window, what is advised, iterations a second.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from live_zoo import Trainer, watch  # noqa: E402

STARTS_S = 60.0
FILES, ROWS, COLUMNS = 6, 4096, 4096
READER = """
import argparse, itertools, os, time
import numpy as np
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--folder")
parser.add_argument("--device", default="cuda")
parser.add_argument("--seconds", type=float, default=600)
options, _ = parser.parse_known_args()
paths = sorted(os.path.join(options.folder, name) for name in os.listdir(options.folder))
width = np.load(paths[0], mmap_mode="r").shape[1]
net = torch.nn.Sequential(
    torch.nn.Linear(width, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 1)
).to(options.device)
optimizer = torch.optim.AdamW(net.parameters())


def forget(path):
    number = os.open(path, os.O_RDONLY)
    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(number)


end = time.perf_counter() + options.seconds
since, done, read_s, read_bytes = time.perf_counter(), 0, 0.0, 0
for path in itertools.cycle(paths):
    forget(path)
    began = time.perf_counter()
    rows = np.load(path)
    read_s += time.perf_counter() - began
    read_bytes += rows.nbytes
    x = torch.from_numpy(rows).to(options.device)
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    done += 1
    now = time.perf_counter()
    if now - since >= 1.0:
        share, speed = read_s / (now - since), read_bytes / max(read_s, 1e-9) / 1e6
        print(f"it/s={done / (now - since):.2f} reading={share:.2f}", flush=True)
        print(f"reading took {share:.2f} of the time, {speed:.0f} MB/s", flush=True)
        since, done, read_s, read_bytes = now, 0, 0.0, 0
    if now > end:
        break
"""


def told(name: str, trainer: Trainer, seconds: float, file: Path) -> dict[str, Any]:
    """A watch of its own: the last snapshot that judges."""
    file.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "brrrtop", "attach", str(trainer.process.pid), "--yes", "--json",
        "--interval", "0.5", "--record", str(file),
    ]  # fmt: skip
    began = time.perf_counter()
    rows, said, code = watch(command, seconds)
    rate = trainer.rate(began, time.perf_counter())
    judged = [row for _, row in rows if row.get("regime") not in (None, "unknown")]
    last = (judged or [row for _, row in rows] or [{}])[-1]
    duration = (last.get("window") or {}).get("duration_ns") or 0
    idle = (last.get("account") or {}).get("idle_ns") or {}
    advice = last.get("advisories") or []
    return {
        "watch": name, "exit": code, "snapshots": len(rows), "judged": len(judged), "its": rate,
        "regime": last.get("regime"), "cause": last.get("cause"), "confidence": last.get("confidence"),
        "split": last.get("split"),
        "idle": {cause: round(ns / duration, 4) for cause, ns in idle.items() if ns and duration},
        "advice": {one["id"]: one.get("says") for one in advice},
        "regimes": sorted({row["regime"] for row in judged}),
        "advised_ever": sorted({one["id"] for row in judged for one in row.get("advisories") or []}),
        "said": said.strip().splitlines()[-3:], "alive": trainer.process.poll() is None,
    }  # fmt: skip


def say(found: dict[str, Any], out: Path) -> None:
    line = json.dumps(found)
    print(line, flush=True)
    with (out / "neighbours.jsonl").open("a") as file:
        file.write(line + "\n")


def started(script: Path, arguments: list[str]) -> Trainer:
    command = [sys.executable, "-u", str(script), "--seconds", "600", *arguments]
    return Trainer(command, script.parent)


def shared(args: argparse.Namespace) -> None:
    names = ("gpt_bf16", "pointwise_chain")
    trainers = [started(args.zoo / f"{name}.py", args.trainer) for name in names]
    mine, other = trainers
    try:
        for name, trainer in zip(names, trainers, strict=True):
            if not trainer.wait_for(2, STARTS_S):
                say(
                    {"watch": "shared", "error": f"{name} did not train: {trainer.tail[-3:]}"},
                    args.out,
                )
                return
        say(told("two on the GPU", mine, args.seconds, args.out / "two.brrr"), args.out)
        other.process.kill()
        other.process.wait()
        time.sleep(1.0)
        say(told("the other is gone", mine, args.seconds, args.out / "one.brrr"), args.out)
    finally:
        stop(trainers)


def reads(args: argparse.Namespace) -> None:
    import numpy as np

    with tempfile.TemporaryDirectory(dir=args.files) as folder:
        rows, columns = (ROWS, COLUMNS) if not args.small else (512, 1024)
        for number in range(FILES):
            path = Path(folder) / f"{number}.npy"
            with path.open("wb") as file:
                np.save(file, np.full((rows, columns), number, np.float32))
                file.flush()
                os.fsync(file.fileno())  # pages that are not on the disk yet are never dropped
        script = args.out / "reader.py"
        script.write_text(READER)
        trainer = started(script, ["--folder", folder, *args.trainer])
        try:
            if not trainer.wait_for(3, STARTS_S):
                say({"watch": "reads", "error": f"did not train: {trainer.tail[-3:]}"}, args.out)
                return
            found = told("np.load in the loop", trainer, args.seconds + 4, args.out / "reads.brrr")
            say(found | {"reader": trainer.tail[-1:]}, args.out)
        finally:
            stop([trainer])


def stop(trainers: list[Trainer]) -> None:
    for trainer in trainers:
        if trainer.process.poll() is None:
            trainer.process.kill()
        trainer.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=("shared", "reads"), action="append")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each watch")
    parser.add_argument("--files", type=Path, help="a folder on the disk to read from")
    parser.add_argument("--small", action="store_true", help="small files")
    parser.add_argument(
        "--trainer", type=str.split, default=[], help="further options of the trainers"
    )
    args = parser.parse_args()
    args.zoo, args.out = args.zoo.resolve(), args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    for part in args.part or ("shared", "reads"):
        {"shared": shared, "reads": reads}[part](args)


if __name__ == "__main__":
    main()
