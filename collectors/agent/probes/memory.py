"""What memory costs: Python's garbage collections, and how torch's caching allocator is doing."""

from __future__ import annotations

import gc
from typing import Any

from ..library import ALLOCATOR, STATUS, this_thread
from .probe import Probe, find_imported


class Collections(Probe):
    """A `gc.callbacks` entry. The mark's value is the generation.

    It is the library's own function, and no Python: the interpreter would run the trainer's signal
    handlers in that, and drops whatever a callback of `gc` raises.
    """

    name = "gc"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._callback = self.native.collection

    def place(self) -> None:
        if self._callback not in gc.callbacks:
            self._callback("start", {})  # one under way counts from here, not from an older start
            gc.callbacks.append(self._callback)

    def clear(self) -> None:
        while self._callback in gc.callbacks:
            gc.callbacks.remove(self._callback)


class Allocator(Probe):
    """No hook: reads torch's counters on the control thread, and only for devices in use."""

    name = "allocator"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._asked_ns = 0
        self._reported: dict[int, dict[str, Any]] = {}

    def clear(self) -> None:
        self._reported.clear()

    def wake(self, now_ns: int) -> None:
        """Once a second, mark new retries and send the totals of all devices if any has changed."""
        read = find_imported("torch._C", "_cuda_memoryStats")
        if read is None or now_ns - self._asked_ns < 1_000_000_000:
            return
        self._asked_ns = now_ns
        before, self._reported = self._reported, {d: totals(d, read(d)) for d in devices_in_use()}
        if self._reported != before:
            self.native.frame(STATUS, {"allocator": list(self._reported.values())})
        for device, now in self._reported.items():
            retries = now["alloc_retry_count"] - before.get(device, now)["alloc_retry_count"]
            if retries > 0:
                name_id = self.native.name(f"allocator retry on device {device}")
                self.native.mark(ALLOCATOR, now_ns, now_ns, retries, name_id, this_thread())


def devices_in_use() -> list[int]:
    """CUDA ordinals on which the trainer has a context; none before it initialised CUDA itself."""
    ready = find_imported("torch.cuda", "is_initialized")
    count = find_imported("torch._C", "_cuda_getDeviceCount")
    context = find_imported("torch._C", "_cuda_hasPrimaryContext")
    if ready is None or count is None or context is None or not ready():
        return []
    return [device for device in range(count()) if context(device)]


def totals(device: int, stats: dict[str, Any]) -> dict[str, Any]:
    """The few of the allocator's statistics that matter here."""
    counts = {"device": device, "alloc_retry_count": stats.get("num_alloc_retries", 0)}
    counts["oom_count"] = stats.get("num_ooms", 0)
    for what in ("reserved", "allocated"):
        pool = stats.get(f"{what}_bytes", {}).get("all", {})
        counts.update(
            {f"{what}_bytes": pool.get("current"), f"{what}_peak_bytes": pool.get("peak")}
        )
    return counts
