"""What a watch costs a run that waits for its loader's workers, and how much of it is traced.

    python benchmarks/slack.py --out DIR [--minutes 8] [--device cuda|cpu]

One trainer (convolutions; four workers that decode for most of the time, and a second one that waits for
nothing) is watched as by `brrrtop attach` and left alone, in turns of 30 s; cost as in `paired.py`, with the
share of the time that was traced, bursts, what they waited for, and what the program spent waiting by its
own clock. Writes slack.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

TURN_S = 30.0
SETTLE_S = 3.0
TRAINER = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
out, slow, device = sys.argv[1], float(sys.argv[2]), sys.argv[3]
class Photos(Dataset):
    def __len__(self): return 1 << 20
    def __getitem__(self, i):
        until = time.perf_counter() + slow
        while time.perf_counter() < until: time.sleep(0.002)
        return torch.zeros(3, 64, 64)
def main():
    torch.set_num_threads(1)
    net = torch.nn.Sequential(*(layer for _ in range(30) for layer in (
        torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.BatchNorm2d(3), torch.nn.ReLU()))).to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    log, waited = open(out, "a", buffering=1), 0.0
    loader = iter(DataLoader(Photos(), batch_size=8, num_workers=4, pin_memory=device == "cuda"))
    while True:
        begun = time.perf_counter()
        batch = next(loader)
        waited += time.perf_counter() - begun
        batch = batch.to(device, non_blocking=True)
        for _ in range(3): loss = net(batch).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        if device == "cuda": torch.cuda.synchronize()
        log.write(f"{time.time_ns()} {waited:.6f}\\n")
main()
"""


def steps_within(path: Path, begin_ns: int, end_ns: int) -> tuple[float, float]:
    """Mean step in ms, and the part of the time that was waited, between two moments."""
    rows = [line.split() for line in path.read_text().splitlines()[:-1]]
    rows = [row for row in rows if begin_ns <= int(row[0]) <= end_ns]
    took_ns = int(rows[-1][0]) - int(rows[0][0])
    waited_s = float(rows[-1][1]) - float(rows[0][1])
    return took_ns / 1e6 / (len(rows) - 1), waited_s * 1e9 / took_ns


def turn(log: Path, seconds: float, look: Any = time.sleep) -> tuple[float, float]:
    look(SETTLE_S)
    begin_ns = time.time_ns()
    look(seconds)
    return steps_within(log, begin_ns, time.time_ns())


def measure(name: str, slow_s: float, args: argparse.Namespace) -> dict[str, Any]:
    from paired import between
    from watched import Watch, skip_time

    from brrrtop.scheduling.governor import Governor

    log = args.out / f"{name}.log"
    log.unlink(missing_ok=True)
    command = [sys.executable, "-c", TRAINER, str(log), str(slow_s), args.device]
    trainer = subprocess.Popen(command)
    governor, offs, ons, waits, traced_ns = Governor(), [], [], [], 0
    try:
        time.sleep(25)
        end = time.monotonic() + args.minutes * 30
        offs.append(turn(log, TURN_S)[0])
        left_ns = time.time_ns()
        while time.monotonic() < end:
            if ons:
                skip_time(governor, time.time_ns() - left_ns)
            watch = Watch(trainer.pid, governor)
            step_ms, waited = turn(log, TURN_S, watch.watch_for)
            observed = governor.watch.phases
            watch.close()
            left_ns = time.time_ns()
            ons.append(step_ms)
            waits.append(waited)
            traced_ns = sum(one.traced_ns for one in observed)
            offs.append(turn(log, TURN_S)[0])
    finally:
        trainer.kill()
        trainer.wait()
    cost = between(offs, ons)
    row = {
        "name": name, "cost": str(cost), "off_ms": offs, "on_ms": ons, "waited": waits,
        "bursts": governor.burst_count, "traced": traced_ns / 1e9 / (len(ons) * (TURN_S + SETTLE_S)),
        "says": governor.describe(),
    }  # fmt: skip
    print(json.dumps({**row, "off_ms": offs[:3], "on_ms": ons[:3]}), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = [measure(name, slow_s, args) for name, slow_s in (("waits", 0.05), ("hardly", 0.002))]
    (args.out / "slack.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
