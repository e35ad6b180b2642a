"""Every edit that applies to a step, with the step time that it leads to and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.ceilings import guessed
from brrrtop.analysis.estimate import Analysis
from brrrtop.kernel_names.traits import Role
from brrrtop.model.advice import StepWork, Unprofiled, WhatIf
from brrrtop.model.tables import F8
from brrrtop.text import loader
from brrrtop.whatif.assumptions import CAUTIOUS, HOPEFUL, MIDDLE, Assumptions, Roofs, roofs_of
from brrrtop.whatif.edits.fusing import captured, compiled, fused_optimizer, reduce_overhead
from brrrtop.whatif.edits.layout_precision_attention import bf16, channels_last, fp16, sdpa, tf32
from brrrtop.whatif.edits.loop import (
    QUIET,
    double_batch,
    loader_ready,
    no_sync,
    overlap_communication,
    pinned_copies,
    quiet_host,
)
from brrrtop.whatif.risks import Risk, risks_of, unrest, with_risks
from brrrtop.whatif.simulate import period_ns, unprofiled, with_host
from brrrtop.whatif.step import Step, step_of

Bases = list[tuple[Assumptions, Step]]
"""A step under each guess."""
GUESSES = (MIDDLE, CAUTIOUS, HOPEFUL)


class Edit(Struct, frozen=True):
    line: str
    """Of code."""
    make: Callable[[Step, Roofs, Assumptions], Step | None]
    """The step with it; None where it does not apply."""
    needs_roofs: bool = False
    """Only on a GPU whose rates are known."""
    empties: tuple[str, ...] = ()
    """Buckets of the account that it is there for."""


GRAPHS = "compile-reduce-overhead"
_REDUCE = 'model = torch.compile(model, mode="reduce-overhead")'
_FP16 = 'with torch.autocast("cuda", torch.float16):  # and torch.amp.GradScaler("cuda")'
_LAST = "model = model.to(memory_format=torch.channels_last)"
_PINNED = "DataLoader(..., pin_memory=True); x.to(device, non_blocking=True)"
_BUCKETS = "DDP(model, bucket_cap_mb=100, gradient_as_bucket_view=True)"
_FUSED = "torch.optim.AdamW(model.parameters(), lr, fused=True)"
EDITS: dict[str, Edit] = {
    "compile": Edit("model = torch.compile(model)", compiled, empties=("idle_launch",)),
    GRAPHS: Edit(_REDUCE, reduce_overhead, empties=("idle_launch",)),
    "channels-last": Edit(_LAST, channels_last, needs_roofs=True),
    "tf32": Edit('torch.set_float32_matmul_precision("high")', tf32, needs_roofs=True),
    "bf16": Edit('with torch.autocast("cuda", torch.bfloat16):', bf16, needs_roofs=True),
    "fp16": Edit(_FP16, fp16, needs_roofs=True),
    "double-batch": Edit("DataLoader(..., batch_size=2 * batch_size)", double_batch),
    "fused-optimizer": Edit(_FUSED, fused_optimizer),
    "sdpa": Edit("F.scaled_dot_product_attention(q, k, v)", sdpa, needs_roofs=True),
    "loader-ready": Edit(loader.line(), loader_ready, empties=("idle_input",)),
    "no-sync": Edit(
        "total += loss.detach()  # read it every N steps", no_sync, empties=("idle_sync",)
    ),
    "pinned-copies": Edit(_PINNED, pinned_copies, empties=("exposed_copy",)),
    "overlap-communication": Edit(_BUCKETS, overlap_communication, empties=("exposed_comm",)),
    "quiet-host": Edit(
        "gc.freeze(); log and save every N steps, from a thread",
        quiet_host,
        empties=tuple(f"idle_{cause}" for cause in QUIET),
    ),
}
"""By the id that the contract gives it."""
BY_RATES = frozenset({"compile", GRAPHS, *(name for name, one in EDITS.items() if one.needs_roofs)})
"""Edits whose gain depends on the GPU's rates."""
GUESS_DOUBT = 0.5
"""Part of a gain that rates of a like GPU leave open: bandwidths of one compute capability differ by two."""
_NOWHERE = Roofs(None, 1e12)
"""Of an unknown GPU: kernels of unknown bytes count by their time, whatever the bandwidth is."""
LEAST_DOUBT, DOUBT_SHARE = 0.015, 0.15
"""A measured gain varies by so much from run to run, and so does what no guess bounds: of the steady models
of the half of `benchmarks/gains` that tunes, four in five are then within the range."""
HOST_AGAIN = 0.06
"""Part by which the host's time of an edited step is another than predicted, at least: two runs of one
launch-bound loop differ."""
LATE_BATCH = 0.05
"""Part of a step that waits for input make longer, from which workers set the pace."""
UNITS = {"double-batch": 2}
"""Steps' worth of work in one edited step."""
INCLUDED = {"compile-reduce-overhead": ("compile",)}
"""What an edit does by itself, so that it cannot come after."""
LIKE, LAUNCH_NS = 0.03, 10_000.0
"""Steps whose parts differ by less of a step are alike; each launch takes the host about so long."""
FOLLOWING = 3
"""Edits after the best one that are told."""


