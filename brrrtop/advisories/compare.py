"""Before and after: what a change won, per step, by bucket and by kernel, beside what was promised.

Pure functions of two estimates; the command line and the screen show what comes back. Per step
where both sides know their steps, else as shares of the wall, which cannot say how much faster.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.account.account import add
from brrrtop.kernel_names.readable import function_name
from brrrtop.model.account import Account
from brrrtop.model.advice import (
    NOISE,
    Advisory,
    Change,
    Comparison,
    Outcome,
    PromiseResult,
    outcome,
)
from brrrtop.model.estimate import Estimate, KernelRow, Steps
from brrrtop.model.run import Phase, PhaseKind
from brrrtop.text import phrases, units
from brrrtop.whatif.price import EDITS

LEAST_SPANS = 3
"""Of fewer steps nobody knows how they scatter."""
_Z = 1.96
"""Of the normal distribution, for 95 %."""
GONE = 0.25
"""Families whose time fell below this part of what it was count as replaced."""
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
    "allocator-retries": ("idle: allocator",),
    "allocation-churn": ("idle: allocator",),
    "recompilation": ("idle: compile",),
    "host-stall": ("idle: host", "idle: io"),
    "python-overhead": ("idle: host", "idle: launch"),
    "readback-traffic": ("exposed copy", "idle: sync"),
    "dataloader-stall": ("idle: input",),
    "sync-point": ("idle: sync",),
    "straggler": ("exposed comm",),
}
"""What advice without a simulated edit is about, as in `Comparison.buckets`."""


def compare(before: Estimate, after: Estimate, promised: Iterable[Advisory] = ()) -> Comparison:
    """What changed from `before` to `after`.

    Args:
        before: The baseline.
        after: After a change; another process, batch or GPU may lie between.
        promised: Advice that was given for the baseline.
    """
    steps = (_steps(before), _steps(after))
    loop = _loop_of_both(before, after)
    (old, of_old), (new, of_new) = (_account(one, loop) for one in (before, after))
    of_accounts = of_old, of_new
    per_step = None not in steps + of_accounts
    lengths = old.duration_ns, new.duration_ns
    scales = _scales(lengths, of_accounts, per_step)
    traced = _scales((before.traced_duration_ns, after.traced_duration_ns), steps, per_step)
    walls = [length * scale for length, scale in zip(lengths, scales, strict=True)]
    speedup = walls[0] / walls[1] if per_step and walls[1] else None
    won = 1 - walls[1] / walls[0] if per_step and walls[0] else None
    noise = noise_share(before.steps, after.steps)
    differences = differences_in_kind(before, after)
    changes = tuple(differences.values())
    buckets = _buckets(old, new, scales)
    kernels = _rows(before, after, traced, "name")
    refused = why_not(before, after, steps)
    return Comparison(
        per_step=per_step,
        before_ns=walls[0],
        after_ns=walls[1],
        speedup=speedup,
        buckets=buckets,
        families=_rows(before, after, traced, "family"),
        kernels=kernels[:20],
        promises=()
        if refused
        else credited(promised, tuple(differences), buckets, kernels, won, noise),
        changes=changes,
        says=_says(speedup, noise, changes) + (f". {_sentence(refused)}" if refused else ""),
        steps=of_accounts,
        regimes=(before.regime, after.regime),
        causes=(before.cause, after.cause),
        noise_share=noise,
    )


def noise_share(before: Steps, after: Steps) -> float:
    """By what share two means of steps differ, 95 times of 100, though nothing was changed: as the
    steps of each side scatter, and never less than `NOISE`."""
    squares = 0.0
    for steps in (before, after):
        lengths = np.array([span.duration_ns for span in steps.spans], np.float64)
        if len(lengths) >= LEAST_SPANS and lengths.mean():
            squares += (lengths.std(ddof=1) / lengths.mean()) ** 2 / len(lengths)
    return max(NOISE, _Z * math.sqrt(squares))


def _scales(lengths: Sequence[int], steps: Sequence[float | None], per_step: bool) -> list[float]:
    """What turns times of each side into those of a step, or into shares of 1e9."""
    return [
        1 / count if per_step and count else 1e9 / max(length, 1)
        for length, count in zip(lengths, steps, strict=True)
    ]


def _loop_of_both(before: Estimate, after: Estimate) -> str | None:
    """The training loop to compare where a side has several: that of both with most time. None: all there is,
    as where no loop of the one is in the other."""
    times = [
        {_function(one): one.duration_ns for one in estimate.run.phases if _trains(one)}
        if estimate.run is not None
        else {}
        for estimate in (before, after)
    ]
    shared = times[0].keys() & times[1].keys()
    if max(map(len, times)) < 2 or not shared:
        return None
    return max(sorted(shared), key=lambda name: times[0][name] + times[1][name])


def _trains(phase: Phase) -> bool:
    return phase.kind is PhaseKind.TRAIN


def _function(phase: Phase) -> str:
    """`train_epoch() main.py`: the line that most samples are at may be another one the next time."""
    return phase.where.rpartition(":")[0]


def _account(estimate: Estimate, loop: str | None) -> tuple[Account, float | None]:
    """Where the time of steps went, and of how many: of all that the run has trained in that loop, or in any,
    where it is known. Parts of a step at both ends of it are idle time too many."""
    run = estimate.run
    if run is None or estimate.traced_ns is None:
        return estimate.account, _steps(estimate)
    train = [p for p in run.phases if _trains(p) and (loop is None or _function(p) == loop)]
    steps, step_ns = (
        (run.steps, run.step_ns) if loop is None else (train[0].steps, train[0].step_ns)
    )
    if not steps or step_ns is None:
        return estimate.account, None
    whole = add([one.account for one in train])
    duration_ns = max(whole.busy_ns, steps * step_ns)
    kept = (duration_ns - whole.busy_ns) / max(1, whole.duration_ns - whole.busy_ns)
    idle_ns = {cause: round(ns * kept) for cause, ns in whole.idle_ns.items()}
    return replace(whole, duration_ns=duration_ns, idle_ns=idle_ns), steps


def _steps(estimate: Estimate) -> float | None:
    """Traced steps, by the length of those whose end was seen.

    The last range ends with its last kernel, not with the next step: it is short of a wait.
    """
    spans = estimate.steps.spans
    if estimate.steps.source != "annotations" or len(spans) < 3:
        return estimate.steps_covered
    whole_ns = spans[-1].t0_ns - spans[0].t0_ns
    return estimate.account.duration_ns * (len(spans) - 1) / whole_ns if whole_ns else None


def _buckets(before: Account, after: Account, scales: Sequence[float]) -> tuple[Change, ...]:
    old, new = dict(phrases.buckets(before)), dict(phrases.buckets(after))
    return tuple(
        Change(
            key.replace("exposed_", "exposed ").replace("idle_", "idle: ", 1),
            old[key] * scales[0], new[key] * scales[1],
        )
        for key in old if old[key] or new[key]
    )  # fmt: skip


def _sums(
    rows: Iterable[KernelRow], by: str, keys: Mapping[str, str] | None = None
) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for row in rows:
        name = getattr(row, by)
        sums[(keys or {}).get(name, name)] += row.total_ns
    return sums


def _rows(
    before: Estimate, after: Estimate, scales: Sequence[float], by: str
) -> tuple[Change, ...]:
    old, new = _sums(before.kernels, by), _sums(after.kernels, by)
    if by == "name":
        keys = _pairs(old, new)
        old, new = _sums(before.kernels, by, keys), _sums(after.kernels, by, keys)
    changes = [
        Change(name, old.get(name, 0) * scales[0], new.get(name, 0) * scales[1])
        for name in dict.fromkeys([*old, *new])
    ]
    return tuple(sorted(changes, key=lambda change: -abs(change.won_ns)))


def _pairs(old: dict[str, int], new: dict[str, int]) -> dict[str, str]:
    """New names for kernels that only one side has under their own where both have the function: another
    release or type writes other template arguments. The longest of the new ones gives its name."""
    gone, came = old.keys() - new.keys(), new.keys() - old.keys()
    names = {function_name(name): name for name in sorted(came, key=lambda name: new[name])}
    functions = {function_name(name) for name in gone} & names.keys()
    return {n: names[f] for n in gone | came if (f := function_name(n)) in functions}


def differences_in_kind(before: Estimate, after: Estimate) -> dict[str, str]:
    """Dimensions in which the two kernel streams differ, each with its sentence: `gpu`, the new precision,
    `compile`, `attention`, `optimizer`, `batch`, `layout`.

    Read off the kernels alone; what leaves no trace in them (a loader's workers) shows only in the
    buckets.
    """
    old, new = before.kernels, after.kernels
    if not old or not new:
        return {}
    differences: dict[str, str] = {}
    if before.device.name != after.device.name:
        differences["gpu"] = f"GPU: {before.device.name} to {after.device.name}"
    precision = (_precision(old), _precision(new))
    if None not in precision and precision[0] != precision[1]:
        sentence = f"precision of the products: {precision[0]} to {precision[1]}"
        differences[precision[1] or ""] = sentence
    fused = (_part(old, "fused"), _part(new, "fused"))
    if abs(fused[1] - fused[0]) > 0.05:
        on = fused[1] > fused[0]
        differences["compile" if on else "no-compile"] = f"torch.compile {'on' if on else 'off'}"
    attention = (_part(old, "attention"), _part(new, "attention"))
    if min(attention) < 0.01 and max(attention) > 0.03:
        on = attention[1] > attention[0]
        key = "attention" if on else "no-attention"
        differences[key] = f"fused attention {'on' if on else 'off'}"
    optimizer = (_optimizer(old), _optimizer(new))
    if optimizer[0] != optimizer[1]:
        key = "optimizer" if optimizer[1] == "fused" else "no-optimizer"
        differences[key] = f"optimizer: {optimizer[0]} to {optimizer[1]}"
    blocks = None if "gpu" in differences else _blocks_ratio(old, new)
    if blocks is not None and not 0.75 < blocks < 1.33:
        differences["batch"] = f"shapes or batch: {blocks:.2f} times the blocks in the same kernels"
    layout = (_part(old, "layout"), _part(new, "layout"))
    if max(layout) > 0.005 and min(layout) < GONE * max(layout) and len(differences) == 0:
        differences["layout"] = "memory format"
    return differences


def _part(rows: tuple[KernelRow, ...], family: str) -> float:
    total = sum(row.total_ns for row in rows)
    matching = sum(row.total_ns for row in rows if row.family.startswith(family))
    return matching / total if total else 0.0


def _precision(rows: tuple[KernelRow, ...]) -> str | None:
    time: dict[str, int] = {}
    for row in rows:
        if row.family.startswith(("gemm", "conv", "attention")) and row.precision:
            time[row.precision] = time.get(row.precision, 0) + row.total_ns
    return max(time, key=lambda p: time[p]) if time else None


def _optimizer(rows: tuple[KernelRow, ...]) -> str:
    names = [row.name for row in rows if row.family == "optimizer"]
    if any("Fused" in name for name in names):
        return "fused"
    return "foreach" if names else "per tensor"


def _blocks_ratio(old: tuple[KernelRow, ...], new: tuple[KernelRow, ...]) -> float | None:
    """Median ratio of the typical grids of kernels on both sides; persistent ones say nothing."""
    grids = {row.name: row.blocks_p50 for row in old if row.blocks_p50}
    ratios = sorted(
        row.blocks_p50 / grids[row.name]
        for row in new
        if row.blocks_p50 and row.name in grids and row.family in {"elementwise", "norm"}
    )
    return ratios[len(ratios) // 2] if len(ratios) >= 3 else None


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:]


def _says(speedup: float | None, noise: float, changes: tuple[str, ...]) -> str:
    result = outcome(speedup, noise)
    if speedup is None:
        head = "steps are unknown on one side: only shares can be compared"
    elif result is Outcome.SAME:
        head = f"no difference beyond noise ({units.within(1 - 1 / speedup, noise)})"
    elif result is Outcome.FASTER:
        head = f"{speedup:.2f}× faster: {units.share(1 - 1 / speedup)} of the step is gone"
    else:
        head = f"slower: a step takes {units.share(1 / speedup - 1)} longer"
    if len(changes) > 1:
        head += f". {len(changes)} things changed at once: which one helped is unknown"
    return head


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
        shares = [_part(one.kernels, family) for one in (before, after)]
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
