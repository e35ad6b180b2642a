"""The run and its phases, as JSON and as lines of text. Computes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brrrtop.model.account import Split
from brrrtop.model.run import Phase, Run
from brrrtop.text import units

SHOWN = 0.005
"""Of the run: phases that take less are not listed in text."""
_WORDS = {"other": "between steps"}


def document(run: Run | None) -> dict[str, Any]:
    """`run` and `now` of the JSON report."""
    if run is None:
        return {"run": None, "now": None}
    witness, now = run.witness, run.now
    return {
        "run": {
            "duration_ns": run.duration_ns,
            "traced_ns": run.traced_ns,
            "steps": run.steps,
            "step_ms": _ms(run.step_ns),
            "samples_per_s": run.samples_per_s,
            "phases": [_phase(one) for one in run.phases],
            "witness": {
                "active_counter": witness.active_counter,
                "active_account": witness.active_account,
                "step_ms_marks": _ms(witness.step_ns_marks),
                "step_ms_traced": _ms(witness.step_ns_traced),
                "waits_ledger": witness.waits_ledger,
                "waits_account": witness.waits_account,
            },
        },
        "now": None
        if now is None
        else {
            "duration_ns": now.duration_ns,
            "split": _split(now.split),
            "phase": now.phase,
            "where": now.where,
            "step_ms": _ms(now.step_ns),
            "active": now.active,
        },
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "kind": phase.kind,
        "where": phase.where,
        "share": phase.share,
        "duration_ns": phase.duration_ns,
        "count": phase.count,
        "longest_ns": phase.longest_ns,
        "steps": phase.steps,
        "step_ms": _ms(phase.step_ns),
        "waits_for_data": phase.waits_share,
        "traced_steps": phase.traced_steps,
        "traced_ns": phase.traced_ns,
        "active": phase.active,
        "split": _split(phase.split),
    }


def _split(split: Split | None) -> dict[str, float] | None:
    if split is None:
        return None
    names = ("compute", "memory", "overhead", "unknown")
    return {name: getattr(split, name) for name in names}


def _ms(time_ns: float | None) -> float | None:
    return None if time_ns is None else time_ns / 1e6


def lines(run: Run) -> Iterator[str]:
    """A table of phases; nothing for a run of one phase that waits for nothing."""
    shown = [one for one in run.phases if one.share >= SHOWN]
    if len(shown) < 2 and not any((one.waits_share or 0) >= SHOWN for one in shown):
        return
    yield ""
    yield _row("Phases of the run", "share", "times", "steps", "waits for data", "GPU active")
    for one in shown:
        name = " ".join(filter(None, (_WORDS.get(one.kind, one.kind), one.where)))
        if len(name) > 29:
            name = name[:28] + "…"
        waits = units.share(one.waits_share) if one.waits_share else "–"
        active = units.share(one.active) if one.active is not None else "–"
        steps = units.count(one.steps) if one.steps else "–"
        yield _row(f"  {name}", units.share(one.share), str(one.count), steps, waits, active)


def _row(name: str, share: str, times: str, steps: str, waits: str, active: str) -> str:
    return f"{name:<31}{share:>5}{times:>7}{steps:>8}{waits:>16}{active:>12}"
