"""A folder that all test processes of one run share."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def place(factory: pytest.TempPathFactory) -> Path:
    """The run's own folder, which its workers have in common."""
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = root / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def locked_folder(factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder of that name, ours alone while what is missing in it is made."""
    folder = place(factory) / name
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
