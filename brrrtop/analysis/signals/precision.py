"""Which number formats and layouts the time runs in, from names and recorded shapes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.analysis.signals.joined import Joined
from brrrtop.model.tables import F8, I8, Bool, OpSignature
from brrrtop.model.vocabulary import CopyKind

IMAGE_AXES = 4
"""Batch, channels, height, width; a volume has one more."""
_WRITES = r"(?i)sort|scan|scatter|grad|backward|index_put|histogram|unique"
"""Of index kernels: those of an embedding's gradient, which orders places and adds rows up."""
BIG_BLOCKS = 16
"""GEMMs of fewer blocks pick odd kernels by design: they say nothing about alignment."""


class Precision(Struct, frozen=True):
    """Kernel time of the window by what its units and layouts are; sums, ns."""

    matrix_ns: int
    """All matrix products and convolutions."""
    conv_ns: int
    simt_gemm_ns: int
    simt_conv_ns: int
    double_ns: int
    double_kernels: int
    double_cast_ns: int
    """Part of `double_ns` that only converts from fp64 or to it."""
    cast_ns: int
    """Conversions, less those of attention written out."""
    cast_kernels: int
    copying_ns: int
    """Kernels that only move elements, on-device copies included; conversions are `cast_ns`."""
    copying_kernels: int
    layout_ns: int
    """Conversions of images between channels-first and channels-last."""
    nchw_ns: int
    """Convolutions that read channels-first images, or ran as such."""
    nchw_other_ns: int
    """Norms and pools of channels-first images."""
    old_conv_ns: int
    misaligned_ns: int
    misaligned_name: str | None
    """Of those that take the most time."""
    odd_sizes: tuple[int, ...]
    """Inner sizes that are no multiple of 8, from recorded shapes, most frequent first."""
    old_attention_ns: int
    index_ns: int
    looked_up_ns: int
    """Of these, what only reads rows at places: neither a sort nor a gradient's sum."""


def precision(joined: Joined, attention: I8 | None = None) -> Precision:
    """Sums by precision and layout; zero where there is none.

    Args:
        joined: The window's activities.
        attention: Rows of attention written out, whose conversions go with it.
    """
    kernels = joined.kernels
    matrix = joined.is_role(Role.GEMM, Role.CONV, Role.SKINNY) & kernels
    conv = joined.is_role(Role.CONV) & kernels
    simt = joined.has(Trait.SIMT)
    misaligned = matrix & ~conv & joined.has(Trait.MISALIGNED)
    misaligned &= joined.window.activities.blocks >= BIG_BLOCKS
    index = joined.is_role(Role.INDEX) & kernels
    layout = joined.is_role(Role.LAYOUT) & kernels
    on_device = np.asarray(joined.window.activities.copy_kinds == CopyKind.DTOD)
    cast = kernels & joined.has(Trait.CAST)
    converting = cast.copy()
    if attention is not None:
        converting[attention] = False
    moving = (kernels & joined.has(Trait.COPYING)) | on_device
    copying = moving & ~cast
    sequences = of_sequences(joined)
    first = kernels & joined.has(Trait.NCHW) & ~sequences
    fp64 = rows_of_ops(joined, lambda op: "double" in op.types)
    double = (kernels & joined.has(Trait.DOUBLE)) | (moving & fp64)
    total = joined.total_ns
    return Precision(
        matrix_ns=total(matrix),
        conv_ns=total(conv),
        simt_gemm_ns=total(matrix & ~conv & simt),
        simt_conv_ns=total(conv & simt),
        double_ns=total(double),
        double_kernels=int(double.sum()),
        double_cast_ns=total(double & moving & cast),
        cast_ns=total(converting),
        cast_kernels=int(converting.sum()),
        copying_ns=total(copying),
        copying_kernels=int(copying.sum()),
        layout_ns=total(layout & ~sequences),
        nchw_ns=total(conv & first),
        nchw_other_ns=total(first & ~conv & ~layout),
        old_conv_ns=total(conv & joined.has(Trait.OLD_CONV)),
        misaligned_ns=total(misaligned),
        misaligned_name=_name(joined, misaligned),
        odd_sizes=_odd_sizes(joined, misaligned),
        old_attention_ns=total(kernels & joined.has(Trait.FLASH2)),
        index_ns=total(index),
        looked_up_ns=total(index & ~joined.named(_WRITES, index)),
    )


def _is_no_image(op: OpSignature) -> bool:
    """Whether its first tensor is no batch of images: a sequence, also as cuDNN sees it, 1 high."""
    first = op.dims[0] if op.dims else ()
    if not isinstance(first, tuple) or not first:
        return False
    return len(first) < IMAGE_AXES or (len(first) == IMAGE_AXES and 1 in first[2:])


def of_sequences(joined: Joined) -> Bool:
    """Rows whose op works on tensors that are no batch of images; none where shapes are unknown."""
    return rows_of_ops(joined, _is_no_image)


def rows_of_ops(joined: Joined, wanted: Callable[[OpSignature], bool]) -> Bool:
    """Rows whose framework op is as wanted; none where ops were not recorded."""
    return _rows_of(joined, [op_id for op_id, op in joined.window.ops.items() if wanted(op)])


def figures_of_ops(joined: Joined, figure: Callable[[OpSignature], float | None]) -> F8:
    """A figure of each row's framework op; NaN where the op has none or was not recorded."""
    ids: dict[float, list[int]] = defaultdict(list)
    for op_id, op in joined.window.ops.items():
        if (known := figure(op)) is not None:
            ids[known].append(op_id)
    column = np.full(len(joined.window.activities), np.nan)
    for known, some in ids.items():
        column[_rows_of(joined, some)] = known
    return column


def _rows_of(joined: Joined, op_ids: list[int]) -> Bool:
    window = joined.window
    if not op_ids or not len(window.links):
        return np.zeros(len(window.activities), np.bool_)
    launched = window.links.correlations[np.isin(window.links.op_ids, op_ids)]
    return np.asarray(np.isin(window.activities.correlations, launched[launched != 0]))


def _name(joined: Joined, rows: Bool) -> str | None:
    if not rows.any():
        return None
    time = np.bincount(joined.window.activities.name_ids[rows], joined.durations_ns[rows])
    return joined.window.names[int(np.argmax(time))]


def _odd_sizes(joined: Joined, rows: Bool) -> tuple[int, ...]:
    window = joined.window
    known = window.links.ops_of(window.activities.correlations[rows])
    op_ids, counts = np.unique(known, return_counts=True)
    sizes: Counter[int] = Counter()
    for op_id, count in zip(op_ids.tolist(), counts.tolist(), strict=True):
        for size in _sizes(window.ops.get(op_id)):
            sizes[size] += count
    return tuple(size for size, _ in sizes.most_common(4))


def _sizes(op: OpSignature | None) -> set[int]:
    if op is None:
        return set()
    return {
        int(size)
        for dims in op.dims
        if isinstance(dims, tuple) and len(dims) >= 2
        for size in dims[-2:]
        if isinstance(size, int) and size % 8 and size > 8
    }
