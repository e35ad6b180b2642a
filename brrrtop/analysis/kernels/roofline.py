"""Which side of the roofline a kernel is on, as the articles mean it, and how sure that is.

*Compute* is for contractions (products, convolutions, attention, recurrent cells) above the ridge of
the GPU for their precision. *Memory* is what moves elements, at whatever share of the bandwidth, and
contractions below the ridge. How far below its roof a kernel runs is another figure. *Underfilled*
is launch-scale work: short, less than a wave, and near neither roof; and what has blocks for a few SMs only.

How sure a side is follows from what told it:

| told by | certainty |
|---|---|
| a family that moves elements | `BY_FAMILY` |
| shapes: FLOP per byte beside the ridge | 0.5 at the ridge, `BY_SHAPES` from twice or half of it |
| shapes below the ridge, near neither roof | `UNEXPLAINED` |
| a product's name and duration: below the ridge whatever its inner size | `BY_BOUND` |
| a contraction's name alone: compute | `BY_NAME` |
| counters of the tensor cores beside the DRAM's | `counters` |
| grid and duration: underfilled | `BY_GRID` |

Limits per SM by compute capability: CUDA C++ programming guide, "Compute capabilities"; registers
are allocated per warp in units of 256.
"""

import math
import re

from msgspec import Struct

from brrrtop.analysis.ceilings import ATTAINABLE_MEMORY, Ceilings
from brrrtop.kernel_names import families
from brrrtop.kernel_names.facts import NameFacts
from brrrtop.kernel_names.families import Family
from brrrtop.model.estimate import Side
from brrrtop.model.tables import Device

BY_FAMILY = 0.95
"""Of 131 scripts counted on an H200 it was right for all their time, `BY_BOUND` for 99 % of it, `BY_GRID` for
99 %, `BY_NAME` for 88 %; `BY_SHAPES` for 100 % above the ridge and 90 % below."""
BY_SHAPES = 0.95
BY_BOUND = 0.9
BY_NAME = 0.85
UNEXPLAINED = 0.5
BY_GRID = 0.9
SHORT_UNPLACED = 0.5
"""Of a short kernel whose grid is unknown: it may be underfilled."""

LAUNCH_SCALE_NS = 20_000
"""Longer work is no matter of launches, however few its blocks are."""
FEW_BLOCKS, HALF_THE_SMS = 0.125, 0.5
READS_NS = 5_000
"""A product with few rows that takes longer on most SMs reads its weights: it is not too small a kernel."""
"""Of the SMs: with a block on fewer of them, and only its name known, the other SMs are what a kernel lacks,
however long it runs; the second where its name says nothing."""
BUSY = 0.60
"""Share of either roof from which less than a wave still is a busy GPU: Nsight Compute's own bound."""
EXPLAINS = 0.1
"""Share of a roof below which neither explains the time of a contraction: half of those below the ridge had a
FLOP pipe busier than the DRAM, with work that their shapes do not ask for (131 scripts, H200)."""
HEAD_SIZE = 128
"""Attention's inner size, at most but for a few models: K of what fills the scores, N of what uses them."""
CHANNEL_VECTOR = 8
"""Channels that cuDNN's convolutions on tensor cores load at a time: an image of 3 is filled up."""
ELEMENT_BYTES = {
    "fp64": 8.0, "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5,
}  # fmt: skip
AMD_RIDGES = {"fp16": 180.0, "bf16": 180.0, "fp32": 30.0}
"""FLOP per byte between the ridges of AMD's parts for a part of unknown model: at 16 bits 113 (MI210) to 288
(MI355X), at 32 bits 28 (MI210) to 31 (MI300X) by AMD's data sheets."""
LEAST_RIDGE = 100.0
"""FLOP per byte at 16 bits, as much more as operands are smaller: no GPU with tensor cores has a lower ridge
(MI210: 181 TF over 1.6 TB/s)."""
_DECODES = re.compile(r"paged_attention_(v\d|ll4mi|kernel)|[dD]ecode_?(?!r)|\bpa_fwd")
_LATENT = re.compile(r"mla", re.IGNORECASE)
"""Attention whose heads share one key: as many FLOP per byte as heads."""
_SPLIT_K = re.compile(r"split_?k|streamk|wgrad", re.IGNORECASE)
_DEPTHWISE = re.compile(r"[dD]epthwise|dwconv")
"""A few products for each element of the image: below every ridge."""


class Bound(Struct, frozen=True):
    side: Side
    certainty: float


def is_contraction(family: Family) -> bool:
    """Whether kernels of the family multiply and sum; all others move elements, or nobody knows."""
    return family.kind == families.COMPUTE or family.name == "gemm-skinny"


def ridge_of(
    ceilings: Ceilings, precision: str, tensor_cores: bool | None, clock: float
) -> float | None:
    """FLOP per byte at which the attainable roofs meet.

    Args:
        clock: SM clock over the one the ceilings hold at.
    """
    rate = ceilings.rate(precision, tensor_cores)
    if not rate or not ceilings.bytes_per_s:
        return None
    good = ceilings.attainable_compute / ATTAINABLE_MEMORY
    return rate * clock * good / ceilings.bytes_per_s


