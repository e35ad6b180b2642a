"""What a JAX profile holds, whichever of its two files it came from."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Event(Struct, gc=False):
    """One thing that was done."""

    name: str
    start_ns: int
    span_ns: int
    correlation: int = 0
    details: str = ""
    """`kernel_details`, or `memcpy_details` and the like; empty for what has none."""
    step: int = -1
    """`step_num` of a StepTraceAnnotation; -1 for all else."""


class Line(Struct):
    """Events of one stream or thread."""

    plane: str
    """`/device:GPU:0`, `/host:CPU`, …: a process of the Chrome trace."""
    name: str
    """`Stream #17(Kernel)`, `python3`, …: a thread of the Chrome trace."""
    key: Any
    """The number the file gives it; unique in its plane."""
    events: list[Event] = field(default_factory=list)


class Profile(Struct):
    """All lines that are used, and what is known of the machine."""

    lines: list[Line] = field(default_factory=list)
    planes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Facts by plane: `core_count`, `device_vendor`, …"""
    base_ns: int = 0
    losses: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    broken_off: bool = False


DETAILS = ("kernel_details", "memcpy_details", "Memset_details", "memset_details")
