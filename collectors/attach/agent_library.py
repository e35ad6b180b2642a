"""Where the agent's C library is, and how it is built. Standard library only: the package's own
build uses this too, with nothing of brrrtop installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from collectors.attach.c_library import CLibrary

if TYPE_CHECKING:
    from collectors.attach.files import AgentFiles

LIBRARY_NAME = "libbrrrtop_agent.so"
AGENT_DIR = Path(__file__).parents[1] / "agent"
SOURCE_DIR = AGENT_DIR / "native"
FLAGS = (
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-fstack-protector-strong",
    "-Wall",
    "-Wextra",
)
LINK_FLAGS = ("-shared", "-Wl,-z,nodelete,-z,relro,-z,now,--no-gc-sections", "-lpthread", "-ldl")
"""Never unmapped: CUPTI keeps the addresses of our callbacks. Bound at load: the first launch is no
place for the linker. Nothing is dropped: zig's linker would drop the fingerprint."""
COUNTERS_ALONE = "watch the GPU's counters alone: brrrtop --gpu 0"
"""What is left where there is no library, as the end of an action."""


def library() -> CLibrary:
    """The agent's library and all that makes it."""
    return CLibrary(LIBRARY_NAME, "agent", AGENT_DIR, SOURCE_DIR, FLAGS, LINK_FLAGS, COUNTERS_ALONE)


def library_path() -> Path:
    """The library for this machine, compiled on first use where the package brought none.

    Raises:
        CollectorError: There is no library and none can be built here; the action says what helps.
    """
    return library().path()


def agent_files() -> AgentFiles:
    """What goes into a trainer: the agent's folder and its library.

    Raises:
        CollectorError: As `library_path`.
    """
    from collectors.attach.files import AgentFiles

    return AgentFiles(folder=AGENT_DIR, library=library_path())
