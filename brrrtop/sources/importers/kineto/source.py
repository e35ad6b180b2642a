"""A Kineto or Chrome trace of torch.profiler as a `Source`."""

import contextlib
from pathlib import Path
from typing import Any

from brrrtop.errors import BadInput
from brrrtop.sources.importers.kineto.scanned import Scanned
from brrrtop.sources.importers.kineto.scanner_library import scanner_library
from brrrtop.sources.importers.trace import columns, names, reader
from brrrtop.sources.importers.trace.columns import CALL, OP, OVERHEAD, RANGE, Collected, Torn
from brrrtop.sources.importers.trace.source import TraceSource
from brrrtop.sources.source import malloc_trim
from collectors.protocol import bodies
from collectors.protocol.frames import Frame
from collectors.vocabulary import CallClass

_DEEPEST = 8
_DEVICE_FIELDS = {
    "name": "name",
    "numSms": "sm_count",
    "totalGlobalMem": "memory_bytes",
    "maxThreadsPerMultiprocessor": "max_threads_per_sm",
    "regsPerMultiprocessor": "registers_per_sm",
    "sharedMemPerMultiprocessor": "shared_bytes_per_sm",
    "maxSharedMemoryPerMultiProcessor": "shared_bytes_per_sm",
}
_OTHER_ACCELERATORS = {
    "mtia_": "Meta's MTIA",
    "xpu_": "an Intel GPU (XPU)",
    "hpu_": "Intel's Gaudi (HPU)",
    "privateuse1_": "an accelerator with a PyTorch backend of its own",
}
"""By the categories that Kineto gives their events (libkineto's ActivityType)."""
_PROFILED = (OP, RANGE, CALL, OVERHEAD)
_HOW_TO_RECORD = "record it with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"


class KinetoSource(TraceSource):
    kind = "kineto"

    def _read(self) -> list[Frame]:
        collected, facts, notes = read(self._path, self._force)
        _refuse_without_gpu_work(self._path.name, collected)
        malloc_trim()
        amd = names.is_rocm(facts, collected.names)
        if amd:
            notes.append(names.ROCM_NOTE)
        distributed = facts.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        hello = {
            "rank": _int(distributed.get("rank")),
            "world": _int(distributed.get("world_size")),
            "notes": notes,
        }
        base_ns = _int(facts.get("baseTimeNanoseconds")) or 0
        return self._framed(collected, base_ns, hello, lambda ids: _devices(facts, ids, amd))


def read(path: Path, force: bool = False) -> tuple[Collected, dict[str, Any], list[str]]:
    """Reads a trace of torch.profiler.

    Returns:
        Its columns, everything around `traceEvents`, and notes on what is missing.

    Raises:
        BadInput: Not a trace, or one that is too large without `force`.
    """
    collected, label = Collected(), path.name
    library = scanner_library()
    scanned = Scanned(library, collected) if library is not None else None
    events = reader.Events(lambda run: take(collected, run), lambda: collected.event_count)
    with reader.open_runs(path, force) as (runs, inflater):
        try:
            runs.start()
            facts = {} if runs.bare else columns.decode_object(runs.head + b"]}")
        except Torn:
            if _is_inside(runs.head):
                raise BadInput(
                    f"{label} holds its trace inside another object",
                    "save the object that has traceEvents as a file of its own",
                ) from None
            raise BadInput(
                f"{label} is not JSON before its traceEvents", "export the trace again"
            ) from None
        except BadInput as fault:
            if inflater.fault:
                raise BadInput(
                    f"{label}: {inflater.fault}, before any event", "copy it again"
                ) from fault
            raise
        facts.pop("traceEvents", None)
        facts.update(events.read(runs, inflater))
    if scanned is not None:
        scanned.finish()
    collected.broken_off, notes = events.are_torn, events.notes
    if not collected.event_count:
        if notes:
            raise BadInput(f"{label} breaks off before its first whole event", "record it again")
        raise BadInput(f"{label} has no events", _HOW_TO_RECORD)
    return collected, facts, notes


def _is_inside(head: bytes) -> bool:
    """Whether the text before the events opens more than one object, and is sound."""
    for depth in range(1, _DEEPEST):
        with contextlib.suppress(Torn):
            columns.decode_object(head + b"]}" + b"}" * depth)
            return True
    return False


def take(collected: Collected, run: bytes) -> None:
    if collected.scan is not None and collected.scan(run):
        return
    events, odd = columns.decode_run(run)
    collected.add(events)
    collected.lose("not understood", odd)


def _refuse_without_gpu_work(label: str, collected: Collected) -> None:
    for prefix, maker in _OTHER_ACCELERATORS.items():
        if any(category.startswith(prefix) for category in collected.categories):
            raise BadInput(
                f"{label} is from {maker}, which brrrtop does not support",
                "give a trace of an NVIDIA or AMD GPU",
            )
    if not collected.has_gpu_work:
        if collected.broken_off:
            raise BadInput(
                f"{label} breaks off before its first GPU activity", "copy or record it again"
            )
        if not any(collected.tables[code] for code in _PROFILED) and not collected.losses:
            raise BadInput(
                f"{label} has {collected.event_count:,} events, but none that torch.profiler writes "
                "(browsers and other programs write such traces too)",
                reader.HOW_TO_TRACE,
            )
        launching = {CallClass.LAUNCH, CallClass.GRAPH_LAUNCH}
        if not launching.isdisjoint(map(names.call_class, collected.names)):
            api = "HIP" if names.is_rocm({}, collected.names) else "CUDA"
            raise BadInput(
                f"{label} has {api} launches and no GPU activity: what ran on the GPU was not recorded",
                "record it again with ProfilerActivity.CUDA, no other profiler at work (Nsight, DCGM), "
                "and the loop inside the profiled part until torch.cuda.synchronize()",
            )
        raise BadInput(f"{label} has no GPU activity in it", _HOW_TO_RECORD)


def _int(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62
    return value if good else None


def _devices(facts: dict[str, Any], active: list[int], amd: bool) -> list[dict[str, Any]]:
    properties = facts.get("deviceProperties")
    known = {
        p.get("id"): p
        for p in (properties if isinstance(properties, list) else [])
        if isinstance(p, dict) and isinstance(p.get("id"), int)
    }
    if amd:
        known = names.by_node(known, active)
    devices = []
    for device_id in active:
        properties = known.get(device_id, {})
        device: dict[str, Any] = {"device_id": device_id}
        for theirs, ours in _DEVICE_FIELDS.items():
            if properties.get(theirs) is not None:
                device[ours] = properties[theirs]
        if not amd:
            device["capability"] = [properties.get("computeMajor"), properties.get("computeMinor")]
        devices.append(bodies.plausible_device(device))
    return devices
