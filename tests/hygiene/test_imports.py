"""Who may import whom, and what really loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLOSED_WORLDS = [ROOT / "collectors" / "agent", ROOT / "collectors" / "trial"]
"""What runs in somebody's program."""


def loaded_after(code: str) -> set[str]:
    """Names in `sys.modules` of a fresh interpreter that ran `code`."""
    program = f"import sys\n{code}\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def outsiders(modules: set[str], allowed: set[str]) -> set[str]:
    """Top-level names that are neither standard library nor allowed."""
    before = {name.partition(".")[0] for name in loaded_after("pass")}
    tops = {name.partition(".")[0] for name in modules}
    return tops - before - set(sys.stdlib_module_names) - allowed - {"__main__", "__mp_main__"}


def test_import_contracts_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()",
         "--no-logo", "--no-cache"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_help_loads_only_the_parser() -> None:
    modules = loaded_after("from brrrtop.cli.main import main\nmain(['--help'])")
    assert outsiders(modules, {"brrrtop"}) == set()
    assert "shutil" not in modules
    assert not any(name.startswith(("brrrtop.session", "brrrtop.tui")) for name in modules)


def test_a_report_loads_no_screen() -> None:
    modules = loaded_after("import brrrtop.cli.commands.analyze, brrrtop.views.json_report")
    assert not {"textual", "rich", "pynvml", "cupti", "torch"} & modules


@pytest.mark.parametrize("package", ["brrrtop", "collectors", "collectors.agent"])
def test_packages_import_nothing(package: str) -> None:
    assert outsiders(loaded_after(f"import {package}"), {"brrrtop", "collectors"}) == set()


def _imports(path: Path) -> set[str]:
    """Top-level names that a file imports absolutely."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("world", CLOSED_WORLDS, ids=lambda path: path.name)
def test_a_closed_world_imports_the_standard_library_and_itself(world: Path) -> None:
    known = set(sys.stdlib_module_names)
    foreign = {str(path): _imports(path) - known for path in world.rglob("*.py")}
    assert {path: names for path, names in foreign.items() if names} == {}


@pytest.mark.parametrize("world", CLOSED_WORLDS, ids=lambda path: path.name)
def test_loading_a_closed_world_loads_the_standard_library_only(world: Path) -> None:
    paths = [path.relative_to(world).with_suffix("") for path in sorted(world.rglob("*.py"))]
    names = [".".join(path.parts) for path in paths if path.name != "__init__"]
    code = f"""
import importlib, importlib.util
spec = importlib.util.spec_from_file_location(
    "_closed_world", {str(world / "__init__.py")!r}, submodule_search_locations=[{str(world)!r}])
module = importlib.util.module_from_spec(spec)
sys.modules["_closed_world"] = module
spec.loader.exec_module(module)
for name in {names!r}:
    importlib.import_module("_closed_world." + name)
"""
    assert outsiders(loaded_after(code), {"_closed_world"}) == set()
