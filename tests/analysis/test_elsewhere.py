"""Recorded runs as other formats and releases of torch would have shown them.

Nothing here was measured elsewhere: an H200's kernels are renamed. What is tested is that regimes do not
hang on the names of one machine.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from benchmarks.truth import counted_files, window_of
from brrrtop.analysis.estimate import estimate
from brrrtop.model.tables import OpSignature, Window

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings" / "h200"
HALVES = (
    ("nvjet_sm90_tst", "nvjet_sm90_hsh"),
    ("c10::BFloat16", "c10::Half"),
    ("__nv_bfloat16", "__half"),
    ("cutlass::bfloat16_t", "cutlass::half_t"),
    ("bfloat16_copy", "float16_copy"),
    ("bf16", "f16"),
)


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
def test_a_run_keeps_its_regime_in_other_words(change):
    for name, path, _ in counted_files(RECORDINGS):
        whole = window_of(path)
        for window in (whole, without_shapes(whole)):
            before, result = estimate(window).estimate, estimate(change(window)).estimate
            about_to_tip = before.confidence < 0.55
            assert result.regime is before.regime or about_to_tip, name
            assert result.split.compute == pytest.approx(before.split.compute, abs=0.06), name