class SimulatedEdits(Struct, frozen=True, eq=False):
    step: Step
    """As it is shown: of a profiler's trace the recorded one, live the one between bursts."""
    present_ns: float
    rows: tuple[WhatIf, ...]
    """Edits that apply, best first."""
    following: tuple[WhatIf, ...] = ()
    """The best edit with one more after it, best first; empty where no edit wins."""
    guess: str | None = None
    """What stands in for the rates of a GPU that nobody knows; None: they are known, or nothing does."""
    unprofiled_ns: float | None = None
    """What the step would take without the profiler that recorded it; None: nothing slowed it."""
    figures: F8 | None = None
    """Of the step that was simulated, as of `figures_of`."""
    risks: tuple[Risk, ...] = ()
    """What the window's records say against edits: like steps may show others."""

    def scaled(self, part: float) -> float:
        """Share of the step saved with the device's time down to `part` of it, and nothing else changed."""
        faster = replace(self.step, device_ns=self.step.device_ns * max(part, 0.0))
        return 1 - period_ns(faster) / self.present_ns if self.present_ns else 0.0


def simulate_edits(
    analysis: Analysis, earlier: SimulatedEdits | None = None
) -> SimulatedEdits | None:
    """The step of a judged window with the price of each edit that applies; None without a step.

    Args:
        earlier: Of an earlier window: prices of like steps are like, with the same risks.
    """
    step = step_of(analysis)
    if step is None:
        return None
    step = replace(step, strays=unrest(analysis.facts.window))
    figures, risks = figures_of(step), risks_of(analysis)
    if earlier is not None and risks == earlier.risks and _is_like(figures, earlier.figures):
        return earlier
    roofs, known = roofs_of(analysis.facts.ceilings), analysis.estimate
    guess = None if roofs else guessed(known.device.capability or known.capability_at_least)
    result = price_all(step, roofs or roofs_of(guess))

    def doubted(row: WhatIf) -> WhatIf:
        row = with_risks(row, risks)
        return row if guess is None or row.edit not in BY_RATES else _by_guess(row)

    return replace(
        result,
        rows=tuple(sorted(map(doubted, result.rows), key=lambda row: row.place)),
        following=tuple(map(doubted, result.following)),
        guess=guess.source if guess is not None else None,
        figures=figures,
        risks=risks,
    )


def _is_like(figures: F8, others: F8 | None) -> bool:
    return others is not None and bool(
        (np.abs(figures - others) <= LIKE * max(figures[-1], 1.0)).all()
    )


