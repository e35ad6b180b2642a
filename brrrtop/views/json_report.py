"""A snapshot as JSON, schema `brrrtop.report/2`. Computes nothing.

The JSON's keys are a contract: fields may be added, none changes its meaning without a new
schema number. What nobody measured is `null`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from brrrtop.model.account import IDLE_CAUSES
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.model.estimate import Estimate, Launch, Regime, Steps
from brrrtop.model.ranks import JobSnapshot, RankRow
from brrrtop.model.run import Phase, Run
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import causes
from brrrtop.views import comparison as compare_text
from brrrtop.views import host_tables
from collectors.printable import printable_data
from collectors.vocabulary import Metric

SCHEMA = "brrrtop.report/2"
_EVENTS = 50
"""Newest lines of the log in a report."""
_NOT_OF_A_GPU = {
    Metric.TRAINER_CPU_SHARE, Metric.TRAINER_CORES, Metric.MONITOR_CPU_SHARE, Metric.MONITOR_RSS_BYTES,
    Metric.STEP_COST_SHARE, Metric.STEP_COST_ERROR_SHARE,
}  # fmt: skip
_OF_LOADER_WORKERS = {
    "count": Metric.LOADER_WORKERS,
    "cpu_share": Metric.LOADER_CPU_SHARE,
    "busy_share": Metric.LOADER_BUSY_SHARE,
    "disk_wait_share": Metric.LOADER_DISK_SHARE,
}
_OF_RANKS = {
    "memory_used_bytes": Metric.MEMORY_USED_BYTES,
    "power_watt": Metric.POWER_WATT,
    "temperature_c": Metric.TEMPERATURE_C,
}
_SPLIT = "compute memory overhead unknown"
_KERNEL = (
    "name family side count total_ns mean_ns share evidence confidence roof_share roof_share_why "
    "underfilled_share flop_per_s bytes_per_s precision"
)


def to_json(snapshot: Snapshot, indent: int | None = None) -> str:
    return json.dumps(document(snapshot), indent=indent, allow_nan=False)


def document(snapshot: Snapshot) -> dict[str, Any]:
    """The whole report as plain data. Of several devices the top speaks of the one shown."""
    estimate, source, gauges = snapshot.estimate, snapshot.source, snapshot.gauges
    whole = _of_device(snapshot, estimate, snapshot.advisories)
    whole["freshness"] = snapshot.freshness
    whole["now_ns"] = snapshot.now_ns
    whole["source"] |= pick(source, "label tier world")
    whole |= _run(snapshot.run)
    whole["notes"] = source.notes
    whole["gauges"] = {
        metric.name.lower(): gauges.get(metric)
        for metric in Metric
        if metric not in _NOT_OF_A_GPU and metric not in _OF_LOADER_WORKERS.values()
    }
    whole["loader_workers"] = {key: gauges.get(one) for key, one in _OF_LOADER_WORKERS.items()}
    whole["whatif_after"] = _whatif_after(snapshot)
    whole["counter_samples"] = _samples(estimate)
    whole["looks"] = _looks(estimate)
    whole["host_cause_known"] = estimate.host_cause_known if estimate else None
    whole["tables"] = host_tables.document(snapshot.tables) if estimate else None
    whole["events"] = [pick(event, "t_ns kind says") for event in snapshot.events[-_EVENTS:]]
    whole["silenced"] = [one.kind for one in snapshot.silenced]
    whole["overhead"] = pick(snapshot.overhead, "step_cost_share step_cost_error_share")
    if snapshot.baseline is not None:
        comparison = snapshot.comparison
        whole["baseline"] = snapshot.baseline.label
        whole["comparison"] = None if comparison is None else compare_text.document(comparison)
    if snapshot.job is not None:
        whole |= _of_job(snapshot.job)
    if len(snapshot.devices) > 1:
        whole["devices"] = [
            _of_device(snapshot, one, snapshot.advisories if one is estimate else None)
            for one in snapshot.devices
        ]
    return plain(whole)


def pick(row: object | None, names: str) -> dict[str, Any]:
    """Fields of a row by their names; null, all of them, where there is no row."""
    return {name: None if row is None else getattr(row, name) for name in names.split()}


def _of_device(
    snapshot: Snapshot, estimate: Estimate | None, advice: Sequence[Advisory] | None
) -> dict[str, Any]:
    account = estimate.account if estimate else None
    steps = estimate.steps if estimate else Steps()
    unseen = snapshot.run.unseen if snapshot.run and not estimate else None
    return {
        "schema": SCHEMA,
        "source": {
            "kind": snapshot.source.kind,
            "device": estimate.device.name if estimate else None,
            "device_id": estimate.device.device_id if estimate else None,
            "capability": estimate and (estimate.device.capability or estimate.capability_at_least),
            "capability_by_kernel_names": bool(estimate and estimate.capability_at_least),
            **pick(snapshot.source, "pid rank"),
        },
        "window": {
            "duration_ns": estimate.traced_duration_ns if estimate else None,
            "steps": steps.count,
            "step_ms": None if steps.step_ns is None else steps.step_ns / 1e6,
            "steps_source": steps.source,
            "warming_up": steps.warming_up,
            **pick(estimate, "observed_share"),
            "left_out": [
                {"duration_ns": one.span.duration_ns, **pick(one, "what cause step place")}
                for one in snapshot.left_out
            ],
        },
        "split": pick(estimate.split if estimate else None, _SPLIT),
        "account": {
            **pick(account, "compute_ns memory_ns underfilled_ns exposed_comm_ns exposed_copy_ns"),
            "idle_ns": {
                cause: account.idle_ns.get(cause, 0) if account else None for cause in IDLE_CAUSES
            },
            **pick(account, "unknown_ns"),
        },
        **pick(account, "busy_ns"),
        "regime": estimate.regime if estimate else Regime.OVERHEAD if unseen else Regime.UNKNOWN,
        **pick(estimate or unseen, "cause confidence"),
        "launch": pick(
            estimate.launch if estimate else Launch(), "lead_p50_ns share_under_10us rho count"
        ),
        "kernels": [pick(row, _KERNEL) for row in estimate.kernels] if estimate else [],
        "advisories": None if advice is None else [_advisory(one) for one in advice],
        "whatif": None if advice is None else [_whatif(row) for row in snapshot.whatif],
        "losses": {
            "records": snapshot.lost_records,
            "zero_timestamps": snapshot.zero_timestamps,
            "graph_nodes_ns": account.unrecorded_ns if account else None,
        },
    }


def _run(run: Run | None) -> dict[str, Any]:
    if run is None:
        return {"run": None, "now": None}
    witness, now = run.witness, run.now
    return {
        "run": {
            **pick(run, "duration_ns traced_ns steps"),
            **_in_ms(run, "step"),
            **pick(run, "samples_per_s"),
            "phases": [_phase(one) for one in run.phases],
            "witness": {
                **pick(witness, "active_counter active_account"),
                "step_ms_marks": _ms(witness.step_ns_marks),
                "step_ms_traced": _ms(witness.step_ns_traced),
                **pick(witness, "waits_ledger waits_account"),
            },
        },
        "now": now
        and {
            **pick(now, "duration_ns"),
            "split": pick(now.split, _SPLIT),
            **pick(now, "phase where"),
            **_in_ms(now, "step"),
            **pick(now, "active"),
        },
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        **pick(phase, "kind where share duration_ns count longest_ns steps"),
        **_in_ms(phase, "step"),
        "waits_for_data": phase.waits_share,
        "waits_for_data_most": max(phase.waits_most_ns, phase.waits_ns) / max(1, phase.duration_ns),
        **pick(phase, "traced_steps traced_ns active"),
        "split": phase.split and pick(phase.split, _SPLIT),
    }


def _ms(time_ns: float | None) -> float | None:
    return None if time_ns is None else time_ns / 1e6


def _samples(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None or estimate.sampled is None:
        return None
    share = estimate.evidence_shares.get("L3", 0.0)
    return pick(estimate.sampled, "count interval_ns placed error_ns") | {"kernel_share": share}


def _looks(estimate: Estimate | None) -> dict[str, Any] | None:
    """What samples of the training thread say of the idle time that no probe explains."""
    if estimate is None or estimate.stack_samples is None:
        return None
    samples = estimate.stack_samples
    low, high = samples.io_bounds
    return {
        "count": samples.count,
        "span_ns": samples.span_ns,
        "within_window": samples.within,
        "io_share": samples.shares.get("io", 0.0),
        "io_share_low": low,
        "io_share_high": high,
        "lines": [pick(line, "place source count reads_as") for line in samples.lines],
    }


def _advisory(advisory: Advisory) -> dict[str, Any]:
    return {
        "id": advisory.kind,
        **pick(advisory, "confidence saves_at_most saves saves_low tried says evidence"),
        "try": advisory.suggests,
        "waste": advisory.waste,
    }


def _whatif(row: WhatIf) -> dict[str, Any]:
    works = (("now", row.now), ("then", row.then))
    quiet = row.unprofiled
    return {
        "edit": row.edit,
        "step_ms": (quiet or row).step_ns / 1e6,
        "saves": (quiet or row).saves,
        **pick(row, "saves_low saves_high advisory line risk"),
        "saves_recorded": row.saves if quiet is not None else None,
        "saves_of_step": (quiet or row).saves if row.saves_of_step is None else row.saves_of_step,
        **{
            f"{name}_{when}": work and getattr(work, name)
            for name in ("kernels", "device_ns", "host_ns")
            for when, work in works
        },
    }


def _whatif_after(snapshot: Snapshot) -> dict[str, Any] | None:
    """What is best after the best edit; null where no edit wins. Prices are of both together."""
    if not snapshot.whatif_after:
        return None
    rows = [_whatif(row) for row in snapshot.whatif_after]
    return {"first": rows[0]["edit"].partition("+")[0], "rows": rows}


def _of_job(job: JobSnapshot) -> dict[str, Any]:
    waited, message = job.waited_for, causes.sentence(job)
    return {
        "ranks": [_rank(row) for row in job.ranks],
        "peers_waited_for": None
        if waited is None
        else {
            "rank": waited.rank,
            "late_by_ms": waited.late_ns / 1e6,
            "others_wait_ms": waited.others_wait_ns / 1e6,
            **pick(waited, "cause place"),
            "slow": waited.is_slow,
            **pick(waited, "per_step last_in"),
            "collectives": waited.of,
            "says": message,
        },
        "collectives": [
            pick(row, "name algorithm ranks count size_bytes")
            | _in_ms(row, "transfer wait")
            | pick(row, "bus_bytes_per_s link_share")
            for row in job.collectives
        ],
        "job": {
            **pick(job, "world missing"),
            "says": message,
            **pick(job, "parallelism bubble"),
            "collectives": job.matched,
            **_in_ms(job, "transfer together"),
            **pick(job, "steps bursts notes"),
        },
    }


def _rank(row: RankRow) -> dict[str, Any]:
    estimate = row.estimate
    return {
        **pick(row, "rank pid"),
        "device_id": estimate.device.device_id if estimate else None,
        **_in_ms(row, "step"),
        "split": pick(estimate.split if estimate else None, _SPLIT),
        "waits_for_peers": row.waits_for_peers,
        "late_by_ms": None if row.late_ns is None else row.late_ns / 1e6,
        **pick(row, "label why"),
        **pick(estimate, "regime cause"),
        "late_because": row.cause,
        "collectives": row.matched,
        "last_in": row.last_in,
        "in_collectives_ms": None if row.collective_ns is None else row.collective_ns / 1e6,
        **_in_ms(row, "transfer wait exposed_wait"),
        "waits_for": {str(rank): ns / 1e6 for rank, ns in sorted(row.waits_for.items())},
        **_in_ms(row, "carried_in"),
        "grown_ms": {bucket: ns / 1e6 for bucket, ns in row.excess_by_cause_ns.items()},
        "clock_offset_ns": row.clock_offset_ns,
        **{key: row.gauges.get(metric) for key, metric in _OF_RANKS.items()},
    }


def _in_ms(row: object, names: str) -> dict[str, float | None]:
    times = {name: getattr(row, f"{name}_ns") for name in names.split()}
    return {f"{name}_ms": None if ns is None else ns / 1e6 for name, ns in times.items()}


def plain(whole: dict[str, Any]) -> dict[str, Any]:
    """Rows, enums and Numpy's scalars as what JSON knows; a float that is no number is null."""
    try:
        text = msgspec.json.encode(whole, enc_hook=_unknown)
    except UnicodeEncodeError:  # a name with half a character in it
        data = msgspec.to_builtins(whole, enc_hook=_unknown, str_keys=True)
        text = msgspec.json.encode(printable_data(data))
    decoded: dict[str, Any] = msgspec.json.decode(text)
    return decoded


def _unknown(value: Any) -> Any:
    """What msgspec does not know: Numpy's values, and mappings that are no dicts."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)
