"""What a trace knows of the host beyond what frames carry: ops, Python frames and memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from brrrtop.model.host_details import HostDetails, HostOps, MemoryEvents, PythonFrames
from brrrtop.model.nesting import Nest
from brrrtop.model.tables import I8, Links
from brrrtop.text.printable import printable

Array = npt.NDArray[Any]
Columns = dict[str, Array]
_MEMORY = "[memory]"
_CUDA = 1
"""`c10::DeviceType`."""


def of_trace(
    names: list[str],
    signatures: list[list[Any]],
    ops: Columns,
    nest: Nest,
    signature_ids: I8,
    launches: tuple[I8, I8],
    frames: Columns,
    memory: Columns,
) -> HostDetails:
    """The columns as tables.

    Args:
        names: By name id.
        signatures: `[name, dims, types, concrete]` by signature.
        ops: In the order of the trace; `nest` is of these.
        signature_ids: Of each op, in the nest's order.
        launches: Sorted correlations, and the position in the nest of the op behind each; -1: none.
    """
    order = nest.order
    return HostDetails(
        names=tuple(printable(name) for name in names),
        signatures={row: (printable(one[0]), one[1]) for row, one in enumerate(signatures)},
        ops=HostOps(
            starts_ns=ops["start_ns"][order],
            ends_ns=ops["end_ns"][order],
            tids=ops["tid"][order],
            name_ids=ops["name_id"][order],
            signature_ids=signature_ids,
            parents=nest.parents,
            sequences=ops["sequence"][order],
            backward=ops["forward_tid"][order] > 0,
        ),
        launches=Links(*launches),
        frames=PythonFrames(*(frames[key] for key in ("start_ns", "end_ns", "tid", "name_id"))),
        memory=_memory(memory, names),
    )


def _memory(table: Columns, names: list[str]) -> MemoryEvents:
    """Events of GPUs' allocators; those of the CPU and of running out are left out."""
    telling = np.fromiter((name == _MEMORY for name in names), np.bool_, len(names))
    rows = np.flatnonzero(telling[table["name_id"]] & (table["device_type"] == _CUDA))
    rows = rows[np.argsort(table["start_ns"][rows], kind="stable")]
    keys = ("start_ns", "tid", "memory_device", "address", "memory_bytes", "allocated", "reserved")
    return MemoryEvents(*(table[key][rows] for key in keys))