def figures_of(step: Step) -> F8:
    """What tells a step from another one, ns: its device time by role, launches as time that they take,
    the host's time, gaps, its batch and, last, its length."""
    roles = np.bincount(step.kernels.roles + 1, step.device_ns, max(Role) + 2)
    counts = LAUNCH_NS * np.array([step.launches.sum(), step.waits.sum()])
    host = np.array([step.before_ns.sum(), step.call_ns.sum(), step.gap_ns.sum()])
    length = step.undisturbed_ns or step.measured_ns
    tail = (step.batch_ns, step.strays * length, length)
    return np.concatenate((np.concatenate((roles, counts, host)) / step.count, tail))


def _by_guess(row: WhatIf) -> WhatIf:
    """The row with the doubt of rates that are guessed."""
    doubt = GUESS_DOUBT * abs(row.saves)
    low = min(row.saves_low, row.saves - doubt)
    high = max(row.saves_high, min(row.saves + doubt, 0.99))
    return replace(row, saves_low=low, saves_high=high)


def price_all(step: Step, roofs: Roofs | None) -> SimulatedEdits:
    """The step as recorded, with the price of each edit that applies; without roofs, if it needs no rate."""
    step = _pace(step)
    without = list(zip(GUESSES, unprofiled(step, GUESSES), strict=True))
    worlds = [without]
    if step.profiled and step.undisturbed_ns is None:
        worlds = [[(guess, step) for guess in GUESSES], without]
    presents = [_present(bases) for bases in worlds]
    made = [_each(EDITS, bases, roofs) for bases in worlds]
    rows = _rows([(name,) for name in made[0]], [list(each.values()) for each in made], presents)
    following: tuple[WhatIf, ...] = ()
    if rows and rows[0].saves > 0:
        first = rows[0].edit
        later = [row.edit for row in rows[1:] if row.edit not in INCLUDED.get(first, ())]
        pairs = [_each(later, each[first] or [], roofs) for each in made]
        names = [(first, name) for name in later]
        following = _rows(names, [list(each.values()) for each in pairs], presents)[:FOLLOWING]
    return SimulatedEdits(
        step=worlds[0][0][1],
        present_ns=presents[0].times_ns[0],
        rows=rows,
        following=following,
        unprofiled_ns=presents[1].times_ns[0] if len(worlds) > 1 else None,
    )


def _each(names: Iterable[str], bases: Bases, roofs: Roofs | None) -> dict[str, Bases | None]:
    """Each edit by itself; what is compiled is not compiled again for its CUDA graphs."""
    made = {name: None if name == GRAPHS else edited(name, bases, roofs) for name in names}
    generated = made.get("compile")
    if generated is not None and GRAPHS in made:
        made[GRAPHS] = [(guess, captured(step, guess)) for guess, step in generated]
    elif GRAPHS in made:
        made[GRAPHS] = edited(GRAPHS, bases, roofs)
    return made


def _rows(
    names: Sequence[tuple[str, ...]],
    made: Sequence[Sequence[Bases | None]],
    presents: Sequence[PresentStep],
) -> tuple[WhatIf, ...]:
    """Best first, by what each edit made of each kind of step: as shown, without the profiler."""
    rows = (
        _row(name, presents, steps)
        for name, *steps in zip(names, *made, strict=True)
        if steps[0] is not None
    )
    return tuple(sorted((row for row in rows if row is not None), key=lambda row: row.place))


def _pace(step: Step) -> Step:
    """The step, as short as it likes where the loop does not wait for its batch.

    A loop that does is as fast as its workers: whatever else gets faster, it waits longer.
    """
    ready = loader_ready(step, _NOWHERE, MIDDLE)
    if ready is not None and period_ns(ready) < (1 - LATE_BATCH) * period_ns(step):
        return step
    return replace(step, batch_ns=0.0)


