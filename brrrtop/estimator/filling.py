"""Whether a kernel keeps the GPU busy while it runs."""

from __future__ import annotations

from brrrtop.estimator import families
from brrrtop.estimator.families import Family
from brrrtop.estimator.names import NameFacts
from brrrtop.estimator.ops import GENERATED, STREAMING
from brrrtop.estimator.sides import LAUNCH_FLOOR_NS

LOOPING = frozenset({"optimizer", "random", "reduction", "fused", "quantize", "other"})
"""Families whose kernels launch a fixed grid and loop over their elements."""
STREAMS_ENOUGH, STREAMS_BRIEFLY = 0.55, 0.8
"""Share of the bandwidth from which less than a wave of a product still counts as a busy GPU; of one
shorter than `BRIEF_NS` more. 0.56 to 0.76 of 9 us and more stood for 59 to 78 % of memory throughput,
0.52 and 0.76 of 4 and 5 us for 32 and 44 % (counted H200 products of few rows)."""
BRIEF_NS = 8_000
NEARLY_FULL, NEARLY_FULL_NS, HELD_UP = 0.9, 62_000, 0.4
"""Nearly a wave of a product or convolution that lasts so long at less than `HELD_UP` of the compute roof is
held up by the caches or the shared memory, at 64 to 84 % of the memory throughput (5 of 5 counted kinds, at
0.15 to 0.23 of the roof, H200)."""
NEARLY, NEARLY_NS = 0.46, 50_000
"""Share of the compute roof that is enough for convolutions of nearly a wave that last so long (63 to 66 % of
one throughput at 0.47 to 0.50: 4 of 4 counted kinds, H200; at 0.45 and 43 us it was 45 %)."""
LONG_PRODUCT_NS, LONG_CONV_NS, FEW_WAVES = 20_000, 35_000, 0.3
"""Without shapes: products of less than a wave that last longer loop over enough work to keep the GPU
busy. Convolutions, and products on the CUDA cores with a third of a wave, need more of it: of 20 to 35
us 7 of 7 counted ones were too small (H200). Of 35 to 80 us it were 10 of 13, but those of training
scripts lost more by a later bound than those of the sweep won."""


def enough_of_roof(facts: NameFacts) -> float:
    """Share of a roof at which less than a wave still counts as a busy GPU.

    CUDA-core kernels keep their SMs busy with less of the peak than tensor cores do: a share of 0.39
    stood for 55 % of SM throughput, 0.41 for 59 % and 0.48 for 66 % (counted H200 products).
    """
    return 0.4 if facts.tensor_cores is False else 0.5


def fills_device(
    family: Family,
    facts: NameFacts,
    waves: float | None,
    fills: float | None,
    compute_roof: float | None,
    memory_roof: float | None,
    mean_ns: float,
    cached: bool,
) -> bool:
    """Whether a kernel keeps the GPU busy while it runs.

    Nsight Compute calls a kernel too small when it has less than one wave and neither throughput
    reaches 60 %. With shapes the achieved share of the roof tells; without, a kernel with a block
    on nearly every SM that runs for long has loops over its work and is taken as full.
    """
    if waves is None or fills is None or waves >= 0.995:
        return True
    if compute_roof is not None:
        enough = STREAMS_ENOUGH if mean_ns >= BRIEF_NS else STREAMS_BRIEFLY
        streams = (memory_roof or 0.0) >= enough
        held_up = compute_roof < HELD_UP and mean_ns >= NEARLY_FULL_NS
        nearly = compute_roof >= NEARLY and mean_ns >= NEARLY_NS and family.name == "conv"
        by_length = waves >= NEARLY_FULL and (held_up or nearly)
        return compute_roof >= enough_of_roof(facts) or streams or by_length
    if family.kind == families.COMPUTE or facts.tensor_cores:
        few = family.name == "conv" or (facts.tensor_cores is False and waves < FEW_WAVES)
        return fills >= 0.6 and mean_ns > (LONG_CONV_NS if few else LONG_PRODUCT_NS)
    if memory_roof is not None and family.name in STREAMING | GENERATED:
        # What the cache serves reaches a share of the DRAM's rate and not of its own.
        generated = family.name in GENERATED
        enough = 0.5 if family.name == "reduction" else 0.6 if generated else 0.65
        return memory_roof >= enough and fills >= 0.8 and not cached
    return family.name in LOOPING and fills >= 0.9 and mean_ns > 20 * LAUNCH_FLOOR_NS
