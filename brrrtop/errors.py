"""Everything brrrtop raises at a person: what happened, and the next thing to try.

BrrrtopError               exit 1
├── UsageError             exit 2
├── NoTrainer              exit 3   no such trainer, or it exited
├── BadInput               exit 1   a file that cannot be read as what it should be
└── GateTripped            exit 5

Past ^C the exit code is 130, as a shell has it.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

INTERRUPTED = 130


class BrrrtopError(Exception):
    """One sentence for the user, and the command or change that helps."""

    exit_code = 1

    def __init__(self, message: str, action: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.action = action


class UsageError(BrrrtopError):
    exit_code = 2


class NoTrainer(BrrrtopError):
    exit_code = 3


class GateTripped(BrrrtopError):
    exit_code = 5


class BadInput(BrrrtopError):
    """A recording or trace that cannot be used."""


def install_command(*packages: str) -> str:
    """What adds libraries to this very installation, by the tool that made it.

    brrrtop itself is never named as something to fetch: whoever registers that name in an index
    that has no brrrtop could be installed in its place.
    """
    listed = " ".join(packages)
    if Path(sys.prefix, "pipx_metadata.json").is_file():
        return f"`pipx inject {Path(sys.prefix).name} {listed}`"
    if find_spec("pip") is None:  # made by uv: a tool, uvx or an environment
        return f"`uv pip install --python {sys.executable} {listed}`"
    return f"`{sys.executable} -m pip install {listed}`"
