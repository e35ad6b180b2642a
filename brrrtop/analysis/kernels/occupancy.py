"""How many blocks of a kernel fit on the device at once, and whether it fills it.

Limits per SM by compute capability: CUDA C++ programming guide, "Compute capabilities"; registers
are allocated per warp in units of 256.
"""

from __future__ import annotations

from brrrtop.model.tables import Device

_THREADS_PER_SM = {
    (7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (11, 0): 1536, (12, 0): 1536, (12, 1): 1536,
}  # fmt: skip
_BLOCKS_PER_SM = {
    (7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24, (11, 0): 24, (12, 0): 24, (12, 1): 24,
}  # fmt: skip
_SHARED_PER_SM = {
    7: 96 << 10, 8: 164 << 10, 9: 228 << 10, 10: 228 << 10, 11: 228 << 10, 12: 100 << 10,
}  # fmt: skip
"""By major capability; `_SMALL_SHARED` where a minor one has less."""
_SMALL_SHARED = {(7, 5): 64 << 10, (8, 6): 100 << 10, (8, 9): 100 << 10}
RESERVED_SINCE_8 = 1024
"""Shared memory of each block that the system keeps, from compute capability 8.0 on."""


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
        usual = _SHARED_PER_SM.get(capability[0], 100 << 10)
        room = device.shared_bytes_per_sm or _SMALL_SHARED.get(capability, usual)
        kept = RESERVED_SINCE_8 if capability >= (8, 0) else 0
        limits.append(room // (shared_bytes + kept))
    return max(1, min(limits))
