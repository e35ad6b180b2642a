"""Phases of inference engines by the names of their ranges, and the sides of what a decode pass runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from brrrtop.analysis.facts.ranges import phase_of
from brrrtop.model.estimate import Side
from tests.analysis.test_steady_part import Trace

VLLM_DECODE = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)"


@pytest.mark.parametrize(
    ("name", "phase", "tokens"),
    [
        ("execute_context_2(4096)_generation_0(0)", "prefill", 4096),
        ("execute_context_1(888_788544)_generation_0(0)", "prefill", 888),
        (VLLM_DECODE, "decode", 32),
        (
            "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)"
            "_generation_37(sq37sk34489sqsq37sqsk34489)",
            "mixed",
            8192,
        ),
        ("step[EXTEND bs=15 toks=15360]", "prefill", 15360),
        ("step[DECODE bs=32]", "decode", 32),
        ("nano_decode_step", "decode", None),
    ],
)
def test_public_names_of_engines_are_read(name: str, phase: str, tokens: int | None) -> None:
    assert phase_of(name) == (phase, tokens)


@pytest.mark.parametrize(
    "name", ["step[IDLE bs=0]", "decoder_layer_3", "execute_model", "train_step"]
)
def test_other_names_tell_no_phase(name: str) -> None:
    assert phase_of(name) is None


GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT"


def _pass(name: str, kernel: str) -> Trace:
    """One forward pass of 24 equal layers, launched before the device gets to it."""
    trace = Trace()
    trace.host("user_annotation", name, -20_000, 5_000)
    for layer in range(24):
        for place, one in enumerate((kernel, "rms_norm_kernel")):
            trace.kernel(
                layer * 500 + place * 240, 230, launched=-19_000 + 100 * layer + 40 * place
            )
            trace.events[-1]["name"] = one
    return trace


@pytest.mark.parametrize(
    ("name", "kernel", "side"),
    [
        (VLLM_DECODE, GEMM, Side.MEMORY),
        ("step[DECODE bs=32]", GEMM, Side.MEMORY),
        ("step[DECODE bs=4096]", GEMM, Side.COMPUTE),
        ("step[EXTEND bs=15 toks=15360]", GEMM, Side.COMPUTE),
        ("step[EXTEND bs=15 toks=15360]", "paged_attention_ll4mi_QKV_mfma16_kernel", Side.MEMORY),
        ("step[DECODE bs=32]", "flash_fwd_kernel", Side.MEMORY),
        ("step[EXTEND bs=15 toks=15360]", "flash_fwd_kernel", Side.COMPUTE),
    ],
)
def test_a_decode_pass_reads_weights_and_keys_for_few_rows(
    tmp_path: Path, name: str, kernel: str, side: Side
) -> None:
    shown = _pass(name, kernel).judged(tmp_path)
    row = next(row for row in shown.estimate.kernels if row.name == kernel)
    assert row.side is side


def test_layers_of_one_forward_pass_are_no_steps(tmp_path: Path) -> None:
    """Its range ended before the device began."""
    shown = _pass(VLLM_DECODE, GEMM).judged(tmp_path)
    assert (shown.estimate.steps.count, shown.estimate.steps.source) == (1, "annotations")
    assert shown.estimate.span.duration_ns == (23 * 500 + 470) * 1000  # it lay in the queue before
    [phase] = shown.tables.phases
    assert (phase.phase, phase.count, phase.tokens) == ("decode", 1, 32)
    assert phase.device_ns == 24 * 460_000
