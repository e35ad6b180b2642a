"""The GPU's architecture as far as kernels' names tell it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_NUMBER = r"(5[023]|6[012]|7[025]|8[0679]|9[0]|1[012][0-3])"
_TAG = re.compile(
    rf"(?:\bnvjet_|\b|_)sm_?{_NUMBER}(?!\d)|cutlass_{_NUMBER}_|[a-z]Sm{_NUMBER}(?!\d)|Policy{_NUMBER}0\b"
)
"""cuBLAS, cuDNN and Triton write `sm90`, CUTLASS `cutlass_80_`, TensorRT `fmhaSm100a`, CUB `Policy800`."""
_CODE_NAME = re.compile(r"(?<![a-z])(maxwell|pascal|volta|turing|ampere|hopper|blackwell)_", re.I)
_CODE_NAMES = {
    "maxwell": 50, "pascal": 60, "volta": 70, "turing": 75, "ampere": 80, "hopper": 90, "blackwell": 100,
}  # fmt: skip


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
