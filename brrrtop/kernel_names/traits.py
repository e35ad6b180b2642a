"""What a kernel's name gives away that advice needs: its role, and traits beyond its family.

Knows names only; time and launches are joined elsewhere (`brrrtop.analysis.facts.joined`).
"""

import re
from collections.abc import Callable, Sequence
from enum import IntEnum, IntFlag
from functools import lru_cache

import numpy as np

from brrrtop.kernel_names.facts import name_facts
from brrrtop.kernel_names.families import family_of
from brrrtop.model.tables import I8, Bool, Window


class Role(IntEnum):
    """What a kernel does, as far as advice cares: families that share a fix share a role."""

    OTHER = 0
    GEMM = 1
    CONV = 2
    ATTENTION = 3
    POINTWISE = 4
    NORM = 5
    REDUCTION = 6
    SOFTMAX = 7
    LOSS = 8
    OPTIMIZER = 9
    LAYOUT = 10
    INDEX = 11
    FUSED = 12
    COMM = 13
    COPY = 14
    SET = 15
    SKINNY = 16
    POOL = 17


_FAMILIES = {
    Role.COMM: "collective", Role.COPY: "copy", Role.SET: "memset", Role.GEMM: "gemm gemm-grouped",
    Role.SKINNY: "gemm-skinny gemm-epilogue gemm-reduce", Role.CONV: "conv conv-transform",
    Role.LAYOUT: "layout", Role.ATTENTION: "attention attention-aux", Role.FUSED: "fused",
    Role.NORM: "norm", Role.SOFTMAX: "softmax", Role.OPTIMIZER: "optimizer",
    Role.INDEX: "index sort routing", Role.REDUCTION: "reduction", Role.POOL: "pool",
    Role.POINTWISE: "random concat activation elementwise rearrange",
}  # fmt: skip
_ROLE_OF_FAMILY = {name: role for role, names in _FAMILIES.items() for name in names.split()}


class Trait(IntFlag):
    NONE = 0
    SIMT = 1
    """fp32 on the CUDA cores: no tensor core touches it."""
    TF32 = 2
    HALF = 4
    """16-bit inputs."""
    DOUBLE = 8
    MISALIGNED = 16
    """A GEMM that loads one or two elements at a time."""
    NCHW = 64
    """Works on channels-first images."""
    FOREACH = 128
    """One launch for many tensors."""
    FUSED_STEP = 256
    """The whole optimizer update in one kernel."""
    ADAM_PART = 512
    """One of the operations an unfused Adam is made of."""
    CAST = 1024
    """Converts between floating-point types and does nothing else: arithmetic that converts what it
    reads is needed anyway."""
    COPYING = 2048
    """Only moves elements: contiguous, cat, transpose."""
    GATHERING = 16384
    """Searches, sorts or picks elements."""
    OLD_CONV = 32768
    """A direct or transform algorithm from before tensor cores."""
    FLASH2 = 65536
    """Attention written for Ampere: FlashAttention 2, memory-efficient, sm80 cuDNN."""
    EPILOGUE = 131072
    """Adds up the parts of a split GEMM."""
    BACKWARD = 262144


_TRAITS: tuple[tuple[Trait, re.Pattern[str]], ...] = tuple(
    (trait, re.compile(pattern))
    for trait, pattern in (
        (
            Trait.NCHW,
            r"nchwkcrs|_nchw_|NCHW|dgrad_engine|wgrad_alg\d_engine|implicit_convolve|fft2d_|winograd"
            r"|nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|bn_(fw|bw)_\w*1C11|pool_\w+_nchw"
            r"|batch_norm_(?!\w*channels_last)\w+kernel",
        ),
        (Trait.FOREACH, r"multi_tensor_apply|multi_tensor_(adam|lamb|sgd)"),
        (
            Trait.FUSED_STEP,
            r"FusedAdam|FusedOptimizer|FusedSgd|FusedAdagrad|multi_tensor_(adam|lamb)|fused_adam"
            r"|AdamFunctor",
        ),
        (Trait.ADAM_PART, r"addcdiv|addcmul|lerp_\w*kernel"),
        (
            Trait.CAST,
            r"bfloat16_copy_kernel|float16_copy|half_copy|direct_copy_kernel.*LoadWithCast",
        ),
        (Trait.COPYING, r"direct_copy_kernel|CatArray|transpose"),
        (Trait.GATHERING, r"topk|TopK|[sS]ort|[gG]ather|scatter|multinomial|argmax|ArgMax"),
        (
            Trait.OLD_CONV,
            r"wgrad_alg\d_engine|dgrad_engine|cudnn::(detail|cnn)::|implicit_convolve|fft2d_",
        ),
        (Trait.FLASH2, r"flash_fwd_\w*kernel|flash_bwd_\w*kernel|fmha_cutlass|sm80_flash"),
        (Trait.EPILOGUE, r"splitK|SplitK"),
        (
            Trait.BACKWARD,
            r"[bB]ackward|_bwd|bn_bw_|bprop|dgrad|wgrad|grad_input|grad_weight|GammaBeta|InternalGradients|compute_dot_do_o"
            r"|convert_dq",
        ),
        (Trait.DOUBLE, r"<double\b|lambda\(double\b|f64f64|dgemm|_d884"),
    )
)
_LOSS = re.compile(r"nll_loss|NllLoss|cross_entropy|[lL]og_?[sS]oft_?[mM]ax")
_LOG_SOFTMAX_FLAG = re.compile(r"softmax_warp_\w+<[^,]+,[^,]+,[^,]+, *\d+, *true")
_LOOSE = re.compile(r"align[abc]?[12](?!\d)")
_MATRIX = {Role.GEMM, Role.CONV, Role.SKINNY}


@lru_cache(maxsize=1 << 16)
def role_of(name: str) -> Role:
    """The role of one kernel name; losses are told from softmax by their functors."""
    role = _ROLE_OF_FAMILY.get(family_of(name).name, Role.OTHER)
    if role is Role.SOFTMAX and (_LOSS.search(name) or _LOG_SOFTMAX_FLAG.search(name)):
        return Role.LOSS
    if role is Role.CONV and "scalePackedTensor" in name:
        return Role.LAYOUT
    return role


@lru_cache(maxsize=1 << 16)
def traits_of(name: str) -> Trait:
    traits = Trait.NONE
    for trait, pattern in _TRAITS:
        if pattern.search(name):
            traits |= trait
    facts = name_facts(name)
    if role_of(name) in _MATRIX:
        if facts.precision == "fp32" and facts.tensor_cores is False:
            traits |= Trait.SIMT
        if _LOOSE.search(name) and facts.precision in ("bf16", "fp16", "tf32"):
            traits |= Trait.MISALIGNED
    if facts.precision == "tf32":
        traits |= Trait.TF32
    if facts.precision in ("bf16", "fp16"):
        traits |= Trait.HALF
    return traits


def used(ids: I8, rows: Bool | None = None) -> I8:
    """Distinct ids in order, of `rows` where given; quicker than sorting them."""
    return np.flatnonzero(np.bincount(ids if rows is None else ids[rows]))


def by_name(names: Sequence[str], ids: I8, figure: Callable[[str], int]) -> I8:
    """A figure of each name by its id, shape (names,); 0 for names that `ids` lack."""
    figures = np.zeros(len(names), np.int64)
    for name_id in used(ids):
        figures[name_id] = figure(names[name_id])
    return figures


def tables(window: Window) -> tuple[I8, I8]:
    """Role and traits by name id; 0 for names no activity uses."""
    names, ids = window.names, window.activities.name_ids
    return by_name(names, ids, role_of), by_name(names, ids, traits_of)
