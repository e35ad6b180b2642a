"""Which advice a change may be credited to: whose edit shows in the kernels, or whose bucket shrank, in the
same program on the same kind of GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from brrrtop.model.advice import Advisory
from brrrtop.model.comparison import Change, PromiseResult
from brrrtop.model.estimate import Estimate, KernelRow
from brrrtop.whatif.price import EDITS

MOVED = 0.5
"""A bucket that lost half of its time, or more, has been worked on."""
ALIKE = 2.5
"""One program launches as many products and convolutions a step before and after an edit, within this ratio:
a library may split one in two."""
PRODUCTS = 0.1
"""Of the kernel time: convolutions, or products, that are a part of the model and not an accident."""
OTHER_GPU = "the GPUs differ: what was advised on one is not credited with the other's speed"
OTHER_PROGRAM = (
    "these are two programs: their products differ, so that nothing is credited to advice"
)
_EDITS_OF = {
    "compile": ("compile", "compile-reduce-overhead"),
    "attention": ("sdpa",),
    "optimizer": ("fused-optimizer",),
    "layout": ("channels-last",),
    "batch": ("double-batch",),
}
"""Edits by the dimension in which they change the kernels; a precision is an edit by its own name."""
_BUCKETS_OF = {
    "gc-pause": ("idle: gc",),
    "checkpoint-stall": ("idle: checkpoint",),
    "logging-stall": ("idle: logging",),
    "evaluation-idle": ("idle: evaluation",),
    "allocator-retries": ("idle: allocator",),
    "allocation-churn": ("idle: allocator",),
    "recompilation": ("idle: compile",),
    "host-stall": ("idle: host", "idle: io"),
    "python-overhead": ("idle: host", "idle: launch"),
    "readback-traffic": ("exposed copy", "idle: sync"),
    "dataloader-stall": ("idle: input",),
    "sync-point": ("idle: sync",),
    "tiny-collectives": ("exposed comm",),
    "straggler": ("exposed comm",),
}
"""What advice without a simulated edit is about, as in `Comparison.buckets`."""


def credited(
    promised: Iterable[Advisory],
    differences: Sequence[str],
    buckets: Sequence[Change],
    kernels: Sequence[Change],
    won: float | None,
    noise: float,
) -> tuple[PromiseResult, ...]:
    """What came of each piece of advice that was followed; with several at once each has the whole gain, and
    the comparison says that they were several.

    Args:
        differences: Dimensions in which the kernels differ, as the keys of `_EDITS_OF`; the new precision.
        won: Share of the step that the whole change won.
    """
    edits = {edit for one in differences for edit in _EDITS_OF.get(one, (one,))}
    shrank = {one.name for one in (*buckets, *kernels) if one.after_ns <= MOVED * one.before_ns}
    return tuple(
        PromiseResult(
            one.kind, one.saves_at_most if one.saves is None else one.saves, won,
            one.saves is not None, noise,
        )
        for one in promised
        if one.evidence.get("edit") in edits or shrank & set(_about(one))
    )  # fmt: skip


def _about(advisory: Advisory) -> tuple[str, ...]:
    """Buckets that it is there to empty, and the kernel that it names."""
    edit, kernel = EDITS.get(advisory.evidence.get("edit", "")), advisory.evidence.get("kernel")
    # Launches get fewer by many edits: compiling and capturing show in the kernels.
    empties = () if edit is None else tuple(one for one in edit.empties if one != "idle_launch")
    named = (one.replace("exposed_", "exposed ").replace("idle_", "idle: ", 1) for one in empties)
    return (*named, *_BUCKETS_OF.get(advisory.kind, ()), *((kernel,) if kernel else ()))


def why_not(before: Estimate, after: Estimate, steps: Sequence[float | None]) -> str | None:
    """Why nothing is credited: another GPU, another program; None: these are two runs of one."""
    names = before.device.name, after.device.name
    if None not in names and names[0] != names[1]:
        return OTHER_GPU
    old, new = _contractions(before.kernels, steps[0]), _contractions(after.kernels, steps[1])
    for family in old.keys() | new.keys():
        shares = [_share(one.kernels, family) for one in (before, after)]
        if min(shares) == 0 and max(shares) >= PRODUCTS and "attention" not in family:
            return OTHER_PROGRAM
    counts = sum(old.values()), sum(new.values())
    if min(counts) and max(counts) > ALIKE * min(counts) and None not in steps:
        return OTHER_PROGRAM
    return None


def _contractions(rows: Iterable[KernelRow], steps: float | None) -> Counter[str]:
    """Products and convolutions, a step where steps are known; attention, written out or fused, left out."""
    counts: Counter[str] = Counter()
    for row in rows:
        kind = row.family.partition("_")[0].partition("-")[0]
        if kind in ("gemm", "conv"):
            counts[kind] += round(row.count / (steps or 1))
    return counts


def _share(rows: Sequence[KernelRow], kind: str) -> float:
    total = sum(row.total_ns for row in rows)
    mine = sum(row.total_ns for row in rows if row.family.startswith(kind))
    return mine / total if total else 0.0
