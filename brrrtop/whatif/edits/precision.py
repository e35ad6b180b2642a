"""Narrower numbers: products on faster units, half the bytes, and the conversions that autocast adds."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.model.tables import F8, Bool
from brrrtop.whatif.assumptions import Assumptions
from brrrtop.whatif.regions import moved_bytes, usual_call_ns
from brrrtop.whatif.roofs import Roofs
from brrrtop.whatif.step import Step

_PRODUCTS = (Role.GEMM, Role.SKINNY)
_NARROWED = (Role.POINTWISE, Role.POOL, Role.FUSED)
"""What follows a product in its type under autocast; norms of rows, softmax and losses stay fp32
(PyTorch, "Automatic Mixed Precision": ops that autocast to float32)."""
_WIDE = (Role.NORM, Role.SOFTMAX, Role.LOSS, Role.INDEX)
LATENCY_NS = 10_000.0
"""16-bit products of 64 rows on Hopper's tensor cores take 4 to 7 us (an LSTM's steps on an H200)."""


CASTS = 5 / 3
"""Conversions a product: of weight, bias and input forward and of two gradients backward, for three."""


def tf32(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with `set_float32_matmul_precision("high")`; None without fp32 products on CUDA cores."""
    kernels = step.kernels
    slow = kernels.is_role(*_PRODUCTS) & kernels.has(Trait.SIMT)
    dense = kernels.is_role(Role.CONV) & ~kernels.depthwise
    if not (dense & kernels.has(Trait.TF32)).any():  # cuDNN uses TF32 unless it is told not to
        slow |= dense & kernels.has(Trait.SIMT)
    peak = roofs.flop_per_s("tf32")
    if not slow.any() or not peak or not _faster(step, slow, peak):
        return None
    return replace(step, device_ns=_on_units(step, slow, peak, 1.0, roofs, guess))


def bf16(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with its forward under autocast to bf16; None where products are of 16 bits already."""
    kernels = step.kernels
    wide = kernels.is_role(*_PRODUCTS, Role.CONV) & ~kernels.has(Trait.HALF | Trait.DOUBLE)
    wide &= ~kernels.depthwise
    peak = roofs.flop_per_s("bf16")
    products = kernels.is_role(*_PRODUCTS, Role.CONV, Role.ATTENTION) & step.launches
    products &= ~kernels.depthwise
    if not peak or not wide.any() or not _faster(step, wide, peak):
        return None
    if step.device_ns[wide].sum() < 0.5 * step.device_ns[products].sum():
        return None
    wide |= kernels.is_role(Role.ATTENTION) & ~kernels.has(Trait.HALF)
    device = _on_units(step, wide, peak, 0.5, roofs, guess)
    floor = np.minimum(device, guess.kernel_floor_ns)
    inside = ~kernels.optimizer & kernels.is_role(*_NARROWED, Role.INDEX)
    narrowed = inside & ~kernels.is_role(Role.INDEX) & _in_16_bits(step, products)
    device = np.where(narrowed, np.maximum(device * guess.narrowed, floor), device)
    device = np.where(inside & ~narrowed, device * guess.mixed, device)
    device = np.where(kernels.is_role(Role.LAYOUT), step.device_ns * guess.layout_16_bit, device)
    device = np.where(wide & kernels.wide, step.device_ns * guess.wide_16_bit, device)
    batch_norm = kernels.batch_norm & kernels.has(Trait.NCHW)
    device = np.where(batch_norm, step.device_ns * guess.norm_16_bit, device)
    return _with_casts(replace(step, device_ns=device), wide & ~kernels.recurrent, roofs, guess)


def _in_16_bits(step: Step, products: Bool) -> Bool:
    """Nodes that follow a product, with none between that autocast leaves in 32 bits, or gathers."""
    kernels = step.kernels
    wide = kernels.is_role(*_WIDE) & ~kernels.batch_norm
    last = np.maximum.accumulate(np.where(products | wide, np.arange(len(step)), -1))
    return np.asarray((last >= 0) & products[last])


def _faster(step: Step, wide: Bool, peak: float) -> bool:
    """Whether the units asked for are faster than those in use."""
    rates = step.kernels.rates[wide]
    rates = rates[np.isfinite(rates)]
    return bool(len(rates)) and bool(peak > 1.2 * np.median(rates))


def _on_units(
    step: Step, rows: Bool, peak: float, width: float, roofs: Roofs, guess: Assumptions
) -> F8:
    """Device time with the products in `rows` on units of this peak, their bytes `width` times as many.

    A product keeps its share of the roof above it where that is lower than what products reach: its
    shape is why. Without FLOPs its time shrinks as the peaks stand to each other.
    """
    kernels = step.kernels
    size = moved_bytes(step, roofs, guess) * width
    spent = np.maximum(step.device_ns, 1.0) * 1e-9
    share = np.fmax(
        kernels.flop / (kernels.rates * spent), kernels.size_bytes / (roofs.bytes_per_s * spent)
    )
    share = np.where(np.isfinite(kernels.flop) & np.isfinite(share), share, np.inf)
    reached = np.minimum(guess.products_roof, share)
    arithmetic = kernels.flop / (peak * np.maximum(reached, 0.02)) * 1e9
    ratio = np.where(np.isfinite(kernels.rates), kernels.rates / peak, 1.0)
    by_ratio = step.device_ns * np.minimum(ratio / guess.products_roof * 0.7, 1.0)
    arithmetic = np.where(np.isfinite(arithmetic), arithmetic, by_ratio)
    moving = size / (roofs.bytes_per_s * np.clip(share, 0.02, roofs.usual_memory)) * 1e9
    moving = np.where(np.isfinite(kernels.size_bytes), moving, 0.0)
    new = np.maximum(np.maximum(arithmetic, moving), guess.kernel_floor_ns)
    # Short and in less than a wave, it takes its time for latency, which no unit changes.
    rows = rows & ~((kernels.waves < 1.0) & (step.device_ns < LATENCY_NS))
    return np.where(rows, np.minimum(new, step.device_ns), step.device_ns)


def _with_casts(step: Step, products: Bool, roofs: Roofs, guess: Assumptions) -> Step:
    """Conversions of what goes into each product and of what comes out, forward and backward.

    Their bytes are those of the smaller operand, at most a third of what the product moves.
    """
    kernels = step.kernels
    size = np.where(np.isfinite(kernels.size_bytes), kernels.size_bytes, 0.0) / 3
    moved = size / (roofs.bytes_per_s * guess.fused_roof) * 1e9
    adding = CASTS * guess.added_op * usual_call_ns(step)
    casting = np.where(products, np.maximum(moved, guess.kernel_floor_ns), 0.0)
    return replace(
        step,
        before_ns=step.before_ns + np.where(products, adding, 0.0),
        device_ns=step.device_ns + casting,
    )
