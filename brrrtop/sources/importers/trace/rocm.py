"""What is different in a trace of an AMD GPU: libkineto writes it from roctracer or rocprofiler.

The file is Kineto's. Calls are named after HIP's, activities carry the number of their HSA node and
not that of `deviceProperties`, copies say `Host` for pageable and pinned memory alike, and
`computeMajor` is that of a gfx name (9 of gfx942), no compute capability. The grid is as the call got
it: of `hipExtModuleLaunchKernel`, which rocBLAS and MIOpen use, in threads (HIP's hip_ext.h).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

NOTE = (
    "An AMD GPU: sides come from names, shapes and AMD's data sheets, and gains are simulated as on "
    "NVIDIA's; neither was checked against an AMD GPU's counters."
)
UNNAMED = "AMD GPU of unknown model"
"""Some builds write an empty name."""
_PARTS = {(304, 192): "MI300X", (304, 256): "MI325X", (228, 128): "MI300A"}
"""By compute units and GiB, from AMD's data sheets."""
_IN_THREADS = ("hipExtModuleLaunchKernel", "hipHccModuleLaunchKernel")
_KEYS = ("roctracer_version", "rocprofiler_version", "hip_runtime_version", "hip_driver_version")


def is_rocm(facts: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether the trace is of an AMD GPU, by what stands around its events or by its calls."""
    if any(key in facts for key in _KEYS):
        return True
    properties = facts.get("deviceProperties")
    for one in properties if isinstance(properties, list) else []:
        if isinstance(one, dict) and str(one.get("name", "")).startswith("AMD"):
            return True
    return any(name.startswith("hip") for name in names)


def by_node(
    properties: Mapping[Any, dict[str, Any]], nodes: list[int]
) -> dict[Any, dict[str, Any]]:
    """The properties by the numbers that activities carry, which count a host's CPUs too.

    Where all GPUs are alike, or there is one, it does not matter which is meant. Otherwise a number
    means the GPU of that id only where all numbers are ids; of others only the maker is known.
    """
    alike = {
        repr(sorted((k, str(v)) for k, v in p.items() if k != "id")) for p in properties.values()
    }
    known: dict[Any, dict[str, Any]] = {}
    if len(alike) == 1:
        known = dict.fromkeys(nodes, next(iter(properties.values())))
    elif set(nodes) <= set(properties):
        known = dict(properties)
    return {node: {**known.get(node, {}), "name": _name_of(known.get(node, {}))} for node in nodes}


def _name_of(properties: Mapping[str, Any]) -> str:
    """As the trace has it; where it is empty by compute units and memory, which one part alone has."""
    name = properties.get("name")
    if name:
        return str(name)
    memory = properties.get("totalGlobalMem")
    size = memory / (1 << 30) if isinstance(memory, int) else 0.0
    for (units, gib), part in _PARTS.items():
        if properties.get("numSms") == units and abs(size - gib) < 0.05 * gib:
            return f"AMD Instinct {part}"
    return UNNAMED


def grids_in_blocks(
    kernels: Mapping[str, npt.NDArray[Any]],
    calls: Mapping[str, npt.NDArray[Any]],
    names: Sequence[str],
) -> None:
    """Makes blocks of the grids that were written in threads, in place."""
    wanted = [row for row, name in enumerate(names) if name in _IN_THREADS]
    if not wanted:
        return
    ids = calls["correlation"][np.isin(calls["name_id"], wanted)]
    rows = np.isin(kernels["correlation"], ids[ids != 0])
    blocks = np.maximum(kernels["block"][rows], 1)
    kernels["grid"][rows] = -(-kernels["grid"][rows] // blocks)
