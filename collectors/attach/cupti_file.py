"""A libcupti for a program that has none in it, as torch brings one and C++ seldom does."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from collectors.attach import files as attach_files
from collectors.process.process import Process

_CUDA_LIBRARY = re.compile(r"/lib(cudart|cublas|cublasLt|cudnn|nccl|cufft|nvrtc)[-.\w]*\.so")
_TOOLKITS = ("/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda")
_IN_TOOLKIT = ("extras/CUPTI/lib64", "lib64", "targets/*/lib", "lib")
_FILE = "libcupti.so.1[23]*"


def option(process: Process | None) -> str:
    """The agent's option that names a libcupti; empty: the program has one, or will, or none is known.

    Args:
        process: Where it is to be loaded; None: a program that is still to start.
    """
    if process is not None:
        mapped = any("/libcupti.so" in path for path in process.files)
        if mapped or process.has_torch or not process.has_cuda_driver:
            return ""
    for file in _candidates(process):
        if process is None or attach_files.reachable(process, file):
            return f"cupti={file}"
    return ""


def _candidates(process: Process | None) -> Iterator[Path]:
    """Of the CUDA that the program itself uses, then of this host, then ours."""
    seen = [] if process is None else [p for p in process.files if _CUDA_LIBRARY.search(p)]
    for folder in dict.fromkeys(Path(path).parent for path in seen):
        yield from _files(folder)
        yield from _files(folder, "../../*/lib")
        yield from _files(folder, "../../../extras/CUPTI/lib64")
    for pattern in _TOOLKITS:
        for toolkit in sorted(Path("/").glob(pattern[1:]), reverse=True):
            for inside in _IN_TOOLKIT:
                yield from _files(toolkit, inside)
    for place in sys.path:
        yield from _files(Path(place or ".") / "nvidia", "*/lib")


def _files(folder: Path, inside: str = "") -> list[Path]:
    pattern = f"{inside}/{_FILE}" if inside else _FILE
    try:
        paths = sorted(folder.glob(pattern), reverse=True)
        return [one.resolve() for one in paths if ";" not in str(one)]
    except OSError:
        return []
