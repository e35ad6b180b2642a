"""How many blocks of a kernel fit on the device at once, and whether it fills it.

Limits per SM by compute capability: CUDA C++ programming guide, "Compute capabilities"; registers
are allocated per warp in units of 256.
"""

from __future__ import annotations

from brrrtop.ceilings import Ceilings
from brrrtop.tables import Device

_THREADS_PER_SM = {(7, 5): 1024, (8, 6): 1536, (8, 9): 1536, (12, 0): 1536}
_BLOCKS_PER_SM = {(7, 5): 16, (8, 6): 16, (8, 9): 24}
_SHARED_PER_SM = {7: 96 << 10, 8: 164 << 10, 9: 228 << 10, 10: 228 << 10, 12: 100 << 10}


def blocks_per_sm(device: Device, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks one SM holds at once, at least 1."""
    capability = device.capability or (8, 0)
    most_threads = device.max_threads_per_sm or _THREADS_PER_SM.get(capability, 2048)
    limits = [_BLOCKS_PER_SM.get(capability, 32)]
    warps = max(1, -(-threads // 32))
    limits.append(most_threads // (warps * 32))
    if registers > 0:
        per_warp = -(-registers * 32 // 256) * 256
        limits.append((device.registers_per_sm or 65536) // (per_warp * warps))
    if shared_bytes > 0:
        room = device.shared_bytes_per_sm or _SHARED_PER_SM.get(capability[0], 100 << 10)
        limits.append(room // (shared_bytes + 1024))
    return max(1, min(limits))


def sm_count(device: Device, ceilings: Ceilings | None) -> int | None:
    """SMs of the device; the table's when the source did not say."""
    return device.sm_count or (ceilings.sm_count if ceilings else None)
