"""What a kernel's name says besides its family: precision, tensor cores, geometry of its work, architecture.

GEMM names are those of CUTLASS's profiler, cuBLAS and cuDNN; work per thread is that of ATen's
CUDALoops.cuh, checked against recorded shapes on H100, H200 (torch 2.11) and B200 traces.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from msgspec import Struct

_NVJET_LETTER = {"h": "fp16", "t": "bf16", "s": "tf32", "q": "fp8", "o": "fp4", "d": "fp64"}
_PRECISIONS: tuple[tuple[str, str], ...] = (
    (r"e4m3|e5m2|E4m3|E5m2|fp8|_qq", "fp8"),
    (r"e2m1|E2m1|fp4|nvf4|mxf4", "fp4"),
    (r"i8i8|_i8|imma|int8|s8s8|i16832|i8816", "int8"),
    (r"f64f64|d884|dgemm|dmma", "fp64"),
    (r"tf32|tfloat32|s1688(?!\w*(f16|bf16|fp16))|tensor16x8x8", "tf32"),
    (r"bf16|BFloat16|bfloat16|s16816\w*bf16", "bf16"),
    (r"f16|fp16|half|__half|h884|s884|h1688|h16816|hgemm|hmma|s16816", "fp16"),
    (r"f64|double", "fp64"),
    (r"sgemm|scudnn|ffma|simt|f32|float", "fp32"),
)
_TENSILE = re.compile(r"Cijk_[A-Z][a-z]+_[A-Z][a-z]+_(F8|B8|I8|B|H|S|D)(?=[A-Z0-9]*_)")
"""rocBLAS and hipBLASLt (AMD): the type of what is multiplied leads its types."""
_TENSILE_TYPES = {
    "F8": "fp8", "B8": "fp8", "I8": "int8", "B": "bf16", "H": "fp16", "S": "fp32", "D": "fp64",
}  # fmt: skip
_SIMT = re.compile(
    r"sgemm|simt|[s]cudnn(?!\w*tensor)|ffma|f32f32_f32f32|_engine(<|_)float|winograd"
)
_DEPTHWISE = re.compile(r"c1_k1|[dD]epthwise")
"""One channel a group leaves tensor cores nothing to multiply."""
_TENSOR = re.compile(
    r"nvjet|tensorop|xmma|wgmma|mma|s16816|s1688|s884|h884|h1688|h16816|i16832|flash|fmha|sdpa|hmma|imma"
    r"|Gmma|Umma|tfloat32_t"
)
_VECTORIZED = re.compile(r"vectorized_elementwise_kernel<\s*(\d+)")
_PLAIN = re.compile(r"\belementwise_kernel<\s*(\d+)\s*,\s*(\d+)")
_UNROLLED = re.compile(r"unrolled_elementwise_kernel<")
_UNROLLED_BY = re.compile(r"(?:std::array|at::detail::Array)<char ?\*, ?\d+\w*> ?, ?(\d+)\w* ?[,>]")
"""Elements a thread, where its templates tell: 4, or 8 where the layout of 8 reached unrolled kernels too."""
_TENSORS = re.compile(r"(?:std::array|at::detail::Array)<char ?\*, ?(\d+)")
_BINARY = re.compile(r"BinaryFunctor|CUDAFunctor_add|_add<|MulFunctor<.*BinaryFunctor|binary")
_LISTS = re.compile(r"multi_tensor_apply_kernel<")
_LIST_FUNCTOR = re.compile(r"Functor<[^<>]*?, ?(\d+), ?(\d+), ?(\d+)>")
"""Depth, how many of the lists are read, and which is written."""
_LIST_DEPTH = re.compile(r"TensorListMetadata<(\d+)>")
_CHUNK = 65536
"""Elements a block works through where one launch has many tensors: ATen's MultiTensorApply.cuh, and
Apex's default. Of 4,760 blocks of fused AdamW on an H200 it gave the number to one."""
_SIZES = {
    "c10::BFloat16": 2, "c10::Half": 2, "__nv_bfloat16": 2, "__half": 2, "float": 4, "double": 8,
    "long": 8, "int": 4, "bool": 1, "unsigned char": 1, "signed char": 1, "short": 2,
    "c10::complex<float>": 8, "c10::complex<double>": 16, "c10::complex<c10::Half>": 4,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1,
}  # fmt: skip
_TYPE = re.compile(
    "|".join(sorted((rf"(?<![\w:]){re.escape(t)}(?!\w)" for t in _SIZES), key=len, reverse=True))
)
_ONLY_READS = re.compile(
    r"RowwiseMoments|batch_norm_(collect_statistics|backward_reduce)|WelfordOps"
)
_OPAQUE = re.compile(r"OpaqueType<(\d+)")
_TILE = re.compile(r"(?:_|tilesize|_MT)(\d{1,3})x(\d{1,3})(?:x\d+)?_")


