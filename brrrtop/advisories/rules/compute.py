"""Rules about arithmetic: the unit it runs on, shapes and layouts that keep it off the fast one."""

import re
from collections import Counter

import numpy as np

from brrrtop.advisories.context import Context
from brrrtop.advisories.registry import COMPUTE, Finding, edit, finding, rule
from brrrtop.analysis.facts.table import Facts
from brrrtop.kernel_names.traits import Role, Trait, traits_of
from brrrtop.model.advice import WhatIf
from brrrtop.model.tables import Bool
from brrrtop.text import units

_PRODUCTS = (Role.GEMM, Role.CONV, Role.SKINNY)
_SKINNY = re.compile(
    r"gemv|dot_kernel|nvjet_(?:sm\d+_)?[a-z0-9]+_(?:(?:8|16|24|32)x\d+|\d+x(?:8|16|24|32))_"
)
OLD_KERNEL, SCALAR_LOADS = 0.8, 0.6
"""Part of the time that a kernel with scalar loads loses: one of Turing or Ampere on Hopper and later, where
5-7 % of the peak were seen and aligned kernels reach 70 %; one of the device's own generation."""
BIG_BLOCKS = 16
"""GEMMs of fewer blocks pick odd kernels by design: they say nothing about alignment."""
MISALIGNED = 0.03
"""Of the wall: one odd head takes less."""
BACKEND = SKINNY = 0.1
"""Attention that takes less of the wall cannot win 5 % by its backend; a classifier on one row takes less."""
OLD_CONV = 0.05
"""A first layer of three channels takes less."""
DOUBLE = 0.02
"""A metric in fp64 takes less."""


@edit(
    "enable-tf32-or-amp", COMPUTE, "fp32 on the CUDA cores", "tf32 bf16 fp16",
    when=", and most products run on the CUDA cores",
    unless="GeForce, where TF32 is no faster (16 bit is); short products that do not fill the GPU; "
    "thin ones that memory sets the pace of; a run that launches set the pace of",
    covers=("cudnn-benchmark",),
)  # fmt: skip
def enable_tf32_or_amp(context: Context, row: WhatIf) -> Finding | None:
    seen, line = context.facts, 'torch.set_float32_matmul_precision("high")'
    slow = products = seen.has(Trait.SIMT) & ~seen.is_role(Role.CONV)
    if row.edit == "tf32" and context.spent(seen.has(Trait.SIMT) & ~products) > context.spent(
        products
    ):
        # Convolutions have TF32 unless somebody took it away.
        slow, line = seen.has(Trait.SIMT), f"torch.backends.cudnn.allow_tf32 = True; {line}"
    elif row.edit == "bf16":
        if not _on_cuda_cores(context):
            return None
        slow, line = seen.has(Trait.SIMT), _AUTOCAST
    elif row.edit == "fp16":
        slow, line = seen.has(Trait.SIMT), _FP16
    return finding(
        f"fp32 products on the CUDA cores take {units.share(context.spent(slow))} of the time; "
        "the tensor cores idle",
        line,
        share=context.spent(slow),
        simt_gemm_share=context.spent(products),
    )


@edit(
    "use-bf16", COMPUTE, "32 bits where 16 would do", "bf16",
    when=", and tensor cores run most products already, or TF32 alone wins nothing",
    unless="products of 16 bits; short ones that do not fill the GPU",
)  # fmt: skip
def use_bf16(context: Context, row: WhatIf) -> Finding | None:
    if _on_cuda_cores(context):
        return None
    share = context.spent(context.facts.is_role(*_PRODUCTS))
    return finding(
        f"products of 32 bits take {units.share(share)} of the time; 16 bits run "
        "faster and move half the bytes",
        _AUTOCAST,
        share=share,
        product_share=share,
    )


_FP16 = (
    "with torch.autocast('cuda', torch.float16): around the forward pass, and torch.amp.GradScaler('cuda') "
    "around backward and step: this GPU has no units for bf16"
)
_AUTOCAST = "with torch.autocast('cuda', torch.bfloat16): around the forward pass"


def _on_cuda_cores(context: Context) -> bool:
    """Whether most products run there, and another unit would be faster."""
    seen, other = context.facts, context.price("tf32")
    slow = 2 * context.spent(seen.has(Trait.SIMT)) > context.spent(seen.is_role(*_PRODUCTS))
    return slow and (other is None or context.worth(other.saves))


@rule(
    "tensor-core-alignment", COMPUTE, "Rows that are no multiple of 16 bytes",
    when="16-bit products that load one or two elements at a time take 3 % of the time",
    unless="small products; fp32, which has no such rule",
)  # fmt: skip
def tensor_core_alignment(context: Context) -> Finding | None:
    seen, window = context.facts, context.facts.window
    odd = seen.has(Trait.MISALIGNED) & ~seen.is_role(Role.CONV)
    odd &= window.activities.blocks >= BIG_BLOCKS
    share = context.spent(odd)
    if share < MISALIGNED:
        return None
    sizes = _odd_sizes(seen, odd)
    listed = ", ".join(str(size) for size in sizes)
    time = np.bincount(window.activities.name_ids[odd], seen.durations_ns[odd])
    lost = OLD_KERNEL if context.capability >= (9, 0) else SCALAR_LOADS
    # At most up to the roof, where shapes tell how far it is.
    rows = [r for r in context.estimate.kernels if traits_of(r.name) & Trait.MISALIGNED]
    left = [(r.total_ns, lost if r.roof_share is None else 1 - r.roof_share) for r in rows]
    lost = sum(spent * part for spent, part in left) / max(sum(spent for spent, _ in left), 1)
    return finding(
        f"{units.share(share)} of the time goes to products that load one or two elements at a time"
        + (f" (sizes {listed})" if sizes else ""),
        "pad rows to a multiple of 8, better 64: "
        "nn.Linear(d, -(-out // 64) * 64), vocabulary and sequence too",
        waste="switching AMP on or off: the rows stay odd",
        confidence=0.9 if sizes else 0.8,
        saves=context.device_side(lost * seen.total_ns(odd)),
        misaligned_share=share,
        odd_sizes=sizes,
        kernel=window.names[int(np.argmax(time))],
    )


