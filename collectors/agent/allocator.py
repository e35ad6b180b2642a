"""Asks torch's caching allocator once a second how it is doing."""

from __future__ import annotations

from typing import Any, Dict, List

from .native import ALLOCATOR, STATUS
from .probe import Probe, imported

_EVERY_NS = 1_000_000_000


class Allocator(Probe):
    """No hook at all: reads torch's counters on the control thread, and only for devices in use."""

    name = "allocator"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._asked_ns = 0
        self._retries: Dict[int, int] = {}
        self._told: Dict[int, Dict[str, Any]] = {}

    def remove(self) -> None:
        super().remove()
        self._retries.clear()
        self._told.clear()

    def wake(self, now_ns: int) -> None:
        """Mark new retries; send the totals of a device when they have changed."""
        if now_ns - self._asked_ns < _EVERY_NS:
            return
        self._asked_ns = now_ns
        read = imported("torch._C", "_cuda_memoryStats")
        if read is None:
            return
        for device in devices_in_use():
            facts = totals(read(device))
            self._count(device, facts["alloc_retry_count"], now_ns)
            if facts != self._told.get(device):
                self._told[device] = facts
                body = {"tier": "allocator", "state": "live", "says": "", "device": device}
                self.native.frame(STATUS, {**body, **facts})

    def _count(self, device: int, retries: int, now_ns: int) -> None:
        fresh = retries - self._retries.get(device, retries)
        self._retries[device] = retries
        if fresh > 0:
            name_id = self.native.name(f"allocator retry on device {device}")
            self.native.mark(ALLOCATOR, now_ns, now_ns, fresh, name_id, self.native.thread())


def devices_in_use() -> List[int]:
    """CUDA ordinals on which the trainer has a context; none before it initialised CUDA itself."""
    ready = imported("torch.cuda", "is_initialized")
    count = imported("torch._C", "_cuda_getDeviceCount")
    context = imported("torch._C", "_cuda_hasPrimaryContext")
    if ready is None or count is None or context is None or not ready():
        return []
    return [device for device in range(count()) if context(device)]


def totals(stats: Dict[str, Any]) -> Dict[str, Any]:
    """The few of the allocator's statistics that matter here."""
    return {
        "alloc_retry_count": int(stats.get("num_alloc_retries", 0)),
        "oom_count": int(stats.get("num_ooms", 0)),
        "reserved_bytes": stats.get("reserved_bytes", {}).get("all", {}).get("current"),
        "reserved_peak_bytes": stats.get("reserved_bytes", {}).get("all", {}).get("peak"),
        "allocated_bytes": stats.get("allocated_bytes", {}).get("all", {}).get("current"),
        "allocated_peak_bytes": stats.get("allocated_bytes", {}).get("all", {}).get("peak"),
    }
