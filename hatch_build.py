"""Compiles the C libraries into the wheel and tags the wheel with its machine.

`BRRRTOP_MACHINE=aarch64 CC=aarch64-linux-gnu-gcc` makes the wheel for that machine: with libraries, or none.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeAgent(BuildHookInterface):
    """One wheel serves every Python: the library links neither libpython nor libcupti.

    Without a compiler, or on another platform, the wheel is pure; the library is then compiled on
    first use, and until there is a compiler brrrtop watches with counters only.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        sys.path.insert(0, self.root)
        try:
            from brrrtop.sources.importers.kineto.scanner_library import LIBRARY as SCANNER
            from collectors.attach import agent_library
            from collectors.attach.agent_library import CLibrary
            from collectors.errors import CollectorError
        finally:
            sys.path.remove(self.root)
        self._scratch = tempfile.TemporaryDirectory(prefix="brrrtop-wheel-")
        scratch = Path(self._scratch.name)
        wanted = os.environ.get("BRRRTOP_MACHINE")
        machine = wanted or os.uname().machine
        libraries: tuple[CLibrary, ...] = (agent_library.library(), SCANNER)
        platforms = []
        for library in libraries:
            inside = library.bundled_in / library.file_name
            packed = os.path.relpath(inside, self.root)
            # One that this machine would not load stays out of its tree.
            away = scratch / library.file_name
            target = inside if machine == os.uname().machine else away
            try:
                library.check_machine(machine)
                library.compile(target)
            except CollectorError as fault:
                target.unlink(missing_ok=True)
                if wanted:
                    raise ValueError(f"no {library.subject} library: {fault.message}") from fault
                self.app.display_warning(
                    f"no {library.subject} library: {fault.message}; {fault.action}"
                )
                continue
            if not library.is_current(target):
                raise ValueError(f"{target} does not carry the fingerprint of its sources")
            if target == inside:
                build_data["artifacts"].append(packed)
            else:
                build_data["force_include"][str(target)] = packed
            platforms.append(platform_of(target, machine))
        if platforms:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{max(platforms, key=_glibc)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.target_name == "wheel":
            self._scratch.cleanup()


ELF_MACHINES = {"x86_64": 62, "aarch64": 183}


def platform_of(library: Path, machine: str) -> str:
    """`manylinux_2_17_x86_64`: the oldest glibc that has every symbol which the library asks for.

    Raises:
        ValueError: The library is for another machine.
    """
    data = library.read_bytes()
    (built_for,) = struct.unpack_from("<H", data, 18)
    if built_for != ELF_MACHINES[machine]:
        raise ValueError(f"CC compiles for ELF machine {built_for}, and the wheel is for {machine}")
    versions = re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", data)
    oldest = max([17, *map(int, versions)])
    return f"manylinux_2_{oldest}_{machine}"


def _glibc(platform: str) -> int:
    return int(platform.split("_")[2])