def _odd_sizes(facts: Facts, rows: Bool) -> list[int]:
    """Inner sizes that are no multiple of 8, from recorded shapes, most frequent first, four at most."""
    window = facts.window
    ids, counts = np.unique(
        window.links.ops_of(window.activities.correlations[rows]), return_counts=True
    )
    sizes: Counter[int] = Counter()
    for op_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
        op = window.ops.get(op_id)
        shapes = [dims for dims in op.dims if isinstance(dims, tuple)] if op else []
        inner = {size for dims in shapes if len(dims) >= 2 for size in dims[-2:]}
        for size in inner:
            if isinstance(size, int) and size % 8 and size > 8:
                sizes[size] += count
    return [size for size, _ in sizes.most_common(4)]


@edit(
    "flash-attention", COMPUTE, "Attention written out", "sdpa",
    unless="losses, routing and sampling between products; fused attention",
    covers=("inefficient-kernel", "needless-copies", "fusion-ceiling"),
)  # fmt: skip
def flash_attention(context: Context, row: WhatIf) -> Finding | None:
    written = context.attention
    if written is None:
        return None
    shape = written.shape
    share = context.share(int(context.facts.durations_ns[written.rows].sum()))
    names = context.facts.window.names
    ids = np.unique(context.facts.window.activities.name_ids[written.rows])
    drops = any("dropout" in names[one] for one in ids)
    return finding(
        f"attention written out takes {units.share(share)} of the time"
        + (f": {shape[1]} x {shape[2]} scores, {shape[0]} heads a call" if shape else ""),
        "torch.nn.functional.scaled_dot_product_attention(q, k, v) in place of softmax(q @ k.T) @ v, with "
        "is_causal=True for a causal mask, attn_mask=mask for any other"
        f"{', and dropout_p as it is now' if drops else ''}",
        share=share,
        attention_share=share,
        score_shape=list(shape) if shape else None,
    )


@rule(
    "fusion-ceiling", COMPUTE, "Fused, but for the last generation",
    when="attention kernels written for Ampere take 10 % of the time on Hopper or later",
    unless="kernels of the GPU's own generation",
)  # fmt: skip
def fusion_ceiling(context: Context) -> Finding | None:
    spent = context.facts.total_ns(context.facts.has(Trait.FLASH2))
    if context.share(spent) < BACKEND or context.capability < (9, 0):
        return None
    return finding(
        f"{units.share(context.share(spent))} of the time is fused attention written for Ampere: on this "
        "GPU it reaches about a third of the peak, where matmuls reach 80 %",
        "with torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION): — or FlashAttention 3",
        confidence=0.5,
        saves=context.device_side(spent / 2),
        attention_share=context.share(spent),
    )


@rule(
    "skinny-products", COMPUTE, "Matrix times vector",
    when="matrix-vector kernels take 10 % of the time",
    unless="narrow tiles of large products",
    covers=("fusion-ceiling",),
)  # fmt: skip
def skinny_products(context: Context) -> Finding | None:
    spent = sum(r.total_ns for r in context.estimate.kernels if _SKINNY.search(r.name))
    if context.share(spent) < SKINNY:
        return None
    return finding(
        f"{units.share(context.share(spent))} of the time multiplies with a few rows only: "
        "the weights are read for little work",
        "batch more rows, pack sequences, or merge the projections into one product",
        waste="tensor-core tuning: these products move bytes",
        confidence=0.6,
        saves=context.device_side(spent / 2),
        skinny_share=context.share(spent),
    )


@rule(
    "cudnn-benchmark", COMPUTE, "Convolution algorithms of the past",
    when="direct and transform convolutions take 5 % of the time",
    unless="the first steps, in which cuDNN tries them; fp32 without tensor cores",
)  # fmt: skip
def cudnn_benchmark(context: Context) -> Finding | None:
    seen = context.facts
    spent = seen.total_ns(seen.is_role(Role.CONV) & seen.has(Trait.OLD_CONV))
    if context.share(spent) < OLD_CONV:
        return None
    return finding(
        f"{units.share(context.share(spent))} of the time runs convolution algorithms that no "
        "one would pick today",
        "torch.backends.cudnn.benchmark = True (fixed shapes), 16-bit and channels-last",
        waste="benchmark mode where shapes vary: it would search again and again",
        confidence=0.5,
        saves=context.device_side(spent / 2),
        old_conv_share=context.share(spent),
    )


@rule(
    "double-precision", COMPUTE, "fp64 by accident",
    when="kernels over double take 2 % of the time",
    unless="double scalars as arguments of fp32 kernels",
)  # fmt: skip
def double_precision(context: Context) -> Finding | None:
    rows = context.facts.kernels & context.facts.has(Trait.DOUBLE)
    share, count = context.spent(rows), int(rows.sum())
    if share < DOUBLE:
        return None
    return finding(
        f"{count} fp64 kernels take {units.share(share)} of the time",
        "torch.as_tensor(x, dtype=torch.float32): numpy arrays and Python scalars bring float64 in",
        confidence=0.75,
        saves=context.device_side(context.facts.total_ns(rows) / 2),  # half the bytes
        double_share=share,
        double_kernels=count,
    )