def padding(facts: NameFacts, inner: tuple[int, ...], channels: int | None) -> float:
    """Products that a kernel works out over those asked for: whole tiles, and whole vectors of channels.

    Libraries may transpose a product: the tile is taken in the orientation that pads less.

    Args:
        inner: M, N, K of the product; empty where there is none.
        channels: Of a convolution's image, whose vectors tensor cores fill up.
    """
    more = 1.0
    if channels and facts.tensor_cores:
        more = -(-channels // CHANNEL_VECTOR) * CHANNEL_VECTOR / channels
    if not inner or 0 in inner or not facts.tile or 0 in facts.tile:
        return more
    m, n = inner[:2]
    ways = (facts.tile, facts.tile[::-1])
    return more * min(-(-m // a) * a * (-(-n // b) * b) for a, b in ways) / (m * n)


def by_intensity(flop: float, size_bytes: float, ridge: float, reached: float) -> Bound:
    """The side of a contraction whose shapes are known.

    Args:
        flop: With what `padding` adds: the units do it.
        reached: The larger of its shares of the roofs.
    """
    octaves = math.log2(max(flop / max(size_bytes, 1.0), 1e-9) / ridge)
    certainty = 0.5 + (BY_SHAPES - 0.5) * min(1.0, abs(octaves))
    if octaves < 0 and reached < EXPLAINS:
        certainty = UNEXPLAINED
    return Bound(Side.COMPUTE if octaves >= 0 else Side.MEMORY, certainty)


def by_name(name: str, family: Family, ridge: float | None, highest: float | None) -> Bound:
    """The side of a contraction of which only name, grid and duration are known.

    Args:
        highest: FLOP per byte that it cannot be above (`highest_intensity`).
    """
    if family.name == "gemm-skinny" or _DEPTHWISE.search(name):
        return Bound(Side.MEMORY, BY_BOUND)
    if ridge is not None and highest is not None and highest < ridge:
        return Bound(Side.MEMORY, BY_BOUND)
    return Bound(Side.COMPUTE, BY_NAME)


def reads_weights_for_few(
    name: str, family: Family, facts: NameFacts, tokens: int, ridge: float | None
) -> bool:
    """Whether a contraction of a decode pass is below the ridge by its few rows alone.

    A product of T rows does at most 2 T FLOP for each weight that it reads. Attention reads each
    sequence's own keys for one query.

    Args:
        tokens: Rows of the pass; 0: it is in none that is known.
        ridge: Of the GPU at the kernel's precision; None: not known.
    """
    if family.name == "attention":
        return not _LATENT.search(name) and (tokens > 0 or _DECODES.search(name) is not None)
    element = ELEMENT_BYTES.get(facts.precision or "", 2.0)
    return 0 < 2 * tokens / element < (ridge or LEAST_RIDGE * 2.0 / element)


def highest_intensity(
    name: str,
    facts: NameFacts,
    blocks: int,
    sms: int | None,
    flop_at_most: float | None,
    is_score: bool,
) -> float | None:
    """FLOP per byte that a product cannot be above; None where its name does not say.

    One tile a block gives M and N together. Within its duration the units do at most `flop_at_most`, so
    K ≤ flop / 2MN, and intensity is highest where M = N. Grids that split K, and those of no more
    blocks than the GPU has SMs, whose blocks go through many tiles, tell nothing.
    """
    element = ELEMENT_BYTES.get(facts.precision or "")
    if element is None or not flop_at_most:
        return None
    inner = float(HEAD_SIZE) if is_score else math.inf
    across = math.inf
    persistent = sms is not None and blocks <= sms and "nvjet" in name
    if facts.tile and 0 not in (*facts.tile, blocks) and not (persistent or _SPLIT_K.search(name)):
        outputs = float(blocks * facts.tile[0] * facts.tile[1])
        inner = min(inner, flop_at_most / (2 * outputs))
        across = math.sqrt(outputs)
    if math.isinf(inner):
        return None
    return 2.0 / (element * (2.0 / across + 1.0 / max(inner, 1e-9)))


def is_launch_scale(
    mean_ns: float, waves: float | None, compute_roof: float | None, memory_roof: float | None
) -> bool:
    """Whether a kernel is too small for the GPU, and so a matter of launches.

    Args:
        memory_roof: None as well where its tensors fit into the level-2 cache, and DRAM sees little of them.
    """
    if waves is None or waves >= 1.0 or mean_ns >= LAUNCH_SCALE_NS:
        return False
    return max(compute_roof or 0.0, memory_roof or 0.0) < BUSY


_THREADS_PER_SM = {
    (7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (11, 0): 1536, (12, 0): 1536, (12, 1): 1536,
}  # fmt: skip
_BLOCKS_PER_SM = {
    (7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24, (11, 0): 24, (12, 0): 24, (12, 1): 24,
}  # fmt: skip
_SHARED_PER_SM = {
    7: 96 << 10, 8: 164 << 10, 9: 228 << 10, 10: 228 << 10, 11: 228 << 10, 12: 100 << 10,
}  # fmt: skip
"""By major capability; `_SMALL_SHARED` where a minor one has less."""
_SMALL_SHARED = {(7, 5): 64 << 10, (8, 6): 100 << 10, (8, 9): 100 << 10}
RESERVED_SINCE_8 = 1024
"""Shared memory of each block that the system keeps, from compute capability 8.0 on."""


def blocks_per_sm(device: Device, threads: int, registers: int, shared_bytes: int) -> int:
    capability = device.capability or (8, 0)
    most_threads = device.max_threads_per_sm or _THREADS_PER_SM.get(capability, 2048)
    limits = [_BLOCKS_PER_SM.get(capability, 32)]
    warps = max(1, -(-threads // 32))
    limits.append(most_threads // (warps * 32))
    if registers > 0:
        per_warp = -(-registers * 32 // 256) * 256
        limits.append((device.registers_per_sm or 65536) // (per_warp * warps))
    if shared_bytes > 0:
        usual = _SHARED_PER_SM.get(capability[0], 100 << 10)
        room = device.shared_bytes_per_sm or _SMALL_SHARED.get(capability, usual)
        kept = RESERVED_SINCE_8 if capability >= (8, 0) else 0
        limits.append(room // (shared_bytes + kept))
    return max(1, min(limits))
