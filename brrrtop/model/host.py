"""What trains on this host, and on which GPUs. Computes nothing. `None` is "not measured"."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class HostGpu(Struct, frozen=True):
    """One GPU, whoever uses it."""

    index: int
    name: str
    gauges: Mapping[int, float] = field(default_factory=dict)
    """Newest reading of each `Metric`."""
    memory_by_pid: Mapping[int, int | None] = field(default_factory=dict)
    """Bytes of each process with a context; None where the driver does not tell."""


class HostTrainer(Struct, frozen=True):
    """A process that may be watched."""

    pid: int
    user: str
    command: str
    on_gpu: bool
    rank: int | None = None


class Host(Struct, frozen=True):
    trainers: tuple[HostTrainer, ...] = ()
    gpus: tuple[HostGpu, ...] = ()
    notes: tuple[str, ...] = ()
    """Why there are no GPUs to be seen, and who is not listed."""
