"""A training on the CPU that asks to be watched. Its last line is what came of it, as JSON."""

import json
import sys
import time

import torch

import brrrtop

MODE = sys.argv[1] if len(sys.argv) > 1 else "fine"


def train(watching, limit_s=60.0):
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    began = time.monotonic()
    while True:
        loss = model(torch.randn(16, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        watching.step()
        time.sleep(0.002)
        over = watching.report_count >= 3 or watching.problem is not None
        if over or time.monotonic() > began + limit_s:
            return float(loss.detach())


def main():
    torch.set_num_threads(1)
    logged, reports = [], []

    def log(figures, lines, step):
        if MODE == "bad log":
            raise ValueError("disk full")
        logged.append((dict(figures), lines, step))

    if MODE == "unwatched":
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
    print(json.dumps({
        "loss": loss, "logged": logged, "reports": reports,
        "problem": watching.problem, "count": watching.report_count,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
