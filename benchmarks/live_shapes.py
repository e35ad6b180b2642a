"""Records the op shapes of one step of a running training, and says what that told and what it cost.

    python benchmarks/live_shapes.py --script FILE [--script FILE …] --out DIR

Per script: it trains alone, is watched in bursts, has one step recorded, is watched on, and trains alone again.
Prints and writes to live_shapes.json split and shares of the kernel time by evidence before and after the shapes, how
long the recorded step took, the step's length before and after it (medians, from the optimizer's marks; tracing and
the recorded step left out), and its pace alone. The recording is NAME.brrr.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from step_log import SteppedTrainer
from watched import Watch

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Snapshot
from brrrtop.scheduling.governor import Governor
from brrrtop.sources.recording import RecordingWriter
from brrrtop.sources.registry import open_source
from collectors.errors import CollectorError
from collectors.protocol import requests
from collectors.protocol.frames import Kind
from collectors.vocabulary import MarkClass

MARGIN_NS = 50_000_000
WARM_STEPS, WARM_LIMIT_S, OUTCOME_S = 100, 120.0, 30.0
ALONE_S, WATCHED_S = 6.0, 12.0


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


def watched(pid: int, file: Path) -> dict[str, Any]:
    """Attaches, asks for shapes between two looks, detaches."""
    writer = RecordingWriter(str(file))
    watch = Watch(pid, Governor(), requests.Wanted.DEFAULT, writer, shapes=False)
    try:
        watch.watch_for(WATCHED_S)
        result: dict[str, Any] = {"before": judged(watch.snapshot)}
        result["answer"], asked = watch.driver.shapes(), time.perf_counter()
        while not outcome(watch.snapshot) and time.perf_counter() - asked < OUTCOME_S:
            watch.watch_for(0.25)
        result["says"], result["told_s"] = outcome(watch.snapshot), time.perf_counter() - asked
        result["at_once"] = judged(watch.snapshot)
        watch.watch_for(WATCHED_S)
        result["after"] = judged(watch.snapshot)
    finally:
        watch.close()
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


def pace(trainer: SteppedTrainer) -> float:
    """Steps a second while nobody watches."""
    first, began = trainer.count, time.perf_counter()
    time.sleep(ALONE_S)
    return (trainer.count - first) / (time.perf_counter() - began)


def one(script: Path, out: Path) -> dict[str, Any]:
    """All phases of one script."""
    result: dict[str, Any] = {"script": script.stem}
    trainer = SteppedTrainer(script, ["--seconds", "600"], out)
    try:
        if not trainer.wait_for_steps(WARM_STEPS, WARM_LIMIT_S):
            return result | {"error": f"did not train: {trainer.tail()}"}
        result["alone_rate"] = pace(trainer)
        file = out / f"{script.stem}.brrr"
        file.unlink(missing_ok=True)
        result |= watched(trainer.pid, file)
        result["afterwards_rate"] = pace(trainer)
        result |= {"trainer_alive": trainer.alive, **steps_of(file)}
    except (BrrrtopError, CollectorError) as fault:
        result["error"] = f"{fault.message} ({fault.action})"
    finally:
        result["trainer_tail"] = trainer.tail()
        trainer.kill()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--script", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = []
    for script in options.script:
        results.append(one(script, options.out))
        print(json.dumps(results[-1], indent=1, default=str), flush=True)
        (options.out / "live_shapes.json").write_text(json.dumps(results, indent=1, default=str))


if __name__ == "__main__":
    main()
