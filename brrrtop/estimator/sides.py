"""Chance that kernels are bound by their arithmetic or instructions and not by memory, from the
evidence at hand (regime theory study, 1.6 and 1.7): rules, for GPUs that no trees were grown on
(`learned`)."""

from __future__ import annotations

import math
import re

from brrrtop.estimator.families import Family
from brrrtop.estimator.names import NameFacts
from brrrtop.estimator.offsets import ANY, Cost, casts, cost_of
from brrrtop.estimator.ops import GEMMS, GENERATED, STREAMING, Work
from brrrtop.estimator.walks import Walk
from brrrtop.tables import OpSignature

LAUNCH_FLOOR_NS = 1000
"""Duration of an empty kernel on an H100 or H200 (1.1-1.6 us shortest seen; calibrated values
may replace it): this much of a kernel does not shrink or grow with its work."""
STRIDED_FLOOR_NS = 3 * LAUNCH_FLOOR_NS
"""Shorter strided kernels say nothing by their pace."""
VECTORIZED_TURN = 0.655
"""Share of the bandwidth above which vectorised pointwise kernels are bound by it, below by instructions.
Fitted on counted H200 kernels of 15 scripts (benchmarks/truth/holdout.py)."""
MOVED_PART = 1.03
"""Memory throughput of strided pointwise kernels over the share of the bandwidth that their shapes tell."""
CACHED_PART = 0.6
"""The same of those whose tensors fit into the level-2 cache together: 0.47 to 0.96 in 44 of 47 counted kinds
of 10 us and more, all of them with the higher SM throughput."""
EXPONENTIAL_TURN = 0.65
"""Share of the bandwidth below which instructions bind kernels that take an exponential of each element:
softmax forward by warps, Inductor's with one in their name. They did at 0.29 to 0.65, at 0.8 no longer."""
SCATTERED_BELOW, SCATTERED_IN_CACHE, SCATTERED_NS = 0.9, 0.75, 20_000
"""Elements per cycle and SM. Strided pointwise kernels of an H200 that are bound by their
instructions work through 1.1 to 2.4, whatever the size of an element; those that transpose, through
0.6 to 0.7 (counted kernels of the same 15 scripts). So do those that transpose what the level-2 cache
holds (0.67: 26 % of the SM throughput beside 91 % of the cache's), but short ones are slow anyway."""


EXPLAINS = 0.35
"""Share of a roof from which it explains a kernel's time (regime theory study, 1.8). Under that the
nearness of one of them says the less of a kernel on the CUDA cores, the further off both are: with its
square, as first convolutions of one channel show (0.04 and 0.14 of the roofs, 41 % of the SM throughput)."""
NAME_BESIDE_SHAPES = 0.3
"""Of what the name says of a product on the tensor cores, what counts where shapes tell both roofs. Of 83
decided kinds that are nearer to the memory roof by a fifth and more none had the higher SM throughput; with
the whole of it their sides turn at 0.6 of the ratio (70 scripts and the sweep, H200)."""
_LAYER_NORM = "vectorized_layer_norm_kernel"
"""Turns sharply: compute at 0.53 of the bandwidth and less (27 of 27 counted kinds, five of them within 10
points), memory at 0.60 and more (3 of 3). Reductions of four waves and more do as well: 82 and 75 % of the
SM throughput at 0.17 and 0.37, 37 % beside 77 % at 0.71 to 0.77."""
_GENERATED_EXPONENTIAL = re.compile(
    r"^triton_(?!.*backward_data).*(softmax|(?<!hard)sigmoid(?!_backward)|_exp_)"
)
IN_CACHE_NS = 9_100
"""Shorter full grids of cuDNN's layout kernels work on what the cache holds: 14 of 17 counted ones of
float under 9.1 us had the higher SM throughput, 12 of 13 longer ones the higher memory throughput (H200)."""
WITH_EXPONENTIALS = 0.37
"""Share of the compute roof that forward attention counts as at least (`with_exponentials`)."""
_FLASH = re.compile(r"sdpa_sm\d+_flash|flash_fwd")
_WIDE_CONCAT = re.compile(r"CatArrayBatchedCopy_(vectorized|aligned)")
_EXPONENTIAL = re.compile(
    r"softmax_warp_forward|^triton_.*(softmax(?!_backward)|(?<!hard)(sigmoid|tanh)(?!_backward)|gelu|silu"
    r"|_erfc?_|_exp2?_|expm1|sumexp|addexp|a(sin|cos|tan)h_|lgamma|digamma|erfinv)"
)
"""Neither hardtanh, which is what ReLU6 is, nor the gradients of sigmoid and tanh take one, and `expand`
and `overflow` only have the letters."""


