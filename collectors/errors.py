"""What can go wrong around a trainer, each with what to do about it. Standard library only."""

from __future__ import annotations

from typing import Any

RUN_INSTEAD = "start the training with: brrrtop run -- CMD"
"""The action where nothing that runs already can be entered."""


class CollectorError(Exception):
    """One sentence for a person, and the command or change that helps."""

    exit_code = 1

    def __init__(self, message: str, action: str = "", exit_code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.action = action
        if exit_code is not None:
            self.exit_code = exit_code


class NoSuchProcess(CollectorError):
    """It never existed, exited, or its number went to another process."""

    exit_code = 3


class NotPermitted(CollectorError):
    """The kernel, a user or a profile is in the way."""

    exit_code = 4


class NotPython(CollectorError):
    """The process runs no CPython that could load the agent."""


class NoTorch(CollectorError):
    """Python, and no torch in it."""


class NotTheTrainer(CollectorError):
    """A launcher, a shell or a worker; another process trains."""


class Unsupported(CollectorError):
    """A build or platform nobody has made this work on."""


class TrainerStopped(CollectorError):
    """Stopped by a signal, or waiting in the kernel without end."""


class AttachFailed(CollectorError):
    """Every way in was tried; `attempts` says how each ended."""

    def __init__(self, message: str, action: str = "", attempts: tuple[Any, ...] = ()) -> None:
        super().__init__(message, action)
        self.attempts = attempts


class NoHandshake(CollectorError):
    """The agent did not answer in time."""


class PeerGone(CollectorError):
    """The agent hung up."""


class PeerTooOld(CollectorError):
    """The agent speaks an older wire version."""


class PeerTooNew(CollectorError):
    """The agent speaks a newer wire version."""


class NotWritable(CollectorError):
    """A folder or file that has to be written cannot be."""


class LaunchFailed(CollectorError):
    """The command of `run` did not start: exit 127 or 126, the shell's codes."""
