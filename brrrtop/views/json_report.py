"""A snapshot as JSON, schema `brrrtop.report/1`. Computes nothing.

The JSON's keys are a contract: fields may be added, none changes its meaning without a new
schema number. What nobody measured is `null`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from brrrtop.model.account import IDLE_CAUSES, Account
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.model.estimate import Estimate, KernelRow, Launch, Regime, Steps
from brrrtop.model.snapshot import Snapshot
from brrrtop.model.vocabulary import Metric
from brrrtop.views import comparison as compare_text
from brrrtop.views import ranks as ranks_view
from brrrtop.views import tables

SCHEMA = "brrrtop.report/1"
_EVENTS = 50
"""Newest lines of the log in a report."""
_NOT_OF_A_GPU = frozenset(
    {
        Metric.TRAINER_CPU_SHARE,
        Metric.MONITOR_CPU_SHARE,
        Metric.MONITOR_RSS_BYTES,
        Metric.STEP_COST_SHARE,
        Metric.STEP_COST_ERROR_SHARE,
    }
)
_OF_LOADER_WORKERS = {
    "count": Metric.LOADER_WORKERS,
    "cpu_share": Metric.LOADER_CPU_SHARE,
    "busy_share": Metric.LOADER_BUSY_SHARE,
    "disk_wait_share": Metric.LOADER_DISK_SHARE,
}
_ACCOUNT_KEYS = ("compute_ns", "memory_ns", "underfilled_ns", "exposed_comm_ns", "exposed_copy_ns")


def to_json(snapshot: Snapshot, indent: int | None = None) -> str:
    """One object as text; on one line unless `indent` is given."""
    return json.dumps(document(snapshot), indent=indent, allow_nan=False)


def document(snapshot: Snapshot) -> dict[str, Any]:
    """The whole report as plain data. Of several devices the top speaks of the one shown."""
    whole = _of_device(snapshot, snapshot.estimate, snapshot.advisories)
    source = snapshot.source
    whole["freshness"] = snapshot.freshness.value
    whole["now_ns"] = snapshot.now_ns
    whole["source"] |= {"label": source.label, "tier": source.tier, "world": source.world}
    whole["notes"] = list(source.notes)
    whole["gauges"] = {
        metric.name.lower(): _plain(snapshot.gauges.get(metric))
        for metric in Metric
        if metric not in _NOT_OF_A_GPU and metric not in _OF_LOADER_WORKERS.values()
    }
    whole["loader_workers"] = {
        key: _plain(snapshot.gauges.get(metric)) for key, metric in _OF_LOADER_WORKERS.items()
    }
    whole["whatif_after"] = _whatif_after(snapshot)
    estimate = snapshot.estimate
    whole["counter_samples"] = _samples(estimate)
    whole["looks"] = _looks(estimate)
    whole["host_cause_known"] = _plain(estimate.host_cause_known) if estimate else None
    whole["tables"] = _plain(tables.document(snapshot.tables)) if estimate else None
    whole["events"] = [
        {"t_ns": event.t_ns, "kind": event.kind, "says": event.says}
        for event in snapshot.events[-_EVENTS:]
    ]
    whole["silenced"] = [one.kind for one in snapshot.silenced]
    whole["overhead"] = {
        "step_cost_share": _plain(snapshot.overhead.step_cost_share),
        "step_cost_error_share": _plain(snapshot.overhead.step_cost_error_share),
    }
    if snapshot.baseline is not None:
        comparison = snapshot.comparison
        whole["baseline"] = snapshot.baseline.label
        whole["comparison"] = (
            None if comparison is None else _plain(compare_text.document(comparison))
        )
    if snapshot.job is not None:
        whole |= _plain(ranks_view.document(snapshot.job))
    if len(snapshot.devices) > 1:
        whole["devices"] = [
            _of_device(snapshot, one, snapshot.advisories if one is snapshot.estimate else None)
            for one in snapshot.devices
        ]
    return whole


def _of_device(
    snapshot: Snapshot, estimate: Estimate | None, advice: Sequence[Advisory] | None
) -> dict[str, Any]:
    """One device's report. `advice` None: this device was not asked about, so it is null."""
    account = estimate.account if estimate else None
    return {
        "schema": SCHEMA,
        "source": {
            "kind": snapshot.source.kind,
            "device": estimate.device.name if estimate else None,
            "device_id": estimate.device.device_id if estimate else None,
            "capability": _plain(_capability(estimate)),
            "capability_by_kernel_names": bool(estimate and estimate.capability_at_least),
            "pid": snapshot.source.pid,
            "rank": snapshot.source.rank,
        },
        "window": _window(estimate),
        "split": _split(estimate),
        "account": _account(account),
        "busy_ns": int(account.busy_ns) if account else None,
        "taken_ns": int(account.taken_ns) if account else None,
        "regime": (estimate.regime if estimate else Regime.UNKNOWN).value,
        "cause": estimate.cause if estimate else None,
        "confidence": _plain(estimate.confidence) if estimate else None,
        "launch": _launch(estimate.launch if estimate else Launch()),
        "kernels": [_kernel(row) for row in estimate.kernels] if estimate else [],
        "advisories": None if advice is None else [_advisory(one) for one in advice],
        "whatif": None if advice is None else [_whatif(row) for row in snapshot.whatif],
        "losses": {
            "records": snapshot.lost_records,
            "zero_timestamps": snapshot.zero_timestamps,
            "graph_nodes_ns": int(account.unrecorded_ns) if account else None,
        },
    }