_EVEN = re.compile(
    r"_tn_\w*tilesize(32|64)x(32|64)x\d+\w*ffma|sgemm_(32|64)x(32|64)_\w*tn_"
    r"|nvjet_(sm90_)?[a-z]+_(128x192|192x128|320x128|128x320)_"
)


def at_most_even(probability: float, name: str) -> float:
    """No surer than a coin of products that load the shared memory as much as they multiply.

    On the CUDA cores those in small tiles with the first operand transposed (74 to 88 % of the SM
    throughput beside 77 to 93 % of the memory throughput, 3 to 36 % of the DRAM, in 8 of 8 counted ones
    that fill an H200); of cuBLAS's for Hopper two shapes of tiles (76 to 88 % beside 78 to 90 %, 10 of 10;
    with tiles of 256x128 it is 18 points less).
    """
    return min(probability, 0.5) if _EVEN.search(name) else probability


def with_exponentials(
    reached: float | None, family: Family, facts: NameFacts, name: str, mean_ns: float
) -> float | None:
    """Share of the compute roof of a kernel with what its softmax takes, at least.

    Attention forward takes an exponential of each score, beside the products: of shapes at 3 to 49 % of
    the tensor cores' roof cuDNN's and FlashAttention's were at 39 to 63 % of the SM throughput (18 of 18
    counted kinds of 20 us and more, H200).
    """
    forward = family.name == "attention" and not facts.backward and _FLASH.search(name)
    if reached is None or not forward or mean_ns < 20 * LAUNCH_FLOOR_NS:
        return reached
    return max(reached, WITH_EXPONENTIALS)


