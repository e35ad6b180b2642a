"""Where the scanner's C library is, and how it is built. Nothing of brrrtop but the collectors' builder:
the package's own build uses this too.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from collectors.attach.c_library import CLibrary
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
    from brrrtop.sources.importers.kineto.scanner import load_library

    try:
        return load_library(LIBRARY.path())
    except (CollectorError, OSError, AttributeError):
        return None
