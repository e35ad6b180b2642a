"""Trainings on the CPU that ask to be watched, one after the other: a line of JSON each, by name."""

import json
import os
import sys
import time
from pathlib import Path

import torch

import brrrtop

sys.path.append(str(Path(__file__).parents[1]))  # this is a program of its own
from descent import Descent


def train(watching, limit_s=60.0):
    model = torch.nn.Linear(64, 10)
    optimizer = Descent(model.parameters())
    began = time.monotonic()
    while True:
        loss = model(torch.randn(16, 64)).square().mean()
        loss.backward()
        optimizer.step()
        model.zero_grad()
        watching.step()
        time.sleep(0.002)
        over = watching.report_count >= 3 or watching.problem is not None
        if over or time.monotonic() > began + limit_s:
            return float(loss.detach())


def run(mode):
    logged, reports = [], []

    def log(figures, lines, step):
        if mode == "bad log":
            raise ValueError("disk full")
        logged.append((dict(figures), lines, step))

    if mode == "unwatched":
        program, sys.executable = sys.executable, "/nonexistent/python"
        with brrrtop.watch(log=log, when="torch") as broken:
            assert train(broken) < 1
        sys.executable = program
        with brrrtop.watch(log=log) as watching:
            loss = train(watching, limit_s=1.0)
        reports += [broken.problem, broken.report_count]
    else:
        with brrrtop.watch(log=log, interval_s=0.5, when="torch") as watching:
            loss = train(watching)
            reports.append(watching.report)
    bases = (Path("/tmp"), Path("/run/user/0"))
    left = [str(path) for base in bases for path in base.glob(f"brrrtop-*-{os.getpid()}-*")]
    print(json.dumps({
        "mode": mode, "loss": loss, "logged": logged, "reports": reports,
        "problem": watching.problem, "count": watching.report_count, "left": left,
    }), flush=True)  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    for mode in ("fine", "bad log", "unwatched"):
        run(mode)
