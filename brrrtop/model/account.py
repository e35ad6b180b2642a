"""Where the time of a window went. Computes nothing.

Times are integer nanoseconds on the trainer's CLOCK_REALTIME. `None` is "not measured"; a
measured zero is 0. Shares are 0..1.
"""

from collections.abc import Mapping

from msgspec import Struct

IDLE_CAUSES = (
    "input",
    "launch",
    "sync",
    "allocator",
    "compile",
    "gc",
    "checkpoint",
    "logging",
    "evaluation",
    "io",
    "host",
    "device",
    "other_process",
    "unknown",
)
"""Why nothing was resident. `launch`: the host was on its way to the next launch; `io`: it was in
file or network work of the loop itself; `host`: it was elsewhere, nobody knows where; `device`:
work was queued but waited on the device; `other_process`: the same while others were on it."""


MECHANICAL_CLASSES = ("host_late", "launch", "back_to_back", "device_wait", "unknown")


class Account(Struct, frozen=True):
    """Where the time of a window went, in ns. Every nanosecond is in exactly one bucket."""

    duration_ns: int
    compute_ns: int
    memory_ns: int
    """Kernels that move elements, copies from device to device, and fills."""
    underfilled_ns: int
    exposed_comm_ns: int
    """A collective was resident and no compute kernel was."""
    exposed_copy_ns: int
    """A copy from or to the host or another device was, and no compute kernel."""
    idle_ns: Mapping[str, int]
    """By cause, keys `IDLE_CAUSES`."""
    unknown_ns: int
    """Kernels nobody can class, and time whose records were lost or never made."""
    mechanical_ns: Mapping[str, int]
    """The idle time again, by how it came about; adds up to the idle total."""
    busy_ns: int
    """Union of all recorded device activity."""
    unrecorded_ns: int = 0
    """Of `unknown_ns`, when nodes of CUDA graphs ran that nobody recorded; not in `busy_ns`."""

    @property
    def idle_total_ns(self) -> int:
        return sum(self.idle_ns.values())

    @property
    def overhead_ns(self) -> int:
        return (
            self.underfilled_ns + self.exposed_comm_ns + self.exposed_copy_ns + self.idle_total_ns
        )


class Split(Struct, frozen=True):
    compute: float
    memory: float
    overhead: float
    unknown: float
