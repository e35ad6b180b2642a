"""Children in which the probes' hooks are real and global, and the library they talk to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
AGENT = HERE.parents[1] / "collectors" / "agent"
PREAMBLE = f"import json, sys, time\nsys.path.insert(0, {str(HERE)!r})\nfrom trainer import control, watched\n"

Script = Callable[..., Any]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Runs a script in a child over a recording library; what it passes to `answer` comes back."""

    def run(text: str, python: str = sys.executable, preamble: str = PREAMBLE) -> Any:
        file = tmp_path / "train.py"
        answer = "def answer(value): print('ANSWER', json.dumps(value))\n"
        guard = "if __name__ == '__main__':\n"
        body = textwrap.indent(textwrap.dedent(text), "    ")
        file.write_text(preamble + answer + guard + body)
        done = subprocess.run(
            [python, str(file)], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.rpartition("ANSWER ")[2])

    return run


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of these tests, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    built = tmp_path_factory.mktemp("library") / "brrrtop_test.so"
    source = HERE / "library.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", built, source], check=True)
    return built


def other_python(version: str) -> str:
    """An interpreter of that version, or a skip that says so."""
    for root in (Path.home() / ".pyenv" / "versions", Path("/opt/python")):
        for found in sorted(root.glob(f"{version}.*/bin/python")):
            return str(found)
    found_on_path = shutil.which(f"python{version}")
    if found_on_path is None:
        pytest.skip(f"no Python {version} on this machine")
    return found_on_path


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without what would let a child find our own packages."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "BRRRTOP"))}
    return {**kept, **more}
