"""Has this process use the libcupti that `cupti-python` was made for.

A Python that has torch as well has torch's libcupti too, often an older one, and cupti-python takes
whichever it finds first: CUPTI 13.0 then answers calls of a 13.4 binding with INVALID_PARAMETER.
A library that is loaded already is taken before any other, so the right one is loaded first.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

BINDING, LIBRARY = "cupti-python", "nvidia-cuda-cupti"
_FILE = re.compile(r"libcupti\.so(?:\.\d+)*$")
_NUMBER = re.compile(r"\d+")


def load_cupti(search: Sequence[str] | None = None) -> Path | None:
    """Loads the best libcupti of the installed distributions, for all to see.

    Args:
        search: Folders as in `sys.path`; None: `sys.path`.

    Returns:
        The file that was loaded; None where there is none that loads, and cupti-python looks for
        one by its own rules.
    """
    try:
        files = candidates(search)
    except Exception:  # noqa: BLE001 - broken metadata of any package must not cost the counters
        return None
    for file in files:
        try:
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL | os.RTLD_NOW)
        except OSError:
            continue
        return file
    return None


def candidates(search: Sequence[str] | None = None) -> list[Path]:
    """Installed libcupti files: those new enough for the binding first, then in order of `search`."""
    wanted = max((_version(d.version)[:2] for d in _installed(BINDING, search)[:1]), default=())
    found = []
    for place, distribution in enumerate(_installed(LIBRARY, search)):
        version = _version(distribution.version)
        # Another major version has another soname and would be loaded beside it.
        fits = version[:1] == wanted[:1] and version[:2] >= wanted
        found += [(not fits, place, file) for file in _files(distribution)]
    return [file for _, _, file in sorted(found)]


def _installed(name: str, search: Sequence[str] | None) -> list[metadata.Distribution]:
    if search is None:
        return list(metadata.distributions(name=name))
    return list(metadata.distributions(name=name, path=list(search)))


def _files(distribution: metadata.Distribution) -> list[Path]:
    paths = [file for file in distribution.files or () if _FILE.fullmatch(file.name)]
    located = [Path(str(distribution.locate_file(file))).absolute() for file in paths]
    return [path for path in located if path.is_file()]


def _version(text: str | None) -> tuple[int, ...]:
    """Leading numbers of a version; empty where there is none."""
    return tuple(int(part) for part in _NUMBER.findall(text or ""))