def edited(name: str, bases: Bases, roofs: Roofs | None) -> Bases | None:
    """The step under each guess with this edit made; None where it does not apply."""
    edit = EDITS[name]
    if roofs is None and edit.needs_roofs:
        return None
    made = [(guess, edit.make(base, roofs or _NOWHERE, guess)) for guess, base in bases]
    steps = [(guess, step) for guess, step in made if step is not None]
    return steps if len(steps) == len(made) else None


class PresentStep(Struct, frozen=True):
    times_ns: tuple[float, ...]
    """Under each guess."""
    step: Step
    """Under the likeliest one."""


def _present(bases: Bases) -> PresentStep:
    return PresentStep(tuple(period_ns(step) for _, step in bases), bases[0][1])


class _Gain(Struct, frozen=True):
    """What edits save of one kind of step."""

    step_ns: float
    saves: float
    low: float
    high: float


def _row(
    names: tuple[str, ...], presents: Sequence[PresentStep], made: Sequence[Bases | None]
) -> WhatIf | None:
    """What the edits make of the step; None where it takes no time as it is, or nothing is left of it."""
    units = math.prod(UNITS.get(one, 1) for one in names)
    gains = [
        gain
        for present, steps in zip(presents, made, strict=True)
        if steps is not None and (gain := _gain(present, steps, units)) is not None
    ]
    if len(gains) < len(presents):
        return None
    shown, quiet = gains[0], gains[1] if len(gains) > 1 else None
    # Twice the batch takes no less time than one, by a host as fast as it may be.
    again = 1 - max(HOST_AGAIN, presents[0].step.strays)
    most = 1 - again / units if units > 1 and len(names) == 1 else 1.0
    return WhatIf(
        edit="+".join(names),
        step_ns=shown.step_ns,
        saves=shown.saves,
        saves_low=min(gain.low for gain in gains),
        saves_high=max(min(max(gain.high for gain in gains), most), shown.saves),
        advisory=None,
        line="; ".join(EDITS[one].line for one in names),
        now=_work(presents[0].step, 1),
        then=_work((made[0] or [])[0][1], units),
        changed_share=_changed_ns(presents[0].step, (made[0] or [])[0][1])
        / presents[0].times_ns[0],
        unprofiled=None if quiet is None else Unprofiled(quiet.saves, quiet.step_ns),
    )


def _gain(present: PresentStep, made: Bases, units: int) -> _Gain | None:
    times = [
        period_ns(with_host(step, 1 + side * max(HOST_AGAIN, step.strays))) / units
        for side, (_, step) in zip((0, 1, -1), made, strict=False)
    ]
    if min(*times, *present.times_ns) <= 0:
        return None
    saves = [1 - then / now for then, now in zip(times, present.times_ns, strict=True)]
    doubt = doubt_of(saves[0])
    low, high = min(*saves, saves[0] - doubt), max(*saves, saves[0] + doubt)
    return _Gain(times[0], saves[0], low, max(min(high, 0.99), saves[0]))


def doubt_of(saves: float) -> float:
    """By how much a gain may be off, whatever it rests on."""
    return LEAST_DOUBT + DOUBT_SHARE * abs(saves)


def _changed_ns(now: Step, then: Step) -> float:
    """Time a step of activities that take another time in the edited one, or are gone from it."""
    rows = np.flatnonzero(now.rows >= 0)
    left = np.zeros(int(now.rows.max(initial=0)) + 1)
    stays = then.rows >= 0
    left[then.rows[stays]] = then.device_ns[stays]
    spent = now.device_ns[rows]
    return float(spent[left[now.rows[rows]] != spent].sum()) / now.count


def _work(step: Step, units: int) -> StepWork:
    """Work of one step of the nodes, for the present step's samples."""
    steps = step.count * units
    return StepWork(
        kernels=int(step.launches.sum()) / steps,
        device_ns=float(step.device_ns.sum()) / steps,
        host_ns=float((step.before_ns + step.call_ns).sum()) / steps,
    )
