"""Asks torch's caching allocator once a second how it is doing."""

from __future__ import annotations

from typing import Any

from .native import ALLOCATOR, STATUS
from .probe import Probe, imported

_EVERY_NS = 1_000_000_000


class Allocator(Probe):
    """No hook at all: reads torch's counters on the control thread, and only for devices in use."""

    name = "allocator"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._asked_ns = 0
        self._told: dict[int, dict[str, Any]] = {}

    def clear(self) -> None:
        self._told.clear()

    def wake(self, now_ns: int) -> None:
        """Mark new retries; send the totals of a device when they have changed."""
        read = imported("torch._C", "_cuda_memoryStats")
        if read is None or now_ns - self._asked_ns < _EVERY_NS:
            return
        self._asked_ns = now_ns
        for device in devices_in_use():
            now, before = totals(read(device)), self._told.get(device)
            if now == before:
                continue
            self._told[device] = now
            told = {"tier": "allocator", "state": "live", "says": "", "device": device}
            self.native.frame(STATUS, {**told, **now})
            retries = now["alloc_retry_count"] - before["alloc_retry_count"] if before else 0
            if retries > 0:
                name_id = self.native.name(f"allocator retry on device {device}")
                self.native.mark(ALLOCATOR, now_ns, now_ns, retries, name_id, self.native.thread())


def devices_in_use() -> list[int]:
    """CUDA ordinals on which the trainer has a context; none before it initialised CUDA itself."""
    ready = imported("torch.cuda", "is_initialized")
    count = imported("torch._C", "_cuda_getDeviceCount")
    context = imported("torch._C", "_cuda_hasPrimaryContext")
    if ready is None or count is None or context is None or not ready():
        return []
    return [device for device in range(count()) if context(device)]


def totals(stats: dict[str, Any]) -> dict[str, Any]:
    """The few of the allocator's statistics that matter here."""
    found = {"alloc_retry_count": stats.get("num_alloc_retries", 0)}
    found["oom_count"] = stats.get("num_ooms", 0)
    for what in ("reserved", "allocated"):
        pool = stats.get(f"{what}_bytes", {}).get("all", {})
        found.update({f"{what}_bytes": pool.get("current"), f"{what}_peak_bytes": pool.get("peak")})
    return found
