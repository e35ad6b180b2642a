"""Whether hardware counters make the first burst hold its trainer: what each burst cost, in which order.

    python benchmarks/lab/pm_first.py --script zoo/gpt_bf16.py --out DIR [--seconds 9]

fresh    a trainer that nobody traced before, watched with `--counters`
plain    another one, watched without
after    that one again, with `--counters`: CUPTI was switched on in it before the counters were

Prints one JSON line a watch: for each burst when it was ordered, when it traced and how long switching CUPTI on held
the trainer (`on_ms`), and when gauges of counters and samples of bursts came. A long `on_ms` in `fresh` alone: the
first switch waits for the counters; in `after` too: every first burst of a watch does; in none: it was the opening.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from live_zoo import Trainer, watch  # noqa: E402

from brrrtop.session.recording import RecordingSource  # noqa: E402
from collectors.counters import CounterThread  # noqa: E402
from collectors.wire import Frame, Kind, Metric  # noqa: E402

COUNTED = frozenset(map(int, CounterThread.carries))


def watched(name: str, trainer: Trainer, out: Path, seconds: float, extra: list[str]) -> None:
    """One watch of the trainer, and what its recording says."""
    path = out / f"{name}.brrr"
    path.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "brrrtop", "attach", str(trainer.process.pid), "--yes", "--json",
        "--interval", "0.1", "--record", str(path), *extra,
    ]  # fmt: skip
    _, said, code = watch(command, seconds)
    told: dict[str, Any] = {"watch": name, "exit": code}
    if path.exists():
        source = RecordingSource(path)
        told |= seen(source.frames())
        source.close()
    if "bursts" not in told or code not in (0, 130):
        told["said"] = said[-600:]
    print(json.dumps(told), flush=True)


def seen(frames: Iterator[Frame]) -> dict[str, Any]:
    """Bursts, counters and samples of one recording; times in seconds from its first frame."""
    began_ns = 0
    bursts: list[dict[str, float]] = []
    found: dict[str, Any] = {"bursts": bursts, "counters_s": [], "samples": [], "says": []}
    for frame in frames:
        began_ns = began_ns or frame.sent_ns
        at = round((frame.sent_ns - began_ns) / 1e9, 2)
        if frame.kind == Kind.STATUS:
            body = frame.body
            if "burst" in body:
                bursts.append({"ordered_s": at})
            if body.get("state") == "tracing" and bursts:
                bursts[-1]["tracing_s"] = at
            if "traced" in body and bursts:
                bursts[-1]["on_ms"] = body["traced"].get("held_us", {}).get("on", 0) / 1e3
            found["says"] += [
                f"{at}: {line}" for line in body.get("gauges", []) if "hardware" in line
            ]
            if "worst_step_ns" in body:
                found["worst_step_ms"] = body["worst_step_ns"] / 1e6
        elif frame.kind == Kind.GAUGES:
            metrics = {int(metric) for metric in frame.body["metric"]}
            # GPM brings others in the same frame; the counters bring these alone.
            if metrics and metrics <= COUNTED and int(Metric.TENSOR_ACTIVE) in metrics:
                found["counters_s"].append(at)
        elif frame.kind == Kind.SAMPLES:
            found["samples"].append([at, len(frame.body)])
    came = found.pop("counters_s")
    found["counters"] = {
        "first_s": min(came, default=None),
        "last_s": max(came, default=None),
        "frames": len(came),
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=9.0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    counters, script = ["--counters"], args.script.resolve()
    for watches in ([("fresh", counters)], [("plain", []), ("after", counters)]):
        trainer = Trainer([sys.executable, "-u", script.name, "--seconds", "600"], script.parent)
        try:
            if not trainer.wait_for(4, 60):
                print(json.dumps({"error": f"did not train: {trainer.tail[-3:]}"}), flush=True)
                continue
            for name, extra in watches:
                watched(name, trainer, args.out, args.seconds, extra)
        finally:
            trainer.stop()


if __name__ == "__main__":
    main()
