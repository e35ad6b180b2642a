"""Where the scanner's C library is, and how it is built. Nothing of brrrtop but the collectors' builder:
the package's own build uses this too.
"""

import ctypes
import os
from pathlib import Path
from typing import Any

from collectors.attach.agent_library import CLibrary
from collectors.errors import CollectorError

LIBRARY = CLibrary(
    file_name="libbrrrtop_scanner.so",
    subject="scanner",
    bundled_in=Path(__file__).parent,
    sources=Path(__file__).parent / "native",
    flags=(
        "-std=c11",
        "-O2",
        "-fPIC",
        "-fvisibility=hidden",
        "-ffp-contract=off",
        "-fstack-protector-strong",
        "-Wall",
        "-Wextra",
    ),
    link_flags=("-shared", "-Wl,-z,relro,-z,now"),
    without_it="read traces without it, which takes longer",
)
"""Contracted floating point would round times otherwise than Python does."""


def scanner_library() -> ctypes.CDLL | None:
    """The library, ready to be called; None where there is none and none can be built."""
    try:
        return load_library(LIBRARY.path())
    except (CollectorError, OSError, AttributeError):
        return None


def load_library(path: str | os.PathLike[str]) -> ctypes.CDLL:
    library = ctypes.CDLL(os.fspath(path))
    pointer, number, size, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
    types: dict[str, tuple[Any, list[Any]]] = {
        "brrr_scan_new": (pointer, [ctypes.c_uint64]),
        "brrr_scan_free": (None, [pointer]),
        "brrr_scan_argument": (number, [pointer, text, number, number, ctypes.c_int64]),
        "brrr_scan_category": (number, [pointer, text, number]),
        "brrr_scan_column": (number, [pointer, number, number]),
        "brrr_scan_run": (ctypes.c_int64, [pointer, text, size]),
        "brrr_scan_rows": (size, [pointer, number]),
        "brrr_scan_values": (pointer, [pointer, number, number]),
        "brrr_scan_clear": (None, [pointer, number]),
        "brrr_scan_text_count": (size, [pointer, number]),
        "brrr_scan_text": (pointer, [pointer, number, size, ctypes.POINTER(size)]),
    }
    for name, (result, arguments) in types.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
