"""Every edit that applies to a step, with the step time that it leads to and how sure that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from brrrtop.estimator.estimate import Judged
from brrrtop.model import WhatIf
from brrrtop.whatif.assumptions import CAUTIOUS, HOPEFUL, MIDDLE, Assumptions
from brrrtop.whatif.edits.attention import sdpa
from brrrtop.whatif.edits.batch import double_batch
from brrrtop.whatif.edits.copies import overlap_communication, pinned_copies
from brrrtop.whatif.edits.fusing import compiled
from brrrtop.whatif.edits.graphs import reduce_overhead
from brrrtop.whatif.edits.layout import channels_last
from brrrtop.whatif.edits.optimizer import fused_optimizer
from brrrtop.whatif.edits.precision import bf16, tf32
from brrrtop.whatif.edits.waiting import loader_ready, no_sync, quiet_host
from brrrtop.whatif.profiler import unprofiled
from brrrtop.whatif.roofs import Roofs, roofs_of
from brrrtop.whatif.simulate import period_ns
from brrrtop.whatif.step import Step, step_of

Edit = Callable[[Step, Roofs, Assumptions], Step | None]

_NEEDS_ROOFS = frozenset(
    {"compile", "compile-reduce-overhead", "channels-last", "tf32", "bf16", "sdpa"}
)
_NOWHERE = Roofs(None, float("nan"))
EDITS: dict[str, Edit] = {
    "compile": compiled,
    "compile-reduce-overhead": reduce_overhead,
    "channels-last": channels_last,
    "tf32": tf32,
    "bf16": bf16,
    "double-batch": double_batch,
    "fused-optimizer": fused_optimizer,
    "sdpa": sdpa,
    "loader-ready": loader_ready,
    "no-sync": no_sync,
    "pinned-copies": pinned_copies,
    "overlap-communication": overlap_communication,
    "quiet-host": quiet_host,
}
"""By the id that the contract gives it."""
LEAST_DOUBT, DOUBT_SHARE = 0.015, 0.12
"""A measured gain varies by so much from run to run, and so does what no guess bounds: of the steady models
of the half of `benchmarks/gains` that tunes, four in five are then within the range."""
LATE_BATCH = 0.05
"""Part of a step that waits for input make longer, from which workers set the pace."""
UNITS = {"double-batch": 2}
"""Steps' worth of work in one edited step."""


LINES: dict[str, str] = {
    "compile": "model = torch.compile(model)",
    "compile-reduce-overhead": 'model = torch.compile(model, mode="reduce-overhead")',
    "channels-last": "model = model.to(memory_format=torch.channels_last)",
    "tf32": 'torch.set_float32_matmul_precision("high")',
    "bf16": 'with torch.autocast("cuda", torch.bfloat16):',
    "double-batch": "DataLoader(..., batch_size=2 * batch_size)",
    "fused-optimizer": "torch.optim.AdamW(model.parameters(), lr, fused=True)",
    "sdpa": "F.scaled_dot_product_attention(q, k, v)",
    "loader-ready": "DataLoader(..., num_workers=8, persistent_workers=True)",
    "no-sync": "total += loss.detach()  # read it every N steps",
    "pinned-copies": "DataLoader(..., pin_memory=True); x.to(device, non_blocking=True)",
    "overlap-communication": "DDP(model, bucket_cap_mb=100, gradient_as_bucket_view=True)",
    "quiet-host": "gc.freeze(); log and save every N steps, from a thread",
}
"""The line of code that each edit is."""


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """A step and what each edit would make of it."""

    step: Step
    """As it runs without a profiler."""
    present_ns: float
    rows: tuple[WhatIf, ...]
    """Edits that apply, best first."""

    @property
    def device_ns(self) -> float:
        """Time of a step that the device is at work, gaps of its own between kernels included."""
        return float(self.step.device_ns.sum() + self.step.gap_ns.sum()) / self.step.count

    def scaled(self, part: float) -> float:
        """Share of the step saved with the device's time down to `part` of it, and nothing else changed."""
        faster = replace(self.step, device_ns=self.step.device_ns * max(part, 0.0))
        return 1 - period_ns(faster) / self.present_ns if self.present_ns else 0.0


def priced(judged: Judged) -> Priced | None:
    """The step of a judged window with the price of each edit that applies; None without a step."""
    step = step_of(judged)
    if step is None:
        return None
    roofs = roofs_of(judged.ceilings)
    step = _paced(step)
    bases = [(guess, unprofiled(step, guess)) for guess in (MIDDLE, CAUTIOUS, HOPEFUL)]
    rows = [row for name in EDITS if (row := price((name,), bases, roofs)) is not None]
    middle = bases[0][1]
    return Priced(middle, period_ns(middle), tuple(sorted(rows, key=lambda row: -row.saves)))


def _paced(step: Step) -> Step:
    """The step, as short as it likes where the loop does not wait for its batch.

    A loop that does is as fast as its workers: whatever else gets faster, it waits longer.
    """
    ready = loader_ready(step, _NOWHERE, MIDDLE)
    if ready is not None and period_ns(ready) < (1 - LATE_BATCH) * period_ns(step):
        return step
    return replace(step, batch_ns=0.0)


def price(
    names: tuple[str, ...], bases: list[tuple[Assumptions, Step]], roofs: Roofs | None
) -> WhatIf | None:
    """The price of some edits, one after the other; None where one of them does not apply.

    Args:
        bases: The step as it is under each guess; the first one is the likeliest.
        roofs: None: of an unknown GPU, where only edits that need no rate apply.
    """
    saves, times = [], []
    for guess, base in bases:
        edited: Step | None = base
        units = 1
        for one in names:
            if edited is None or (roofs is None and one in _NEEDS_ROOFS):
                return None
            edited = EDITS[one](edited, roofs or _NOWHERE, guess)
            units *= UNITS.get(one, 1)
        present = period_ns(base)
        after = 0.0 if edited is None else period_ns(edited) / units
        if after <= 0 or present <= 0:
            return None
        times.append(after)
        saves.append(1 - times[-1] / present)
    name = "+".join(names)
    line = "; ".join(LINES[one] for one in names)
    doubt = LEAST_DOUBT + DOUBT_SHARE * abs(saves[0])
    low, high = min(*saves, saves[0] - doubt), max(*saves, saves[0] + doubt)
    return WhatIf(name, times[0], saves[0], low, max(min(high, 0.99), saves[0]), None, line)
