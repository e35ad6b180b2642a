"""Rules about arithmetic: the unit it runs on, shapes and layouts that keep it off the fast one."""

from __future__ import annotations

import math
import re

from brrrtop.advisories.context import Context, advisory
from brrrtop.analysis.kernels.traits import Role, Trait, role_of, traits_of
from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import KernelRow
from brrrtop.text import units

_SKINNY = re.compile(
    r"gemv|dot_kernel|nvjet_(?:sm\d+_)?[a-z0-9]+_(?:(?:8|16|24|32)x\d+|\d+x(?:8|16|24|32))_"
)
_PRODUCTS = frozenset({Role.GEMM, Role.CONV, Role.SKINNY})
OLD_KERNEL = 0.8
"""Part of the time a Turing or Ampere kernel loses on Hopper and later: 5-7 % of the peak were
seen where aligned kernels reach 70 %."""
LATENCY_NS = 10_000
"""A product shorter than this that does not fill the GPU gains nothing from a faster unit: 16-bit ones
on Hopper's tensor cores take 4 to 7 us for 64 rows (an LSTM's steps on an H200)."""
SCALAR_LOADS = 0.6
"""The same for scalar loads in a kernel of the device's own generation."""


def _peak(context: Context, precision: str) -> float | None:
    return context.ceilings.flop_per_s.get(precision) if context.ceilings else None


def _rows(context: Context, wanted: Trait) -> list[tuple[KernelRow, float]]:
    """Products of a trait with the part of their time that a faster unit can touch, ns.

    A short product that leaves SMs idle is latency: launch, fill and drain take as long on any unit.
    """
    found = []
    for row in context.estimate.kernels:
        if traits_of(row.name) & wanted and role_of(row.name) in _PRODUCTS:
            short = row.mean_ns < LATENCY_NS
            found.append((row, row.total_ns * (1 - row.underfilled_share if short else 1.0)))
    return found


def _spared_ns(
    context: Context,
    wanted: Trait,
    spent_ns: float,
    precision: str,
    otherwise: float,
) -> float:
    """Most that products of a trait can lose, given the peak of the format they should run in.

    t - max(F / peak, Q / bandwidth) where shapes tell the FLOPs of at least half of them:
    no kernel beats the datasheet. Else the part `otherwise`.

    Args:
        spent_ns: Time of all such products.
    """
    peak = _peak(context, precision)
    roof = (context.ceilings.bytes_per_s if context.ceilings else None) or math.inf
    known = least = 0.0
    for row, time_ns in _rows(context, wanted) if peak else ():
        if peak and row.flop_per_s:
            known += time_ns
            moved = (row.bytes_per_s or 0.0) / roof
            least += time_ns * min(max(row.flop_per_s / peak, moved), 1.0)
    if not peak or known < spent_ns / 2:
        return spent_ns * otherwise
    return spent_ns * (1 - least / max(known, 1.0))


def tensor_core_alignment(context: Context) -> Advisory | None:
    """16-bit products whose rows are no multiple of 16 bytes."""
    used = context.facts.precision
    if context.share(used.misaligned_ns) < context.limits.misaligned_share:
        return None
    sizes = ", ".join(str(size) for size in used.odd_sizes)
    lost = OLD_KERNEL if context.capability >= (9, 0) else SCALAR_LOADS
    return advisory(
        context,
        "tensor-core-alignment",
        says=f"{units.share(context.share(used.misaligned_ns))} of the time goes to products that "
        "load one or two elements at a time" + (f" (sizes {sizes})" if sizes else ""),
        suggests="pad rows to a multiple of 8, better 64: "
        "nn.Linear(d, -(-out // 64) * 64), vocabulary and sequence too",
        waste="switching AMP on or off: the rows stay odd",
        confidence=0.9 if used.odd_sizes else 0.8,
        saves=context.device_side(
            _spared_ns(context, Trait.MISALIGNED, used.misaligned_ns, "bf16", lost)
        ),
        misaligned_share=context.share(used.misaligned_ns),
        odd_sizes=list(used.odd_sizes),
        kernel=used.misaligned_names[0] if used.misaligned_names else None,
    )


def fusion_ceiling(context: Context) -> Advisory | None:
    """Attention kernels written for an older generation than the device's."""
    used = context.facts.precision
    share = context.share(used.old_attention_ns)
    if share < context.limits.backend_share or context.capability < (9, 0):
        return None
    return advisory(
        context,
        "fusion-ceiling",
        says=f"{units.share(share)} of the time is fused attention written for Ampere: on this GPU "
        "it reaches about a third of the peak, where matmuls reach 80 %",
        suggests="with torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION): — or "
        "FlashAttention 3",
        waste="fusing more around it: a kernel of the last generation has its own ceiling",
        confidence=0.5,
        saves=context.device_side(0.5 * used.old_attention_ns),
        attention_share=share,
    )


def skinny_products(context: Context) -> Advisory | None:
    """Products with a few rows: the weights go through memory for little work."""
    rows = [r for r in context.estimate.kernels if _SKINNY.search(r.name)]
    spent = sum(r.total_ns for r in rows)
    if context.share(spent) < context.limits.skinny_share:
        return None
    return advisory(
        context,
        "skinny-products",
        says=f"{units.share(context.share(spent))} of the time multiplies with a few rows only: "
        "the weights are read for little work",
        suggests="batch more rows, pack sequences, or merge the projections into one product",
        waste="tensor-core tuning: these products move bytes",
        confidence=0.6,
        saves=context.device_side(spent / 2),
        skinny_share=context.share(spent),
    )


def cudnn_benchmark(context: Context) -> Advisory | None:
    """Direct and transform convolutions where implicit GEMMs exist."""
    spent = context.facts.precision.old_conv_ns
    if context.share(spent) < context.limits.old_conv_share:
        return None
    return advisory(
        context,
        "cudnn-benchmark",
        says=f"{units.share(context.share(spent))} of the time runs convolution algorithms that no "
        "one would pick today",
        suggests="torch.backends.cudnn.benchmark = True (fixed shapes), 16-bit and channels-last",
        waste="benchmark mode where shapes vary: it would search again and again",
        confidence=0.5,
        saves=context.device_side(spent / 2),
        old_conv_share=context.share(spent),
    )


def double_precision(context: Context) -> Advisory | None:
    """Fp64 by accident."""
    used = context.facts.precision
    if context.share(used.double_ns) < context.limits.double_share:
        return None
    return advisory(
        context,
        "double-precision",
        says=f"{used.double_kernels} fp64 kernels take "
        f"{units.share(context.share(used.double_ns))} of the time",
        suggests="torch.as_tensor(x, dtype=torch.float32): numpy arrays and Python scalars bring "
        "float64 in",
        confidence=0.75,
        # Half the bytes; what only converts is not needed at all.
        saves=context.device_side((used.double_ns + used.double_cast_ns) / 2),
        double_share=context.share(used.double_ns),
        double_kernels=used.double_kernels,
    )
