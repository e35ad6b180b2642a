"""Watches training scripts live on a GPU, through `attach` or `run`, and says what was seen and what it cost.

    python benchmarks/live_zoo.py --zoo DIR --out DIR [--only gpt_bf16,tiny_mlp] [--seconds 20] [--through attach|run]

Per script: the trainer runs alone for a while, is watched (recording NAME.brrr), and runs alone again; its own
iterations a second of the three phases are compared. Prints one line a script and writes live.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RATE = re.compile(r"it/s=([\d.]+)")


class Trainer:
    """A running script and the rates it prints.

    Args:
        env: None: ours without PYTHONPATH, which holds what only the monitor needs.
    """

    def __init__(self, command: list[str], folder: Path, env: dict[str, str] | None = None) -> None:
        self.rates: list[tuple[float, float]] = []
        if env is None:
            env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )
        self.tail: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            match = RATE.search(line)
            if match:
                self.rates.append((time.perf_counter(), float(match.group(1))))
            else:
                self.tail = [*self.tail[-20:], line.rstrip()]

    def wait_for(self, lines: int, limit_s: float) -> bool:
        end = time.perf_counter() + limit_s
        while time.perf_counter() < end and self.process.poll() is None:
            if len(self.rates) >= lines:
                return True
            time.sleep(0.05)
        return False

    def rate(self, since: float, until: float) -> float | None:
        inside = [r for t, r in self.rates if since + 1.2 <= t <= until]
        return statistics.median(inside) if inside else None

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode


def watch(command: list[str], seconds: float) -> tuple[list[tuple[float, dict]], str, int]:
    """Runs the monitor for a while; its JSON lines with their times, its stderr, its exit code."""
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    began = time.perf_counter()
    lines: list[tuple[float, dict]] = []
    texts: list[str] = []

    def read_out() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                lines.append((time.perf_counter() - began, json.loads(line)))
            except ValueError:
                texts.append(line)

    def read_err() -> None:
        assert process.stderr is not None
        texts.extend(process.stderr)

    threads = [threading.Thread(target=t, daemon=True) for t in (read_out, read_err)]
    for thread in threads:
        thread.start()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            texts.append("the monitor did not stop within 15 s")
    for thread in threads:
        thread.join(5)
    return lines, "".join(texts), process.returncode


def first_verdict(lines: list[tuple[float, dict]]) -> float | None:
    return next((t for t, row in lines if row.get("regime") not in (None, "unknown")), None)


def first_advice(lines: list[tuple[float, dict]]) -> dict[str, float]:
    """When each advice was first given."""
    result: dict[str, float] = {}
    for at, row in lines:
        for advice in row.get("advisories") or []:
            result.setdefault(advice["id"], round(at, 2))
    return result


def stable_since(lines: list[tuple[float, dict]]) -> float | None:
    """When the regime that stood at the end was said for good."""
    last, since = None, None
    for at, row in lines:
        regime = row.get("regime")
        if regime in (None, "unknown"):
            continue
        if regime != last:
            last, since = regime, at
    return since


def by_attach(script: Path, out: Path, seconds: float, extra: list[str], beside_s: float) -> dict:
    trainer = Trainer([sys.executable, "-u", script.name, "--seconds", "600"], script.parent)
    if not trainer.wait_for(4, 90):
        return {
            "script": script.stem,
            "error": f"did not train: {trainer.tail[-3:]} exit {trainer.stop()}",
        }
    alone = time.perf_counter()
    time.sleep(beside_s)
    start = time.perf_counter()
    command = [
        sys.executable, "-m", "brrrtop", "attach", str(trainer.process.pid), "--yes", "--json", "--interval", "0.5",
        "--record", str(out / f"{script.stem}.brrr"), *extra,
    ]  # fmt: skip
    lines, text, code = watch(command, seconds)
    end = time.perf_counter()
    time.sleep(beside_s)
    done = time.perf_counter()
    alive = trainer.process.poll() is None
    trainer_code = trainer.stop()
    return summary(script.stem, lines, text, code) | {
        "alone": trainer.rate(alone - 3, start), "watched": trainer.rate(start + 2, end), "after": trainer.rate(end, done),
        "trainer_alive": alive, "trainer_exit": trainer_code, "trainer_tail": trainer.tail[-4:] if not alive else [],
    }  # fmt: skip


def by_run(script: Path, out: Path, seconds: float, extra: list[str], beside_s: float) -> dict:
    command = [
        sys.executable, "-m", "brrrtop", "run", "--json", "--interval", "0.5", "--record", str(out / f"{script.stem}-run.brrr"),
        *extra, "--", sys.executable, "-u", str(script), "--seconds", str(seconds),
    ]  # fmt: skip
    lines, text, code = watch(command, seconds + 60)
    rates = [float(r) for r in RATE.findall(text)]
    return summary(script.stem, lines, text[-600:], code) | {
        "watched": statistics.median(rates) if rates else None
    }


def summary(name: str, lines: list[tuple[float, dict]], text: str, code: int) -> dict:
    last = lines[-1][1] if lines else {}
    judged = [row for _, row in lines if row.get("regime") not in (None, "unknown")]
    last = judged[-1] if judged else last
    return {
        "script": name, "exit": code, "said": text.strip().splitlines()[-6:], "snapshots": len(lines),
        "first_verdict_s": first_verdict(lines), "stable_since_s": stable_since(lines),
        "first_advice_s": first_advice(lines), "regime": last.get("regime"), "cause": last.get("cause"),
        "confidence": last.get("confidence"), "split": last.get("split"), "window": last.get("window"),
        "launch": last.get("launch"), "losses": last.get("losses"), "overhead": last.get("overhead"),
        "advice": [[a["id"], a["confidence"], a["saves_at_most"]] for a in last.get("advisories", [])],
        "idle": (last.get("account") or {}).get("idle_ns"), "duration_ns": (last.get("window") or {}).get("duration_ns"),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--through", choices=("attach", "run"), default="attach")
    parser.add_argument("--beside", type=float, default=4.0, help="seconds alone, before and after")
    parser.add_argument(
        "--extra", default="", help="further options for brrrtop, separated by spaces"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    names = [n for n in args.only.split(",") if n] or sorted(
        p.stem for p in args.zoo.glob("*.py") if not p.stem.startswith("_")
    )
    os.environ["PYTHONUNBUFFERED"] = "1"
    result = []
    for name in names:
        one = (by_attach if args.through == "attach" else by_run)(
            args.zoo / f"{name}.py", args.out, args.seconds, args.extra.split(), args.beside
        )
        result.append(one)
        print(json.dumps(one), flush=True)
        (args.out / "live.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
