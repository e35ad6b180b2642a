"""What a JAX profile holds, whichever of its two files it came from."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class Line(Struct):
    """Events of one stream or thread; times are nanoseconds."""

    plane: str
    """`/device:GPU:0`, `/host:CPU`, …: a process of the Chrome trace."""
    name: str
    """`Stream #17(Kernel)`, `python3`, …: a thread of the Chrome trace."""
    key: Any
    """The number the file gives it; unique in its plane."""
    names: list[str] = field(default_factory=list)
    starts_ns: list[int] = field(default_factory=list)
    spans_ns: list[int] = field(default_factory=list)
    correlations: list[int] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    """`kernel_details`, or `memcpy_details` and the like; empty for what has none."""
    steps: list[int] = field(default_factory=list)
    """`step_num` of a StepTraceAnnotation; -1 for all else."""

    def add(
        self, name: str, start_ns: int, span_ns: int, correlation: int, details: str, step: int
    ) -> None:
        self.names.append(name)
        self.starts_ns.append(start_ns)
        self.spans_ns.append(span_ns)
        self.correlations.append(correlation)
        self.details.append(details)
        self.steps.append(step)


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
