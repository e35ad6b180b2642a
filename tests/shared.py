"""Folders that all test processes of one run share, or of all runs in one environment."""

import fcntl
import hashlib
import os
import sys
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
    with _locked(place(factory) / name) as folder:
        yield folder


@contextmanager
def kept_folder(factory: pytest.TempPathFactory, name: str, *sources: Path) -> Iterator[Path]:
    """A folder for what is built of these files, ours alone while what is missing in it is made.

    The next run finds it again while they are the same, where tests have a virtual environment of
    their own.
    """
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    own = sys.prefix != sys.base_prefix and os.access(sys.prefix, os.W_OK)
    root = Path(sys.prefix) / "built-by-tests" if own else place(factory)
    root.mkdir(exist_ok=True)
    with _locked(root / f"{name}-{digest.hexdigest()[:16]}") as folder:
        yield folder


@contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
