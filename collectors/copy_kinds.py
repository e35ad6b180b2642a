"""CUPTI's codes for what a copy does and between which memories."""

from __future__ import annotations

from enum import IntEnum


class CopyKind(IntEnum):
    """CUpti_ActivityMemcpyKind; 0 stands for a memset here."""

    MEMSET = 0
    HTOD = 1
    DTOH = 2
    HTOA = 3
    ATOH = 4
    ATOA = 5
    ATOD = 6
    DTOA = 7
    DTOD = 8
    HTOH = 9
    PTOP = 10


class MemoryKind(IntEnum):
    """CUpti_ActivityMemoryKind."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    ARRAY = 4
    MANAGED = 5
    DEVICE_STATIC = 6
    MANAGED_STATIC = 7
