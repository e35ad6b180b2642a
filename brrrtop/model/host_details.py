"""What a profiler recorded of the host beyond launches: ops, Python frames, memory. Computes nothing.

Times are integer nanoseconds on the trainer's CLOCK_REALTIME. Only traces and the step that was
recorded with shapes have these; they come in no frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from brrrtop.model.tables import I8, Bool, Columns, Links


class HostOps(Columns, frozen=True, eq=False):
    """Framework ops on the host, by thread and start, outer ops first."""

    starts_ns: I8
    ends_ns: I8
    tids: I8
    name_ids: I8
    signature_ids: I8
    """Into `HostDetails.signatures`."""
    parents: I8
    """Row of the op that holds each; -1: outermost."""
    sequences: I8
    """Of the autograd node that an op made or runs; -1: none."""
    backward: Bool


class PythonFrames(Columns, frozen=True, eq=False):
    """Calls of Python functions and of modules, in any order."""

    starts_ns: I8
    ends_ns: I8
    tids: I8
    name_ids: I8


class MemoryEvents(Columns, frozen=True, eq=False):
    """What the caching allocator of a GPU gave and took back, sorted by time."""

    times_ns: I8
    tids: I8
    device_ids: I8
    addresses: I8
    size_bytes: I8
    """Negative: given back."""
    allocated_bytes: I8
    """In use afterwards, as the allocator counts; -1: not told."""
    reserved_bytes: I8


_NONE = np.zeros(0, np.int64)
NO_FRAMES = PythonFrames(_NONE, _NONE, _NONE, _NONE)
NO_MEMORY = MemoryEvents(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE)


class HostDetails(Struct, frozen=True, eq=False):
    """Everything of the host that a table can be made of."""

    names: tuple[str, ...]
    signatures: Mapping[int, tuple[str, Any]]
    """Name and input shapes of each call."""
    ops: HostOps
    launches: Links
    """Row in `ops` of the innermost op behind each launch; -1: none."""
    frames: PythonFrames
    memory: MemoryEvents
    recorded_step: bool = False
    """All of it is of one step, whose host times recording stretched."""
