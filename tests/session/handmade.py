"""Small traces by hand, and what a source said, table by table."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from brrrtop.sources.source import Source
from collectors import vocabulary
from collectors.protocol import frames as wire
from collectors.protocol.frames import Frame, Kind

GPU = {
    "id": 0,
    "name": "NVIDIA H200",
    "numSms": 132,
    "computeMajor": 9,
    "computeMinor": 0,
    "totalGlobalMem": 150109880320,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 233472,
}


def kernel(
    ts: Any, dur: Any, correlation: int = 0, name: str = "gemm", **args: Any
) -> dict[str, Any]:
    """A kernel event; times in microseconds, as numbers or as text to be written as it is."""
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur,
        "args": {"device": 0, "stream": 7, "correlation": correlation, "grid": [4, 2, 1],
                 "block": [128, 1, 1], "registers per thread": 32, "shared memory": 1024, **args},
    }  # fmt: skip


def launch(
    ts: Any, dur: Any, correlation: int, name: str = "cudaLaunchKernel", tid: Any = 10, **args: Any
) -> dict[str, Any]:
    """A CUDA call on the host."""
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur,
        "args": {"correlation": correlation, "cbid": 211, **args},
    }  # fmt: skip


def op(ts: Any, dur: Any, name: str, tid: Any = 10, **args: Any) -> dict[str, Any]:
    """A framework op."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def annotation(ts: Any, dur: Any, name: str, tid: Any = 10) -> dict[str, Any]:
    """A range that somebody named."""
    return {**op(ts, dur, name, tid), "cat": "user_annotation"}


def copy(ts: Any, dur: Any, correlation: int, name: str, size_bytes: int) -> dict[str, Any]:
    """A memcpy or memset."""
    cat = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
    args = {"device": 0, "stream": 7, "correlation": correlation, "bytes": size_bytes}
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur,
            "args": args}  # fmt: skip


def text_of(events: list[dict[str, Any]], **facts: Any) -> bytes:
    """A trace as Kineto writes it."""
    return json.dumps({"deviceProperties": [GPU], "traceEvents": events, **facts}).encode()


def written(folder: Path, text: bytes, name: str = "t.json", compress: bool = False) -> Path:
    """The text as a file."""
    path = folder / name
    path.write_bytes(gzip.compress(text) if compress else text)
    return path


class Received:
    """Everything a source said."""

    def __init__(self, source: Source) -> None:
        self.frames: list[Frame] = list(source.frames())
        self.names: dict[int, str] = {}
        for frame in self.of(Kind.NAMES):
            self.names.update(frame.body)
        self.kernels = self.rows(Kind.KERNELS)
        self.copies = self.rows(Kind.COPIES)
        self.calls = self.rows(Kind.CALLS)
        self.marks = self.rows(Kind.MARKS)
        self.links = self.rows(Kind.LINKS)
        self.ops = {row[0]: row[1:] for frame in self.of(Kind.OPS) for row in frame.body}
        self.hello: dict[str, Any] = self.of(Kind.HELLO)[0].body

    def of(self, kind: Kind) -> list[Frame]:
        return [frame for frame in self.frames if frame.kind == kind]

    def rows(self, kind: Kind) -> Any:
        result = [frame.body for frame in self.of(kind)]
        return np.concatenate(result) if result else np.zeros(0, wire.DTYPES[kind])

    def marks_of(self, mark_class: vocabulary.MarkClass) -> list[str]:
        rows = self.marks[self.marks["mark_class"] == mark_class]
        return [self.names[int(i)] for i in rows["name_id"]]

    def op_of(self, correlation: int) -> str | None:
        rows = self.links[self.links["correlation"] == correlation]
        return None if not len(rows) else str(self.ops[int(rows["op_id"][0])][0])
