"""Has this process use the libcupti that `cupti-python` was made for.

A Python that has torch as well has torch's libcupti too, often an older one, and cupti-python takes
whichever it finds first: CUPTI 13.0 then answers calls of a 13.4 binding with INVALID_PARAMETER.
A library that is loaded already is taken before any other, so the right one is loaded first.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

BINDING, LIBRARY = "cupti-python", "nvidia-cuda-cupti"
_FILE = re.compile(r"libcupti\.so(?:\.\d+)*$")
_PLACE = "nvidia/*/lib/libcupti.so.*"
"""In a folder of `sys.path`, as NVIDIA's wheels have it."""
_NUMBER = re.compile(r"\d+")


def load_cupti(search: Sequence[str] | None = None) -> Path | None:
    """Loads the best libcupti of the installed packages, for all to see.

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


def loaded_cupti() -> list[str]:
    """The libcupti files in this process."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in lines if "/libcupti.so" in line}
    return sorted(paths)


def candidates(search: Sequence[str] | None = None) -> list[Path]:
    """Installed libcupti files, the best first.

    First what lies beside the binding, then those that are new enough for it, then those of which
    nobody says how old they are, and last those known to be too old; among equals by `search`.
    """
    folders = [Path(folder or ".") for folder in (sys.path if search is None else search)]
    binding = _installed_packages(BINDING, search)
    wanted = _version(binding[0].version)[:2] if binding else ()
    home = next((f for f in folders if (f / "cupti" / "__init__.py").is_file()), None)
    installed = [(_version(d.version), _files(d)) for d in _installed_packages(LIBRARY, search)]
    versions = {file: version for version, files in reversed(installed) for file in files}
    for folder in folders:
        for file in sorted(folder.glob(_PLACE)):
            if _FILE.fullmatch(file.name):
                versions.setdefault(file.absolute(), ())

    def rank(file: Path) -> tuple[int, int]:
        version = versions[file]
        place = next((i for i, f in enumerate(folders) if f.absolute() in file.parents), 1 << 20)
        # Another major version has another soname and would be loaded beside it.
        fits = version[:1] == wanted[:1] and version[:2] >= wanted
        has_version = bool(version and wanted)
        if has_version and not fits:
            return 3, place
        if home is not None and home.absolute() in file.parents:
            return 0, place
        return (1 if has_version else 2), place

    return sorted(versions, key=rank)


def _installed_packages(name: str, search: Sequence[str] | None) -> list[metadata.Distribution]:
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
