"""A trace as a recording, with where it is from, and the counters sampled beside the same run."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from brrrtop.errors import BadInput
from brrrtop.model.vocabulary import Metric
from brrrtop.protocol.frames import GAUGE, Frame, Kind
from brrrtop.sources.recording import RecordingWriter
from brrrtop.sources.source import Source

GPM_CADENCE_NS = 250_000_000
_MIB = float(1 << 20)
_GPM: dict[str, tuple[Metric, float]] = {
    "graphics_util": (Metric.GRAPHICS_ACTIVE, 0.01),
    "sm_util": (Metric.SM_ACTIVE, 0.01),
    "sm_occupancy": (Metric.SM_OCCUPANCY, 0.01),
    "any_tensor_util": (Metric.TENSOR_ACTIVE, 0.01),
    "dram_bw_util": (Metric.DRAM_ACTIVE, 0.01),
    "fp64_util": (Metric.FP64_ACTIVE, 0.01),
    "fp32_util": (Metric.FP32_ACTIVE, 0.01),
    "fp16_util": (Metric.FP16_ACTIVE, 0.01),
    "pcie_tx_mib_s": (Metric.PCIE_TX_BYTES_PER_S, _MIB),
    "pcie_rx_mib_s": (Metric.PCIE_RX_BYTES_PER_S, _MIB),
}
_SMI: dict[str, tuple[Metric, float]] = {
    "power_w": (Metric.POWER_WATT, 1.0),
    "sm_mhz": (Metric.SM_CLOCK_HZ, 1e6),
}
_BESIDE = (
    "sampled every 250 ms while the same loop ran without the profiler, before the traced steps;"
    " shown before them at that cadence, and no part of any window's evidence"
)


def convert(
    source: Source,
    path: str | Path,
    provenance: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    level: int = 19,
) -> None:
    """Writes every frame of a finished source to a new recording.

    Args:
        source: Read from where it stands to its end.
        path: Must not exist.
        provenance: Facts about the run; `converted_from` and `date` are filled in when absent.
        meta: What the trace's script measured beside it (`nvml.gpm_windows`, `nvml.nvidia_smi`).
        level: Of zstd.

    Raises:
        UsageError: `path` exists.
        BrrrtopError: The source or the file fails.
    """
    frames = list(source.frames())
    first_ns = min((f.sent_ns for f in frames if f.sent_ns), default=0)
    readings = _readings(meta or {}, first_ns)
    facts: dict[str, Any] = {
        "converted_from": f"{source.info.label} ({source.info.kind})",
        "date": _date(first_ns),
        **_said(meta or {}, frames),
        **(provenance or {}),
    }
    if len(readings):
        facts["gauges"] = _BESIDE
    early_ns = int(readings["time_ns"].min()) if len(readings) else first_ns
    with RecordingWriter(path, facts, level) as writer:
        for frame in frames:
            lead = frame.kind in (Kind.HELLO, Kind.DEVICE) and frame.sent_ns == first_ns
            if not lead and len(readings):
                _write_gauges(writer, readings)
                readings = readings[:0]
            writer.write(
                Frame(frame.kind, frame.body, early_ns if lead else frame.sent_ns, frame.flags)
            )


def read_meta(path: str | Path) -> dict[str, Any]:
    """The measurements beside a trace.

    Raises:
        BadInput: Missing or no JSON object.
    """
    try:
        found = msgspec.json.decode(Path(path).read_bytes())
    except OSError as fault:
        raise BadInput(f"{path} cannot be read: {fault.strerror}", "check the path") from fault
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        raise BadInput(
            f"{path} is not JSON: {fault}", "give the .meta.json of the trace"
        ) from fault
    if not isinstance(found, dict):
        raise BadInput(f"{path} holds no object", "give the .meta.json of the trace")
    return found


def _write_gauges(writer: RecordingWriter, readings: npt.NDArray[np.void]) -> None:
    for time_ns in np.unique(readings["time_ns"]).tolist():
        rows = readings[readings["time_ns"] == time_ns]
        writer.write(Frame(Kind.GAUGES, rows, time_ns))


def _readings(meta: Mapping[str, Any], first_ns: int) -> npt.NDArray[np.void]:
    """Gauge rows that end one cadence before `first_ns`."""
    nvml = meta.get("nvml") or {}
    windows = nvml.get("gpm_windows") or []
    smi = nvml.get("nvidia_smi") or {}
    utils = smi.get("gpu_util_samples") or []
    count = max(len(windows), len(utils))
    rows: list[tuple[int, float, int, int]] = []
    for index in range(count):
        time_ns = first_ns - (count - index) * GPM_CADENCE_NS
        if index < len(windows):
            rows += [
                (time_ns, windows[index][key] * scale, 0, int(metric))
                for key, (metric, scale) in _GPM.items()
                if isinstance(windows[index].get(key), (int, float))
            ]
        if index < len(utils):
            rows.append((time_ns, utils[index] / 100.0, 0, int(Metric.SMI_UTIL)))
    if count:
        last_ns = first_ns - GPM_CADENCE_NS
        rows += [
            (last_ns, smi[key] * scale, 0, int(metric))
            for key, (metric, scale) in _SMI.items()
            if isinstance(smi.get(key), (int, float))
        ]
    return np.array(rows, GAUGE)


def _said(meta: Mapping[str, Any], frames: list[Frame]) -> dict[str, Any]:
    facts = {
        ours: meta[theirs]
        for theirs, ours in (("torch", "torch"), ("python", "python"), ("device", "device"))
        if isinstance(meta.get(theirs), str)
    }
    names = [f.body.get("name") for f in frames if f.kind == Kind.DEVICE]
    if "device" not in facts and names and names[0]:
        facts["device"] = names[0]
    return facts


def _date(time_ns: int) -> str | None:
    """The day of a time since 1970; None for clocks that count from elsewhere."""
    if time_ns < 10**18:
        return None
    return (
        datetime.datetime.fromtimestamp(time_ns // 10**9, datetime.timezone.utc).date().isoformat()
    )
