"""Asks the CUDA driver how this very process numbers the GPUs. Makes no context."""

from __future__ import annotations

import ctypes


class NoDriver(Exception):
    """There is no CUDA driver to ask."""


def cuda_ordinals() -> dict[str, int]:
    """CUDA's device numbers in this process by UUID, without the `GPU-` in front.

    Raises:
        NoDriver: libcuda is missing or does not start.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as fault:
        raise NoDriver(f"libcuda.so.1 cannot be loaded: {fault}") from fault
    code = cuda.cuInit(0)
    if code != 0:
        raise NoDriver(f"libcuda.so.1 does not start: cuInit answers {code}")
    count = ctypes.c_int(0)
    cuda.cuDeviceGetCount(ctypes.byref(count))
    name_of = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    ordinals: dict[str, int] = {}
    for ordinal in range(count.value):
        device = ctypes.c_int(0)
        raw = (ctypes.c_ubyte * 16)()
        if cuda.cuDeviceGet(ctypes.byref(device), ordinal) or name_of(ctypes.byref(raw), device):
            continue
        ordinals[_uuid_text(bytes(raw))] = ordinal
    return ordinals


def _uuid_text(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
