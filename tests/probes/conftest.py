"""Children in which the probes' hooks are real and global, and the library they talk to."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
AGENT = HERE.parents[1] / "collectors" / "agent"
PREAMBLE = f"""\
from __future__ import annotations
import json, sys, time
sys.path.insert(0, {str(HERE)!r})
from trainer import control, watched
def answer(value): print("ANSWER", json.dumps(value))
"""

Script = Callable[..., Any]


@pytest.fixture(scope="session")
def nursery() -> Iterator[subprocess.Popen[str]]:
    """A process with torch imported that forks a child per script."""
    pytest.importorskip("torch", reason="the probes hook torch: pip install torch")
    process = subprocess.Popen(
        [sys.executable, str(HERE / "nursery.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    process.stdin.close()
    process.wait(10)
    process.stdout.close()


def raised(nursery: subprocess.Popen[str], file: Path) -> tuple[int, str, str]:
    """Exit status, output and errors of a script run in a child of the nursery."""
    nursery.stdin.write(f"{file}\n")
    nursery.stdin.flush()
    status = int(nursery.stdout.readline())
    out, errors = (Path(f"{file}{suffix}").read_text() for suffix in (".out", ".err"))
    return status, out, errors


@pytest.fixture
def script(tmp_path, request) -> Script:
    """Runs a script in a child over a recording library; what it passes to `answer` comes back."""

    def run(text: str, python: str | None = None) -> Any:
        file = tmp_path / "train.py"
        body = textwrap.indent(textwrap.dedent(text), "    ")
        file.write_text(f"{PREAMBLE}if __name__ == '__main__':\n{body}")
        if python is None:
            status, out, errors = raised(request.getfixturevalue("nursery"), file)
        else:
            done = subprocess.run(
                [python, str(file)], capture_output=True, text=True, timeout=60, cwd=tmp_path
            )
            status, out, errors = done.returncode, done.stdout, done.stderr
        assert status == 0, errors[-3000:]
        return json.loads(out.rpartition("ANSWER ")[2])

    return run


@pytest.fixture(scope="session")
def library(tmp_path_factory) -> Path:
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
        for result in sorted(root.glob(f"{version}.*/bin/python")):
            return str(result)
    found_on_path = shutil.which(f"python{version}")
    if found_on_path is None:
        pytest.skip(f"no Python {version} on this machine")
    return found_on_path


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without what would let a child find our own packages."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "BRRRTOP"))}
    return {**kept, **more}
