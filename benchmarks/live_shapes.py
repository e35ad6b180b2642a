"""Records the op shapes of one step of a running training, and says what that told and what it cost.

    python benchmarks/live_shapes.py --script FILE [--script FILE …] --out DIR [--before 12] [--after 12] [--alone 6]

Per script: it trains alone, is watched in bursts, has one step recorded, is watched on, and trains alone again.
Prints split and shares of the kernel time by evidence before and after the shapes, how long the recorded step took,
and the step's length before and after it (medians, from the optimizer's marks; tracing and the recorded step left
out) and alone. Writes NAME.brrr and live_shapes.json.
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
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from brrrtop.errors import BrrrtopError  # noqa: E402
from brrrtop.model.snapshot import Snapshot  # noqa: E402
from brrrtop.session.controller import Controller  # noqa: E402
from brrrtop.session.live import Live, alone  # noqa: E402
from brrrtop.sources.live import LiveSource  # noqa: E402
from brrrtop.sources.recording import RecordingWriter  # noqa: E402
from brrrtop.sources.registry import open_source  # noqa: E402
from collectors.attach import agent_library  # noqa: E402
from collectors.attach.attach import attach  # noqa: E402
from collectors.attach.files import AgentFiles  # noqa: E402
from collectors.errors import CollectorError  # noqa: E402
from collectors.gpu.sampler_thread import GaugeThread  # noqa: E402
from collectors.protocol import requests  # noqa: E402
from collectors.protocol.frames import Kind  # noqa: E402
from collectors.vocabulary import MarkClass  # noqa: E402

LOOK_S = 0.25
MARGIN_NS = 50_000_000
OUTCOME_S = 30.0
RATE = re.compile(r"it/s=([\d.]+)")


class Trainer:
    """A running script and the rates it prints.

    Args:
        command: Of the trainer.
        folder: Where it runs, without our PYTHONPATH, which holds what only the monitor needs.
    """

    def __init__(self, command: list[str], folder: Path) -> None:
        self.rates: list[tuple[float, float]] = []
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


def watch_for(driver: Live, seconds: float, until_told: bool = False) -> Snapshot:
    """Looks on for that long, or until the log says what came of the shapes."""
    end = time.perf_counter() + seconds
    while True:
        snapshot = driver.advance()
        if time.perf_counter() >= end or (until_told and outcome(snapshot)):
            return snapshot
        time.sleep(LOOK_S)


def outcome(snapshot: Snapshot) -> str:
    """What the log says of recording shapes."""
    return next((event.says for event in snapshot.events if event.kind == "shapes"), "")


def judged(snapshot: Snapshot) -> dict[str, Any]:
    """The figures that evidence moves."""
    one = snapshot.estimate
    if one is None:
        return {}
    split = {k: round(getattr(one.split, k), 4) for k in ("compute", "memory", "overhead")}
    return {
        "regime": str(one.regime),
        "confidence": round(one.confidence, 3),
        "split": split,
        "evidence": {level: round(share, 4) for level, share in one.evidence_shares.items()},
        "step_cost": snapshot.overhead.step_cost_share,
    }


def watched(pid: int, file: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Attaches, asks for shapes between two looks, detaches."""
    attached = attach(pid, AgentFiles(agent_library.AGENT_DIR, agent_library.library_path()))
    try:
        gauges = GaugeThread(pid)
        gauges.start()
        wanted = requests.Wanted.GRAPHS if options.trace_graphs else requests.Wanted(0)
        attached.client.send(requests.kinds(requests.Wanted.DEFAULT | wanted))
        source = LiveSource(attached.client, pid, [gauges], sink=RecordingWriter(str(file)))
        driver = Live([alone(Controller(source))])
        try:
            result: dict[str, Any] = {"before": judged(watch_for(driver, options.before))}
            result["answer"] = driver.shapes()
            asked = time.perf_counter()
            watch = watch_for(driver, OUTCOME_S, until_told=True)
            result["says"], result["told_s"] = outcome(watch), round(time.perf_counter() - asked, 2)
            result["at_once"] = judged(watch)
            result["after"] = judged(watch_for(driver, options.after))
        finally:
            driver.close()
    finally:
        attached.leave()
    return result