def _capability(estimate: Estimate | None) -> tuple[int, int] | None:
    """Of the device; at least, where only its kernels' names tell it."""
    if estimate is None:
        return None
    return estimate.device.capability or estimate.capability_at_least


def _samples(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None or estimate.sampled is None:
        return None
    samples = estimate.sampled
    return {
        "count": samples.count,
        "interval_ns": samples.interval_ns,
        "placed": samples.placed,
        "error_ns": _plain(samples.error_ns),
        "kernel_share": _plain(estimate.evidence_shares.get("L3", 0.0)),
    }


def _looks(estimate: Estimate | None) -> dict[str, Any] | None:
    """What samples of the training thread say of the idle time that no probe explains."""
    if estimate is None or estimate.looks is None:
        return None
    samples = estimate.looks
    low, high = samples.io_bounds
    return {
        "count": samples.count,
        "span_ns": samples.span_ns,
        "within_window": samples.within,
        "io_share": _plain(samples.shares.get("io", 0.0)),
        "io_share_low": _plain(low),
        "io_share_high": _plain(high),
        "lines": [
            {
                "place": line.place,
                "source": line.source,
                "count": line.count,
                "reads_as": line.reads_as,
            }
            for line in samples.lines
        ],
    }


def _window(estimate: Estimate | None) -> dict[str, Any]:
    steps = estimate.steps if estimate else Steps()
    return {
        "duration_ns": int(estimate.account.duration_ns) if estimate else None,
        "steps": steps.count,
        "step_ms": None if steps.step_ns is None else steps.step_ns / 1e6,
        "steps_source": steps.source,
        "warming_up": steps.warming_up,
        "observed_share": _plain(estimate.observed_share) if estimate else None,
    }


def _split(estimate: Estimate | None) -> dict[str, Any]:
    names = ("compute", "memory", "overhead", "unknown")
    return {name: _plain(getattr(estimate.split, name)) if estimate else None for name in names}


def _account(account: Account | None) -> dict[str, Any]:
    if account is None:
        nothing: dict[str, Any] = dict.fromkeys((*_ACCOUNT_KEYS, "idle_ns", "unknown_ns"))
        return nothing | {"idle_ns": dict.fromkeys(IDLE_CAUSES)}
    booked: dict[str, Any] = {key: int(getattr(account, key)) for key in _ACCOUNT_KEYS}
    idle = {cause: int(account.idle_ns.get(cause, 0)) for cause in IDLE_CAUSES}
    return booked | {"idle_ns": idle, "unknown_ns": int(account.unknown_ns)}


def _launch(launch: Launch) -> dict[str, Any]:
    return {
        "lead_p50_ns": _plain(launch.lead_p50_ns),
        "share_under_10us": _plain(launch.share_under_10us),
        "rho": _plain(launch.rho),
        "count": int(launch.count),
    }


def _kernel(row: KernelRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "family": row.family,
        "side": row.side.value,
        "count": int(row.count),
        "total_ns": int(row.total_ns),
        "mean_ns": int(row.mean_ns),
        "share": _plain(row.share),
        "evidence": row.evidence,
        "confidence": _plain(row.confidence),
        "roof_share": _plain(row.roof_share),
        "roof_share_why": row.roof_share_why,
        "underfilled_share": _plain(row.underfilled_share),
        "flop_per_s": _plain(row.flop_per_s),
        "bytes_per_s": _plain(row.bytes_per_s),
        "precision": row.precision,
    }


def _advisory(advisory: Advisory) -> dict[str, Any]:
    return {
        "id": advisory.kind,
        "confidence": _plain(advisory.confidence),
        "saves_at_most": _plain(advisory.saves_at_most),
        "saves": _plain(advisory.saves),
        "saves_low": _plain(advisory.saves_low),
        "says": advisory.says,
        "evidence": _plain(advisory.evidence),
        "try": advisory.suggests,
        "waste": advisory.waste,
    }


def _whatif(row: WhatIf) -> dict[str, Any]:
    return {
        "edit": row.edit,
        "step_ms": _plain(row.step_ns / 1e6),
        "saves": _plain(row.saves),
        "saves_low": _plain(row.saves_low),
        "saves_high": _plain(row.saves_high),
        "advisory": row.advisory,
        "line": row.line,
        "kernels_now": _plain(row.now.kernels if row.now else None),
        "kernels_then": _plain(row.then.kernels if row.then else None),
        "device_ns_now": _plain(row.now.device_ns if row.now else None),
        "device_ns_then": _plain(row.then.device_ns if row.then else None),
        "host_ns_now": _plain(row.now.host_ns if row.now else None),
        "host_ns_then": _plain(row.then.host_ns if row.then else None),
    }


def _whatif_after(snapshot: Snapshot) -> dict[str, Any] | None:
    """What is best after the best edit; null where no edit wins. Prices are of both together."""
    if not snapshot.whatif_after:
        return None
    rows = [_whatif(row) for row in snapshot.whatif_after]
    return {"first": snapshot.whatif[0].edit, "rows": rows}


def _plain(value: Any) -> Any:
    """Numpy scalars, tuples, mappings and rows as what JSON knows; a float that is no number is null."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Struct):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return _plain(value.tolist()) if hasattr(value, "tolist") else str(value)