_NUMBER = r"(5[023]|6[012]|7[025]|8[0679]|9[0]|1[012][0-3])"
_TAG = re.compile(
    rf"(?:\bnvjet_|\b|_)sm_?{_NUMBER}(?!\d)|cutlass_{_NUMBER}_|[a-z]Sm{_NUMBER}(?!\d)|Policy{_NUMBER}0\b"
)
"""cuBLAS, cuDNN and Triton write `sm90`, CUTLASS `cutlass_80_`, TensorRT `fmhaSm100a`, CUB `Policy800`."""
_CODE_NAME = re.compile(r"(?<![a-z])(maxwell|pascal|volta|turing|ampere|hopper|blackwell)_", re.I)
_CODE_NAMES = {
    "maxwell": 50, "pascal": 60, "volta": 70, "turing": 75, "ampere": 80, "hopper": 90, "blackwell": 100,
}  # fmt: skip


class NameFacts(Struct, frozen=True):
    precision: str | None = None
    tensor_cores: bool | None = None
    """None where the name does not say."""
    element_bytes: int | None = None
    """Size of the dominant element type of a pointwise kernel."""
    elements_per_thread: int | None = None
    """For ATen pointwise kernels: elements = blocks x threads x this."""
    elements_per_block: int | None = None
    """For kernels over lists of tensors: elements are at most blocks x this."""
    tensor_count: int | None = None
    """Tensors a pointwise kernel reads and writes; counts twice what it updates in place."""
    tile: tuple[int, int] | None = None
    only_reads: bool = False
    """Sums of a normalisation: writes next to nothing."""


def _precision(name: str) -> str | None:
    nvjet = re.search(r"nvjet_(?:sm\d+_)?([a-z])([a-z])([a-z])_", name)
    if nvjet:
        return _NVJET_LETTER.get(nvjet.group(1))
    tensile = _TENSILE.search(name)
    if tensile:
        return _TENSILE_TYPES[tensile.group(1)]
    for pattern, precision in _PRECISIONS:
        if re.search(pattern, name):
            return precision
    return None


def _per_thread(name: str, element: int | None, tensors: int | None, torch_new: bool) -> int | None:
    match = _VECTORIZED.search(name)
    if match:
        newer = torch_new and "at::detail::Array" not in name
        if int(match.group(1)) >= 8 or newer:
            # ATen's CUDALoops.cuh, elems_per_thread: 16 where input and output are one byte together.
            return 16 if element == 1 and tensors == 1 else 8
        return 4
    match = _PLAIN.search(name)
    if match:
        return int(match.group(2))
    if not _UNROLLED.search(name):
        return None
    unrolled = _UNROLLED_BY.search(name)
    return int(unrolled.group(1)) if unrolled else 4


def _list_accesses(name: str) -> int | None:
    """Elements read and written for each of a kernel over lists of tensors.

    The fused optimizers read all lists (parameters, gradients, state) and write all but the
    gradients.
    """
    depth = _LIST_DEPTH.search(name)
    if "FusedOptimizer" in name or "FusedAdam" in name or "FusedSgd" in name:
        return 2 * int(depth.group(1)) - 1 if depth else None
    functor = _LIST_FUNCTOR.search(name)
    if functor:
        return int(functor.group(2)) + ("NormFunctor" not in name)  # a norm writes next to nothing
    return int(depth.group(1)) if depth else None


@lru_cache(maxsize=65536)
def name_facts(name: str, torch_new: bool = True) -> NameFacts:
    """Facts of one name.

    Args:
        name: As CUPTI or a trace gives it, demangled.
        torch_new: Whether this process's torch gives each thread of a vectorised kernel 8
            elements whatever its vector width (seen from 2.7 on), or 4.
    """
    types = _TYPE.findall(name)
    # A mask comes first in a functor's types and is the smaller part of its bytes.
    element_types = [t for t in types[:2] if t != "bool"] or types
    element = _SIZES[element_types[0]] if element_types else None
    opaque = _OPAQUE.search(name)
    if opaque:
        element = int(opaque.group(1))
    tensors = _TENSORS.search(name)
    count = int(tensors.group(1)) if tensors else None
    plain = _PLAIN.search(name)
    if plain and count is None:
        count = 3 if _BINARY.search(name) else 2
    lists = bool(_LISTS.search(name))
    if lists:
        count = _list_accesses(name)
    tile = _TILE.search(name)
    simt = bool(_SIMT.search(name))
    cores = simt or bool(_DEPTHWISE.search(name))
    tensor = False if cores else (True if _TENSOR.search(name) else None)
    return NameFacts(
        precision=_precision(name) if not simt else "fp64" if "dgemm" in name else "fp32",
        tensor_cores=tensor,
        element_bytes=element,
        elements_per_thread=_per_thread(name, element, count, torch_new),
        elements_per_block=_CHUNK if lists else None,
        tensor_count=count,
        only_reads=bool(_ONLY_READS.search(name)),
        tile=(int(tile.group(1)), int(tile.group(2))) if tile else None,
    )


def least_capability(names: Iterable[str]) -> tuple[int, int] | None:
    """The compute capability that a GPU has at least which ran these kernels; None: no name tells.

    Kernels built for one architecture run on later ones too.
    """
    return max((built_for for name in names if (built_for := _built_for(name))), default=None)


@lru_cache(maxsize=65536)
def _built_for(name: str) -> tuple[int, int] | None:
    tags = [int(number) for groups in _TAG.findall(name) for number in groups if number]
    tags += [_CODE_NAMES[word.lower()] for word in _CODE_NAME.findall(name)]
    return divmod(max(tags), 10) if tags else None
