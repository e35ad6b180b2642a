"""Which scripts the estimator's constants were set with, and which it met afterwards."""

from __future__ import annotations

SET_WITH = frozenset(
    (
        "decode diffusion fp8 gpt_bf16 graph lora mixed moe naive_attention pointwise_chain"
        " recommender slow_loader speech tiny_mlp vision"
    ).split()
)
"""Counted before the constants were chosen; every constant was chosen with these in view."""
IN_VIEW = frozenset(
    "gpt_bf16_compiled item_sync misaligned_gemm resnet50_fp32 unpinned_h2d".split()
)
"""Their traces were at hand while constants were chosen, without counters: what kernels they run
and what regime they were built to have could be seen, what limits a kernel could not."""


def held_out(name: str) -> bool:
    """Whether no constant was chosen with a script's counters in view."""
    return name not in SET_WITH


def told(name: str) -> str:
    """In a word, for the table."""
    if name in SET_WITH:
        return "set with"
    return "trace in view" if name in IN_VIEW else "held out"
