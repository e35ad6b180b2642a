"""What can go wrong around a trainer, each with what to do about it. Standard library only.

CollectorError               exit 1
├── NoSuchProcess            exit 3   never existed, exited, or its number went to another process
├── NotPermitted             exit 4
├── NotPython                the process runs no CPython that could load the agent
├── NoTorch                  Python, and no torch in it
├── NotTheTrainer            a launcher, a shell or a worker; another process trains
├── Unsupported              a build or platform nobody has made this work on
├── TrainerStopped           stopped by a signal, or waiting in the kernel without end
├── AttachFailed             every way in was tried; `attempts` says how each ended
├── NoHandshake              the agent did not answer in time
├── PeerGone                 the agent hung up
├── PeerTooOld, PeerTooNew   the two sides speak different wire versions
├── NotWritable              a folder or file that has to be written cannot be
└── LaunchFailed             exit 127 or 126, the shell's codes   the command of `run` did not start
"""

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
    exit_code = 3


class NotPermitted(CollectorError):
    exit_code = 4


class NotPython(CollectorError):
    pass


class NoTorch(CollectorError):
    pass


class NotTheTrainer(CollectorError):
    pass


class Unsupported(CollectorError):
    pass


class TrainerStopped(CollectorError):
    pass


class AttachFailed(CollectorError):
    """No way in worked."""

    def __init__(self, message: str, action: str = "", attempts: tuple[Any, ...] = ()) -> None:
        super().__init__(message, action)
        self.attempts = attempts


class NoHandshake(CollectorError):
    pass


class PeerGone(CollectorError):
    pass


class PeerTooOld(CollectorError):
    pass


class PeerTooNew(CollectorError):
    pass


class NotWritable(CollectorError):
    pass


class LaunchFailed(CollectorError):
    pass
