"""Run by an interpreter that has torch: times copies and matrix products on one GPU, prints JSON.

A program of its own and not a module of the monitor's: the monitor has no torch. Standard library
only besides. It takes the first GPU it sees; failures are one JSON object with `error`.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

COPY_BYTES = 1 << 30
SIDE = 8192
"""Of the products: 2·8192³ FLOPs keep the largest GPU at work for a millisecond."""
ROUNDS, TIMES = 5, 10
SOURCES = {
    "bf16": ("bfloat16", False),
    "fp16": ("float16", False),
    "tf32": ("float32", True),
    "fp32": ("float32", False),
}


def main() -> int:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return report({"error": "torch", "python": sys.executable})
    if not torch.cuda.is_available():
        return report({"error": "cuda", "python": sys.executable})
    try:
        with torch.no_grad():
            return report(measure(torch))
    except torch.cuda.OutOfMemoryError:
        return report({"error": "memory"})


def report(document: dict[str, Any]) -> int:
    sys.stdout.write(json.dumps(document) + "\n")
    return 1 if "error" in document else 0


def measure(torch: Any) -> dict[str, Any]:
    """Best of a few rounds of each: what the GPU can do, not what it does on average."""
    properties = torch.cuda.get_device_properties(0)
    uuid = getattr(properties, "uuid", None)
    return {
        "name": properties.name,
        "uuid": f"GPU-{uuid}" if uuid is not None else None,
        "torch": torch.__version__,
        "bytes_per_s": copy_rate(torch),
        "flop_per_s": {
            precision: product_rate(torch, *source)
            for precision, source in SOURCES.items()
            if usable(torch, precision)
        },
    }


def usable(torch: Any, precision: str) -> bool:
    major = torch.cuda.get_device_capability()[0]
    return major >= 8 or precision not in ("bf16", "tf32")


def copy_rate(torch: Any) -> float:
    """Bytes read plus written a second by a copy much larger than the L2 cache."""
    size = min(COPY_BYTES, torch.cuda.mem_get_info()[0] // 4)
    source = torch.empty(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2.0 * float(size) / fastest(torch, lambda: target.copy_(source))


def product_rate(torch: Any, dtype: str, tf32: bool) -> float:
    """FLOPs a second of a square product of random numbers: zeros would draw less power."""
    torch.backends.cuda.matmul.allow_tf32 = tf32
    kind = getattr(torch, dtype)
    a, b = (torch.randn(SIDE, SIDE, device="cuda").to(kind) for _ in range(2))
    out = torch.empty(SIDE, SIDE, dtype=kind, device="cuda")
    return 2.0 * SIDE**3 / fastest(torch, lambda: torch.mm(a, b, out=out))


def fastest(torch: Any, work: Any) -> float:
    """Seconds of one run of `work`, the fastest round of `ROUNDS`, by the GPU's own clock."""
    work()
    best = float("inf")
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(TIMES):
            work()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / 1e3 / TIMES)
    return best


if __name__ == "__main__":
    sys.exit(main())
