"""Cuts a profiler trace to what the ranks' tests need: steps, launches, GPU work, ops of collectives.

python tests/ranks/cut.py TRACE.json CUT.json.gz
"""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

ARGS = (
    "device", "stream", "correlation", "External id", "external id", "grid", "block", "bytes",
    "Input Dims", "Input type", "registers per thread", "shared memory",
)  # fmt: skip
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cudaLaunch", "cudaMemcpy", "cudaMemset", "cuLaunch")


def keep(event: dict[str, Any]) -> bool:
    """Whether the ranks' tests need it."""
    name, kind = str(event.get("name", "")), event.get("cat")
    if event.get("ph") != "X":
        return False
    if kind in GPU or name.startswith("ProfilerStep"):
        return kind != "gpu_user_annotation"
    if kind == "cuda_runtime":
        return name.startswith(LAUNCHES) or "Synchronize" in name
    return kind == "cpu_op" and (name.startswith("c10d::") or name == "record_param_comms")


def cut(trace: dict[str, Any]) -> dict[str, Any]:
    """The same trace with less in it."""
    events = [e for e in trace["traceEvents"] if keep(e)]
    for event in events:
        event["args"] = {k: v for k, v in event.get("args", {}).items() if k in ARGS}
        if event["cat"] == "kernel":
            event["name"] = event["name"][:120]
    keys = ("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds")
    return {k: trace[k] for k in keys if k in trace} | {"traceEvents": events}


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    data = source.read_bytes()
    trace = json.loads(gzip.decompress(data) if source.suffix == ".gz" else data)
    text = json.dumps(cut(trace), separators=(",", ":"))
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
