"""What is installed has all that it reads of its own."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "brrrtop" / "data"
hatchling = pytest.importorskip("hatchling.builders.wheel", reason="no hatchling to pack with")


def packed(builder: Any) -> set[str]:
    """Paths in the repository of what is packed, before any hook adds the agent's library."""
    return {str(Path(f.path).relative_to(ROOT)) for f in builder.recurse_included_files()}


def wheel() -> set[str]:
    return packed(hatchling.WheelBuilder(str(ROOT)))


def sdist() -> set[str]:
    from hatchling.builders.sdist import SdistBuilder

    return packed(SdistBuilder(str(ROOT)))


def test_the_sources_come_with_what_their_checks_and_their_readers_need():
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    pages |= {path.name for path in ROOT.glob("*.md")} | {"screenshots/demo.svg"}
    assert {"LICENSE", "dev.py", "constraints.txt"} | pages <= sdist()


@pytest.mark.parametrize("pack", [wheel, sdist])
def test_tables_demos_and_c_sources_are_packed(pack):
    data = [path for path in DATA.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    sources = (ROOT / "collectors" / "agent" / "native").glob("*.[ch]")
    wanted = {str(path.relative_to(ROOT)) for path in (*data, *sources)}
    assert {"brrrtop/data/peaks.csv", "brrrtop/py.typed"} <= pack()
    assert wanted <= pack()


def elf(machine: int, *versions: str) -> bytes:
    """As much of a library as tells what it is for."""
    head = b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little")
    return head + b"".join(b"\0" + one.encode() for one in versions) + b"\0"


def test_a_wheel_is_for_the_glibc_that_its_library_needs(tmp_path):
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    library = tmp_path / "library.so"
    library.write_bytes(elf(62, "GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.4"))
    assert build.platform_of(library, "x86_64") == "manylinux_2_34_x86_64"
    with pytest.raises(ValueError, match="aarch64"):
        build.platform_of(library, "aarch64")
    library.write_bytes(elf(183, "GLIBC_2.17"))
    assert build.platform_of(library, "aarch64") == "manylinux_2_17_aarch64"


def test_a_wheel_for_a_named_machine_has_its_libraries_or_is_not_made(tmp_path):
    """Else a compiler's complaint would be published as a wheel that watches counters only."""
    other = next(one for one in ("x86_64", "aarch64") if one != os.uname().machine)
    environment = {**os.environ, "CC": "/bin/false", "BRRRTOP_MACHINE": other}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode != 0 and "no agent library" in done.stderr
    assert list(tmp_path.iterdir()) == []


BUILDING = """
import sys
before = set(sys.modules)
from brrrtop.sources.importers.kineto.scanner_library import LIBRARY
from collectors.attach import agent_library
for library in (LIBRARY, agent_library.library()):
    library.is_current(library.bundled_in / library.file_name)
new = {name.split(".")[0] for name in set(sys.modules) - before if not name.startswith("_")}
print(*new - {"brrrtop", "collectors"} - sys.stdlib_module_names)
"""
"""What the hook of `hatch_build.py` does, but for compiling."""


def test_what_builds_a_wheel_needs_nothing_that_is_not_asked_for():
    """pip and pipx build with what `build-system.requires` lists and nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", BUILDING],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    (line,) = (
        line for line in (ROOT / "pyproject.toml").read_text().splitlines()
        if line.startswith("requires = [")
    )  # fmt: skip
    asked = {name.split(">")[0] for name in line.split('"')[1::2]}
    assert set(done.stdout.split()) - {"typing_extensions"} <= asked, (
        "msgspec takes that where it is"
    )


PROJECT = (ROOT / "pyproject.toml").read_text()
BRINGS = {
    "textual": {"textual", "rich"},
    "zlib-ng": {"zlib_ng"},
    "nvidia-ml-py": {"pynvml"},
    "cupti-python": {"cupti"},
    "textual-serve": {"textual_serve"},
    "prometheus-client": {"prometheus_client"},
}
"""Dependency → the modules it brings, where they are not called as it is."""
OPTIONAL = set("lightning pytorch_lightning transformers wandb mlflow pyarrow".split())
"""Used where a user has them and asks for it; never dependencies."""
INSIDE_TRAINERS = {"torch", "_brrrtop_agent"}


def listed(name: str) -> set[str]:
    """Names in a list of pyproject.toml, without their bounds."""
    match = re.search(rf"^{name} = \[(.*?)^\]", PROJECT, re.MULTILINE | re.DOTALL)
    return set(re.findall(r'"([A-Za-z0-9_-]+)[^"]*"', match[1]))


def imports(path: Path) -> set[str]:
    """Top-level names of other projects that a file imports, by statement or by name."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.append(node.module or "")
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            names += [str(a.value) for a in node.args if isinstance(a, ast.Constant)]
    ours = {"brrrtop", "collectors", *(one.stem for one in path.parent.glob("*.py"))}
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - ours


def test_every_dependency_is_imported_and_every_import_declared():
    files = [path for name in ("brrrtop", "collectors") for path in (ROOT / name).rglob("*.py")]
    files = [path for path in files if "data" not in path.relative_to(ROOT).parts]
    used = {name for path in files for name in imports(path)} - OPTIONAL - INSIDE_TRAINERS
    assert used == {
        module for name in listed("dependencies") for module in BRINGS.get(name, {name})
    }


def test_the_project_and_its_set_up_agree_on_the_pythons():
    assert "OLDEST, NEWEST = (3, 10), (3, 14)" in (ROOT / "dev.py").read_text()
    assert 'requires-python = ">=3.10"' in PROJECT


def test_all_that_is_declared_is_pinned_for_the_checks():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(re.findall(r"^([a-z-]+)==([\w.]+)", "\n".join(lines), re.MULTILINE))
    assert listed("dependencies") | listed("test") <= set(pinned)
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    hooks = dict(re.findall(r"github\.com/[\w-]+/([\w-]+)\n\s+rev: v([\w.]+)", text))
    assert hooks == {"ruff-pre-commit": pinned["ruff"], "mirrors-mypy": pinned["mypy"]}
