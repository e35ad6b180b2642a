"""Recorded runs as other GPUs, formats and releases of torch would have shown them.

Nothing here was measured elsewhere: an H200's kernels are renamed, and stretched by the ceilings of
the other part. What is tested is that regimes do not hang on the names and figures of one machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.truth import counted_files, window_of
from brrrtop.analysis.ceilings import Ceilings, ceilings_for
from brrrtop.analysis.estimate import Analysis, estimate
from brrrtop.model.estimate import Regime, Side
from brrrtop.model.tables import Device, OpSignature, Window

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings" / "h200"
CLEAR = 0.6
HALVES = (
    ("nvjet_sm90_tst", "nvjet_sm90_hsh"),
    ("c10::BFloat16", "c10::Half"),
    ("__nv_bfloat16", "__half"),
    ("cutlass::bfloat16_t", "cutlass::half_t"),
    ("bfloat16_copy", "float16_copy"),
    ("bf16", "f16"),
)
NVJET = re.compile(r"nvjet_sm90_tst_(\d+)x(\d+)_\w+_([NT])([NT])[NT]")
A100 = Device(0, "NVIDIA A100-SXM4-80GB", sm_count=108, capability=(8, 0))
A100_SLICE = Device(
    0, "NVIDIA A100-SXM4-80GB MIG 1g.10gb", sm_count=14, capability=(8, 0), memory_bytes=10 << 30
)


@dataclass(frozen=True)
class Run:
    """One recorded script."""

    name: str
    window: Window

    @property
    def built(self) -> str:
        """The regime that the script was built to have."""
        return str(self.window.hello["provenance"]["truth"]["regime"])


@pytest.fixture(scope="module")
def recorded() -> list[tuple[Run, Analysis]]:
    named = [Run(name, window_of(path)) for name, path, _ in counted_files(RECORDINGS)]
    return [(run, estimate(run.window)) for run in named]


def renamed(w: Window, pairs: tuple[tuple[str, str], ...]) -> Window:
    def new(text: str) -> str:
        for old, other in pairs:
            text = text.replace(old, other)
        return text

    ops = {at: replace(op, types=tuple(new(kind) for kind in op.types)) for at, op in w.ops.items()}
    return replace(w, names=tuple(new(name) for name in w.names), ops=ops)


def in_half(w: Window) -> Window:
    """fp16 in place of bf16."""
    return renamed(w, HALVES)


def on_ampere(w: Window) -> Window:
    """cuBLAS's kernels of Ampere in place of Hopper's."""
    names = (
        NVJET.sub(r"ampere_bf16_s16816gemm_bf16_\1x\2_ldg8_f2f_stages_64x3_\3\4", name)
        for name in w.names
    )
    return replace(w, names=tuple(name.replace("sm90_xmma", "sm80_xmma") for name in names))


def by_old_torch(w: Window) -> Window:
    """Torch 2.6: four elements a thread, twice the blocks."""
    wide = np.array(["vectorized_elementwise_kernel<" in name for name in w.names])
    names = tuple(
        re.sub(r"(vectorized_elementwise_kernel<)\d+", r"\g<1>4", name) for name in w.names
    )
    blocks = w.activities.blocks * np.where(wide[w.activities.name_ids], 2, 1)
    hello = {**w.hello, "torch": "2.6.0"}
    return replace(w, names=names, activities=replace(w.activities, blocks=blocks), hello=hello)


def without_shapes(w: Window) -> Window:
    return replace(w, ops={at: OpSignature(op.name) for at, op in w.ops.items()})


@pytest.mark.parametrize("change", [in_half, by_old_torch])
def test_a_run_keeps_its_regime_in_other_words(
    recorded: list[tuple[Run, Analysis]], change: Callable[[Window], Window]
) -> None:
    for run, judged in recorded:
        for window, known in (
            (run.window, judged),
            (without_shapes(run.window), estimate(without_shapes(run.window))),
        ):
            result = estimate(change(window)).estimate
            before = known.estimate
            about_to_tip = before.confidence < 0.55
            assert result.regime is before.regime or about_to_tip, run.name
            assert result.split.compute == pytest.approx(before.split.compute, abs=0.06), run.name


def slower(judged: Analysis, device: Device) -> Window:
    """The run on another part: kernels as much longer as its roof on their side is lower."""
    here, there = judged.facts.ceilings, ceilings_for(device)
    assert here is not None and there is not None
    factors = np.array(
        [
            _factor(g.precision, g.side is Side.COMPUTE, here, there)
            for g in judged.facts.labels.groups
        ]
    )
    w, acts = judged.facts.window, judged.facts.window.activities
    lengths = acts.ends_ns - acts.starts_ns
    longer = (lengths * factors[judged.facts.labels.group_of]).astype(np.int64)
    # One stream of time: what comes later begins as much later.
    shift = np.concatenate(([0], np.cumsum(longer - lengths)[:-1]))
    starts = acts.starts_ns + shift
    ends = starts + longer
    span = replace(w.span, t1_ns=int(ends.max()))
    kept = {"registers_per_sm": 65536, "max_threads_per_sm": 2048, "shared_bytes_per_sm": 167936}
    return replace(
        w,
        span=span,
        device=replace(device, **kept),
        activities=replace(acts, starts_ns=starts, ends_ns=ends),
        gauges=w.gauges.take(slice(0, 0)),
    )


def _factor(precision: str | None, compute: bool, here: Ceilings, there: Ceilings) -> float:
    rates: list[Mapping[str, float]] = [here.flop_per_s, there.flop_per_s]
    if compute and precision and all(precision in rate for rate in rates):
        return rates[0][precision] / rates[1][precision]
    return (here.bytes_per_s or 1.0) / (there.bytes_per_s or 1.0)


@pytest.mark.parametrize("device", [A100, A100_SLICE], ids=lambda d: d.name)
def test_a_clear_regime_stays_one_on_a_part_that_slows_all_alike(
    recorded: list[tuple[Run, Analysis]], device: Device
) -> None:
    asked = 0
    for run, judged in recorded:
        before = judged.estimate
        if before.regime not in (Regime.COMPUTE, Regime.MEMORY) or before.confidence < CLEAR:
            continue
        if before.regime.value != run.built:
            continue  # as counted and not as built: it turns with less
        asked += 1
        result = estimate(on_ampere(slower(judged, device))).estimate
        wrong = {Regime.COMPUTE, Regime.MEMORY} - {before.regime}
        assert result.regime not in wrong or result.confidence < CLEAR, (run.name, result.split)
    assert asked >= 8
