"""What trains on this host, and on which GPUs. Computes nothing. `None` is "not measured"."""

from __future__ import annotations

from msgspec import Struct

from collectors.vocabulary import HostGpu


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
