"""Keeps a piece of what a GPU's counters were seen to do as a recording: kernels beside samples.

    python -m benchmarks.truth.keep_sampled NPZ OUT.brrr [--from-ms 200] [--ms 100] [--regime memory]
    python -m benchmarks.truth.keep_sampled LIVE.brrr OUT.brrr --regime compute

The first of `benchmarks/lab/pm_lab.py`; the second of a watch with `--counters`, its first burst that
has samples.

The recording holds the frames that a live session would: names, kernels, copies, the traced span and
its samples, on the clocks they came with.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from brrrtop.session.opening import open_source
from brrrtop.session.recording import RecordingWriter
from collectors.counter_samples import SAMPLE
from collectors.wire import COPY, KERNEL, OBSERVED, WIRE_VERSION, Frame, Kind

MARGIN_NS = 10_000_000
MS = 1_000_000
DEVICE = {
    "device_id": 0, "name": "NVIDIA H200", "sm_count": 132, "capability": [9, 0],
    "max_threads_per_sm": 2048, "registers_per_sm": 65536, "shared_bytes_per_sm": 233472,
}  # fmt: skip


def frames(lab: Any, start_ms: float, length_ms: float, torch: str, regime: str) -> Iterator[Frame]:
    """The piece as frames.

    Args:
        lab: An opened file of the lab.
        start_ms: After the first kernel.
        regime: What the script was built to have.
    """
    kernels = lab["kernels"].astype(KERNEL)
    low = int(kernels["start_ns"].min()) + round(start_ms * MS)
    high = low + round(length_ms * MS)
    kernels = _between(kernels, low, high)
    names: dict[int, str] = {}
    for part in json.loads(str(lab["names"])):
        names |= {int(key): name for key, name in part.items()}
    used = {key: names[key] for key in np.unique(kernels["name_id"]).tolist()}
    made = {"by": "benchmarks/lab/pm_lab.py", "truth": {"regime": regime}}
    hello = {"wire": WIRE_VERSION, "torch": torch, "provenance": made}
    yield Frame(Kind.HELLO, hello, low)
    yield Frame(Kind.DEVICE, DEVICE, low)
    yield Frame(Kind.NAMES, used, low)
    yield Frame(Kind.KERNELS, kernels, high)
    copies = lab["copies"]
    if len(copies):
        yield Frame(Kind.COPIES, _between(copies.astype(COPY), low, high), high)
    yield Frame(Kind.OBSERVED, np.array([(low, high, -1, 0)], OBSERVED), high)
    samples = lab["samples"].astype(SAMPLE)
    if 0 <= int(samples["offset_ns"].min()) < 1_000 * MS:  # one clock, read late
        samples["offset_ns"] = 0
    host = samples["start_ns"] + samples["offset_ns"]
    near = (host > low - MARGIN_NS) & (host < high + MARGIN_NS)
    yield Frame(Kind.SAMPLES, samples[near], high + MARGIN_NS)
    yield Frame(Kind.END, {"reason": "kept to here"}, high + MARGIN_NS)


KEPT = frozenset(
    (Kind.HELLO, Kind.DEVICE, Kind.NAMES, Kind.KERNELS, Kind.COPIES, Kind.CALLS, Kind.OBSERVED)
)


def frames_of_watch(path: Path, regime: str) -> Iterator[Frame]:
    """What a watch recorded up to its first samples, those included."""
    made = {"by": "brrrtop attach --counters", "truth": {"regime": regime}}
    source = open_source(path)
    try:
        for frame in source.frames():
            if frame.kind == Kind.HELLO:
                yield replace(frame, body=frame.body | {"provenance": made})
            elif frame.kind in KEPT:
                yield frame
            elif frame.kind == Kind.SAMPLES:
                yield frame
                yield replace(frame, kind=Kind.END, body={"reason": "kept to here"})
                return
    finally:
        source.close()
    raise SystemExit(f"{path} holds no samples of counters")


def _between(rows: Any, low: int, high: int) -> Any:
    rows = rows[(rows["end_ns"] > low) & (rows["start_ns"] < high)]
    return rows[np.argsort(rows["start_ns"], kind="stable")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lab", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--from-ms", type=float, default=200.0)
    parser.add_argument("--ms", type=float, default=100.0)
    parser.add_argument("--regime", required=True)
    parser.add_argument("--torch", default="2.11.0+cu130")
    args = parser.parse_args()
    if args.lab.suffix == ".brrr":
        with RecordingWriter(args.out) as writer:
            for frame in frames_of_watch(args.lab, args.regime):
                writer.write(frame)
        return
    with np.load(args.lab) as lab, RecordingWriter(args.out) as writer:
        for frame in frames(lab, args.from_ms, args.ms, args.torch, args.regime):
            writer.write(frame)


if __name__ == "__main__":
    main()