def steps_of(file: Path) -> dict[str, Any]:
    """What the recording holds of steps: those beside the recorded one, and itself."""
    ends, spans, disturbed, ops, threads = [], [], [], 0, set()
    for frame in open_source(file).frames():
        body = frame.body
        if frame.kind == Kind.MARKS:
            ends.append(body["end_ns"][body["mark_class"] == MarkClass.STEP])
            ours = body[(body["mark_class"] == MarkClass.PERTURBED) & (body["value"] > 0)]
            disturbed += [(int(row["start_ns"]), int(row["end_ns"])) for row in ours]
            recorded = body[body["mark_class"] == MarkClass.RECORDED_OP]
            ops += len(recorded)
            threads |= set(recorded["tid"].tolist())
        elif frame.kind == Kind.OBSERVED:
            spans += [(int(row["start_ns"]), int(row["end_ns"])) for row in body]
    times = np.sort(np.concatenate(ends)) if ends else np.zeros(0, np.int64)
    durations, starts, stops = np.diff(times), times[:-1], times[1:]
    clean = np.ones(len(durations), bool)
    for low, high in [*spans, *disturbed]:
        clean &= (stops < low - MARGIN_NS) | (starts > high + MARGIN_NS)
    if not disturbed:
        return {"ops": ops, "step_ns": _middle(durations[clean])}
    low, high = disturbed[-1]
    hit = (stops > low) & (starts < high)
    return {
        "ops": ops, "threads": len(threads), "recorded_span_ns": high - low,
        "recorded_step_ns": int(durations[hit].max()) if hit.any() else None,
        "step_before_ns": _middle(durations[clean & (stops < low)]),
        "step_after_ns": _middle(durations[clean & (starts > high)]),
        "steps_before": int((clean & (stops < low)).sum()), "steps_after": int((clean & (starts > high)).sum()),
    }  # fmt: skip


def _middle(durations: Any) -> float | None:
    return float(np.median(durations)) if len(durations) else None


def one(script: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All phases of one script."""
    result: dict[str, Any] = {"script": script.stem}
    trainer = Trainer([sys.executable, "-u", script.name, "--seconds", "600"], script.parent)
    try:
        if not trainer.wait_for(4, options.patience):
            return result | {"error": f"did not train: {trainer.tail[-3:]}"}
        began = time.perf_counter()
        time.sleep(options.alone)
        alone = trainer.rate(began - 2, time.perf_counter())
        file = options.out / f"{script.stem}.brrr"
        file.unlink(missing_ok=True)
        result |= watched(trainer.process.pid, file, options)
        left = time.perf_counter()
        time.sleep(options.alone)
        after = trainer.rate(left, time.perf_counter())
        result |= {"alone_rate": alone, "afterwards_rate": after}
        result |= {"trainer_alive": trainer.process.poll() is None, **steps_of(file)}
    except (BrrrtopError, CollectorError) as fault:
        result["error"] = f"{fault.message} ({fault.action})"
    finally:
        result["trainer_exit"], result["trainer_tail"] = trainer.stop(), trainer.tail[-12:]
    return result


def tell(result: dict[str, Any]) -> None:
    """One script in words."""
    print(
        f"\n{result['script']}: {result.get('error') or result.get('says') or 'nothing was told'}"
    )
    for phase in ("before", "at_once", "after"):
        message = result.get(phase) or {}
        print(f"  {phase:8} {message.get('regime')} {message.get('confidence')}"
              f"  split {message.get('split')}  evidence {message.get('evidence')}")  # fmt: skip
    steps = [result.get(key) for key in ("step_before_ns", "recorded_step_ns", "step_after_ns")]
    ms = ["–" if ns is None else f"{ns / 1e6:.3f} ms" for ns in steps]
    print(f"  step before {ms[0]}, recorded {ms[1]} ({result.get('ops')} ops), after {ms[2]}")
    print(f"  alone {result.get('alone_rate')} it/s, afterwards {result.get('afterwards_rate')} it/s,"
          f" alive {result.get('trainer_alive')}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--script", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--before", type=float, default=12.0, help="seconds watched before")
    parser.add_argument("--after", type=float, default=12.0, help="and after")
    parser.add_argument("--alone", type=float, default=6.0)
    parser.add_argument("--trace-graphs", action="store_true", help="beside CUDA graphs too")
    parser.add_argument("--patience", type=float, default=120.0, help="until it trains")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    message = []
    for script in options.script:
        message.append(one(script, options))
        tell(message[-1])
        (options.out / "live_shapes.json").write_text(json.dumps(message, indent=1, default=str))


if __name__ == "__main__":
    main()
