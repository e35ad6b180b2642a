"""Compiles the C libraries into the wheel, and tags the wheel with the machine it is for."""

from __future__ import annotations

import os
import sys
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
            from collectors.attach.c_library import CLibrary
            from collectors.errors import CollectorError
        finally:
            sys.path.remove(self.root)
        libraries: tuple[CLibrary, ...] = (agent_library.library(), SCANNER)
        for library in libraries:
            target = library.bundled_in / library.file_name
            try:
                library.check_machine()
                library.compile(target)
            except CollectorError as fault:
                target.unlink(missing_ok=True)
                self.app.display_warning(
                    f"no {library.subject} library: {fault.message}; {fault.action}"
                )
                continue
            build_data["artifacts"].append(os.path.relpath(target, self.root))
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-linux_{os.uname().machine}"