def padding(facts: NameFacts, work: Work | None) -> float:
    """Products that a kernel works out over those asked for: it fills whole tiles.

    Libraries may turn a product over, so the tile lies the way that wastes less.
    """
    if not facts.tile or 0 in facts.tile:
        return 1.0
    if work is None or work.families is not GEMMS or not work.inner:
        return 1.0
    m, n, _ = work.inner
    if not m or not n:
        return 1.0
    ways = (facts.tile, facts.tile[::-1])
    return min(-(-m // a) * a * (-(-n // b) * b) for a, b in ways) / (m * n)


def by_roofs(
    family: Family, facts: NameFacts, side_ratio: float, padded: float, reached: float
) -> float:
    """Chance of the compute side where shapes tell both roofs, fused with the name as log-odds.

    Args:
        side_ratio: How much nearer the compute roof than the memory roof, at the clock.
        padded: The more of a product is padding, the less does its name say of it.
        reached: The larger of the two shares of a roof.
    """
    odds = log_odds(family.prior) / padded
    odds *= NAME_BESIDE_SHAPES if facts.tensor_cores else 1.0
    trust = min(1.0, (reached / EXPLAINS) ** 2) if facts.tensor_cores is False else 1.0
    odds += trust * min(6.0, max(-6.0, 4.0 * math.log(max(side_ratio, 1e-6))))
    backward = family.name == "attention" and facts.backward
    return min(chance(odds), 0.65) if backward else chance(odds)


def by_name(
    family: Family,
    facts: NameFacts,
    memory_roof: float | None,
    waves: float | None,
    mean_ns: float,
    pace: float | None,
    name: str,
    cached: bool,
    op: OpSignature | None,
    walk: Walk | None = None,
) -> float:
    """Chance of the compute side by name and bytes, levels fused as log-odds.

    Args:
        pace: Elements per cycle and SM.
        cached: Its tensors fit into the level-2 cache together.
        op: What the bytes come from; None: from the name.
        walk: How a strided kernel goes through its operands; None where nobody tells.

    The constants of the pointwise kernels are fitted to Nsight Compute's throughputs on an H200
    (15 scripts, torch 2.11): which side is higher against the share of the bandwidth reached.
    """
    long = (waves or 0) >= 4 and mean_ns > 15 * LAUNCH_FLOOR_NS
    short_strided = facts.strided and (waves or 0) >= 1 and mean_ns > STRIDED_FLOOR_NS
    if facts.elements_per_thread and memory_roof is not None and (long or short_strided):
        cost, slow = cost_of(name, op, walk), scattered_below(name, cached, mean_ns)
        return chance(pointwise_odds(facts, memory_roof, pace, cached, cost, slow))
    if memory_roof is not None and (waves or 0) >= 1 and _EXPONENTIAL.search(name):
        return chance(min(2.5, max(-2.5, 10.0 * (EXPONENTIAL_TURN - memory_roof))))
    odds = log_odds(_prior(family, facts, mean_ns, waves, name))
    norm = family.name == "norm" and "reduce_kernel" not in name
    waits = long or (norm and (waves or 0) >= 1 and mean_ns > 5 * LAUNCH_FLOOR_NS)
    if memory_roof is not None and waits and family.name in STREAMING | GENERATED:
        # A full grid well under the bandwidth roof waits for instructions, not bytes.
        sharp, turn = 2.0 if _LAYER_NORM in name else 1.0, 0.45
        if family.name == "reduction":
            sharp, turn = 3.0, 0.48
        odds += sharp * min(1.5, max(-3.0, 6.0 * (turn - memory_roof)))
    return chance(odds)


def _prior(
    family: Family, facts: NameFacts, mean_ns: float, waves: float | None, name: str
) -> float:
    """By the name alone.

    Inductor's exponentials cost instructions, and so do the offsets of strided pointwise kernels (126 of
    155 counted kinds; how fast they ran is what would tell). Concatenations spend them on each element
    (11 to 76 % of the SM throughput beside 1 to 40 %, 10 of 10), unless they copy wide words (7 to 31 %
    beside 34 to 83 %, 10 of 10). Copies that rearrange do as well: on elements of two bytes more of them
    than the memory needs time, on those of four only where the cache serves them; cuDNN's padding moves
    more than it works out (4 of 4).
    """
    if family.name == "fused" and (waves is None or waves >= 1):
        if _GENERATED_EXPONENTIAL.search(name):
            return 0.4 if name.startswith("triton_poi") else 0.65
        return 0.4 if _EXPONENTIAL.search(name) else family.prior
    if facts.strided and facts.elements_per_thread and (waves is None or waves >= 1):
        return max(0.5, family.prior)
    if family.name not in ("concat", "layout") or family.prior > 0.5:
        return family.prior
    if family.name == "concat":
        return 0.12 if _WIDE_CONCAT.search(name) else 0.8
    if facts.element_bytes is None:
        return family.prior
    if "AddPadding" in name:
        return 0.3
    if family.name == "layout" and mean_ns < IN_CACHE_NS:
        return 0.7
    return 0.7 if facts.element_bytes <= 2 else 0.35


def scattered_below(name: str, cached: bool, mean_ns: float) -> float:
    """Pace under which accesses of a strided kernel do not coalesce; those that look up types are slow
    by themselves."""
    if cached:
        return SCATTERED_IN_CACHE if mean_ns > SCATTERED_NS else 0.0
    return SCATTERED_IN_CACHE if casts(name) else SCATTERED_BELOW


def pointwise_odds(
    facts: NameFacts,
    memory_roof: float,
    pace: float | None,
    cached: bool = False,
    cost: Cost = ANY,
    slow: float = SCATTERED_BELOW,
) -> float:
    """Odds of the compute side of an ATen pointwise kernel that fills the GPU.

    Vectorised ones reach 75-90 % of the bandwidth unless they compute something dear; strided ones
    work out an offset per element, and the share of the issue slots that takes is weighed against
    the share of the bandwidth, both of which grow with the pace; much slower than instructions
    explain, their accesses do not coalesce and the memory system is the limit again.

    Args:
        slow: Pace under which that holds (`scattered_below`).
    """
    if not facts.strided:
        return min(2.0, max(-4.0, 16.0 * (VECTORIZED_TURN - memory_roof)))
    if not pace or memory_roof <= 0:
        return 0.0
    if pace < slow:
        return -1.8
    moved = memory_roof * (CACHED_PART if cached else MOVED_PART)
    return min(3.0, max(-3.0, cost.slope * math.log(cost.issue * pace / moved)))


def log_odds(probability: float) -> float:
    held = min(max(probability, 0.02), 0.98)
    return math.log(held / (1 - held))


def chance(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds))
