"""The same work by other kernels: channels-last images (no conversions around convolutions, norms that
read along memory), narrower numbers (faster units, half the bytes, the conversions that autocast adds),
and attention as one fused call."""

import numpy as np
from msgspec.structs import replace

from brrrtop.kernel_names.traits import Role, Trait
from brrrtop.model.tables import F8, Bool
from brrrtop.whatif.assumptions import USUAL_MEMORY, Assumptions, Roofs, moved_bytes, usual_call_ns
from brrrtop.whatif.step import Step

_PRODUCTS = (Role.GEMM, Role.SKINNY)
_NARROWED = (Role.POINTWISE, Role.POOL, Role.FUSED)
"""What follows a product in its type under autocast; norms of rows, softmax and losses stay fp32
(PyTorch, "Automatic Mixed Precision": ops that autocast to float32)."""
_WIDE = (Role.NORM, Role.SOFTMAX, Role.LOSS, Role.INDEX)
FASTER = 1.2
"""Rates that are nearer to each other than this are one: a data sheet's and a formula's."""
UNSCALE_PASSES = 0.1
"""Traffic of a scaler (gradients read and written) over that of an Adam over lists (some 18 accesses)."""
LATENCY_NS = 10_000.0
"""16-bit products of 64 rows on Hopper's tensor cores take 4 to 7 us (an LSTM's steps on an H200)."""
CASTS = 5 / 3
"""Conversions a product: of weight, bias and input forward and of two gradients backward, for three."""
BACKWARD_FLOP = 1.25
"""A fused backward pass multiplies five times where one written out does four: it recomputes the scores."""


def channels_last(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with images in `torch.channels_last`; None without channels-first convolutions."""
    laid = laid_out(step, roofs, guess)
    if laid is None:
        return None
    edited, conversions = laid
    kernels = step.kernels
    if not (kernels.group_norm & ~kernels.sequences).any():
        return edited.without(conversions)
    # ATen's group norms take channels-first images alone: conversions stay, as ops of their own.
    added = np.where(conversions, guess.added_op * usual_call_ns(step), 0.0)
    return replace(edited, before_ns=edited.before_ns + added)


def laid_out(step: Step, roofs: Roofs, guess: Assumptions) -> tuple[Step, Bool] | None:
    """The step with convolutions and norms over channels-last images, and its nodes that convert between
    layouts; None without channels-first convolutions."""
    kernels = step.kernels
    layout = kernels.is_role(Role.LAYOUT) & ~kernels.sequences
    first = (kernels.has(Trait.NCHW) & ~kernels.sequences) | layout | kernels.depthwise
    convolving = kernels.is_role(Role.CONV, Role.LAYOUT)
    if not (first & convolving & step.launches).any():
        return None
    own = np.isfinite(kernels.last_over_first) & ~kernels.sequences
    own &= kernels.is_role(Role.CONV, Role.GEMM, Role.SKINNY, Role.POOL)
    conv = first & kernels.is_role(Role.CONV)
    norm = first & kernels.is_role(Role.NORM) & ~kernels.group_norm
    reached = np.where(kernels.has(Trait.HALF), guess.norm_roof_16_bit, guess.norm_roof)
    at_roof = moved_bytes(step, roofs, guess) / (roofs.bytes_per_s * reached) * 1e9
    device = np.where(conv, step.device_ns * guess.layout_conv, step.device_ns)
    measured = step.device_ns * kernels.last_over_first * guess.layout_measured
    device = np.where(own, measured, device)
    dearer = layout & kernels.by_group
    device = np.where(dearer, step.device_ns * guess.by_group, device)
    device = np.where(norm, np.minimum(at_roof, device), device)
    return replace(step, device_ns=device), layout & ~dearer


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
    return _autocast(step, roofs, guess, roofs.flop_per_s("bf16"))


def fp16(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step under autocast to fp16 with a GradScaler; None where bf16 is as fast."""
    peak, other = roofs.flop_per_s("fp16"), roofs.flop_per_s("bf16")
    if not peak or not other or peak < FASTER * other or not roofs.has_triton:
        return None
    edited = _autocast(step, roofs, guess, peak)
    if edited is None:
        return None
    # The scaler goes over the gradients before each update, and reads back whether all are finite.
    update = edited.kernels.optimizer & edited.launches
    first = update & ~np.concatenate((update[-1:], update[:-1]))
    scaling = UNSCALE_PASSES * edited.device_ns[update].sum() / max(1, int(first.sum()))
    device = edited.device_ns + np.where(first, scaling, 0.0)
    return replace(edited, device_ns=device, waits=edited.waits | np.roll(first, -1))


def _autocast(step: Step, roofs: Roofs, guess: Assumptions, peak: float | None) -> Step | None:
    kernels = step.kernels
    wide = kernels.is_role(*_PRODUCTS, Role.CONV) & ~kernels.has(Trait.HALF | Trait.DOUBLE)
    wide &= ~kernels.depthwise
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
    return bool(len(rates)) and bool(peak > FASTER * np.median(rates))


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
    moving = size / (roofs.bytes_per_s * np.clip(share, 0.02, USUAL_MEMORY)) * 1e9
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


def sdpa(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with `scaled_dot_product_attention`; None where no attention is written out."""
    rows = step.kernels.eager_attention
    if not rows.any():
        return None
    kernels = step.kernels
    products = rows & kernels.is_role(Role.GEMM, Role.SKINNY)
    peak = roofs.flop_per_s("bf16") or 0.0
    flop = np.where(products, kernels.flop, 0.0) * np.where(kernels.backward, BACKWARD_FLOP, 1.0)
    own = kernels.rates
    rates = np.where(np.isfinite(own), np.minimum(own, peak or np.inf), peak)
    fused = np.where(products, flop / np.maximum(rates * guess.attention_roof, 1.0) * 1e9, 0.0)
    fused = np.where(np.isfinite(fused), fused, np.where(products, step.device_ns, 0.0))
    starts = rows.copy()
    starts[1:] &= ~rows[:-1] | (kernels.backward[1:] != kernels.backward[:-1])
    at = np.flatnonzero(starts)
    run = np.cumsum(starts) - 1
    cost = np.bincount(run[rows], fused[rows], len(at))
    spent = np.bincount(run[rows], step.device_ns[rows], len(at))
    device = step.device_ns.copy()
    device[at] = np.minimum(np.maximum(cost, guess.kernel_floor_ns), spent)
    roles = kernels.roles.copy()
    roles[at] = int(Role.ATTENTION)
    edited = replace(step, device_ns=device, kernels=replace(kernels, roles=roles))
    return edited.take(~rows | starts)
