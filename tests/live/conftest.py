"""The stand-in NVML, built once, and children that are told to load it."""

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import shared

HERE = Path(__file__).parent
SOURCE = HERE.parent / "fakes" / "nvml" / "fake_nvml.c"
ROOT = HERE.parent.parent

Ask = Callable[..., Any]


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory) -> Path:
    """The folder that holds the stand-in libnvidia-ml.so.1."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here, which the stand-in NVML needs")
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1"]
    name = "-Wl,-soname,libnvidia-ml.so.1"
    with shared.locked_folder(tmp_path_factory, "nvml") as folder:
        library = folder / "libnvidia-ml.so.1"
        if not library.exists():
            done = subprocess.run(
                [*command, name, "-o", str(library), str(SOURCE), "-lm"],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def ask(fake_nvml: Path) -> Ask:
    """`ask("scenario", FAKE_NVML_…=…)`: what `child.py` says of it, in a process of its own."""

    def run(scenario: str, *, library: bool = True, **script: str) -> Any:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("FAKE_NVML")}
        path = str(fake_nvml) if library else ""
        done = subprocess.run(
            [sys.executable, str(HERE / "child.py"), scenario],
            env={**kept, **script, "LD_LIBRARY_PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(autouse=True)
def no_fault_is_swallowed(request) -> Iterator[None]:
    """Fails a test in which live watching survived a fault of our own; `survives_faults` excuses one."""
    faults: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = faults.append  # type: ignore[method-assign]
    log = logging.getLogger("brrrtop.faults")
    log.addHandler(handler)
    yield
    log.removeHandler(handler)
    if faults and not request.node.get_closest_marker("survives_faults"):
        pytest.fail("\n".join(map(logging.Formatter().format, faults)))
