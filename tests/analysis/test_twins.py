"""A kernel without an op is as much work as its twins that have one, where they agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from brrrtop.model.estimate import KernelRow
from brrrtop.session.analyze import analyze
from brrrtop.sources.importers.kineto.source import KinetoSource
from tests.session.handmade import kernel, launch, op, text_of, written

NAME = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel"
)
FLOP = 2 * 4096**3


def mm(at: int, correlation: int, us: float, size: int | None = 4096) -> list[dict[str, Any]]:
    """A product of squares of that size; None: nobody recorded its op."""
    shapes = {"Input Dims": [[size, size]] * 2, "Input type": ["c10::BFloat16"] * 2}
    ops = [] if size is None else [op(at, 12, "aten::mm", **shapes)]
    return [
        *ops,
        launch(at + 2, 5, correlation),
        kernel(at + 20, us, correlation, NAME, grid=[32, 32, 1], block=[384, 1, 1]),
    ]


def row_of(folder: Path, *parts: list[dict[str, Any]]) -> KernelRow:
    events = [event for part in parts for event in part]
    result = analyze(KinetoSource(written(folder, text_of(events)))).estimate
    assert result is not None and len(result.kernels) == 1
    return result.kernels[0]


def test_kernels_without_an_op_inherit_that_of_their_twins(tmp_path: Path) -> None:
    bare = [mm(i * 1000, i + 1, 250.0, None) for i in range(3)]
    row = row_of(tmp_path, *bare, mm(3000, 9, 250.0), mm(4000, 10, 250.0))
    assert row.evidence == "L2"
    assert row.flop_per_s is not None and round(row.flop_per_s) == round(FLOP / 250e-6)


def test_twins_that_last_another_time_are_none(tmp_path: Path) -> None:
    row = row_of(tmp_path, mm(0, 1, 900.0, None), mm(3000, 9, 250.0), mm(4000, 10, 250.0))
    assert (row.evidence, row.flop_per_s, row.bytes_per_s) == ("L1", None, None)


def test_twins_that_disagree_tell_nothing(tmp_path: Path) -> None:
    parts = [mm(0, 1, 250.0, None), mm(3000, 9, 250.0), mm(4000, 10, 250.0, 2048)]
    row = row_of(tmp_path, *parts)
    assert (row.evidence, row.flop_per_s) == ("L1", None)


def test_shapes_of_nearly_all_speak_for_a_row(tmp_path: Path) -> None:
    shaped = [mm(i * 1000, i + 1, 250.0) for i in range(20)]
    row = row_of(tmp_path, *shaped, mm(30_000, 99, 80.0, None))
    assert row.evidence == "L2"
    assert row.flop_per_s is not None and round(row.flop_per_s) == round(FLOP / 250e-6)
