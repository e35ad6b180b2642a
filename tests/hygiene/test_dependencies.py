"""What an installation brings along: few, all used, all pinned for the checks."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
    assert match is not None
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


def test_every_dependency_is_imported_and_every_import_declared() -> None:
    files = [path for name in ("brrrtop", "collectors") for path in (ROOT / name).rglob("*.py")]
    used = {name for path in files for name in imports(path)} - OPTIONAL - INSIDE_TRAINERS
    assert used == {
        module for name in listed("dependencies") for module in BRINGS.get(name, {name})
    }


def test_the_project_and_its_set_up_agree_on_the_pythons() -> None:
    assert "OLDEST, NEWEST = (3, 10), (3, 14)" in (ROOT / "dev.py").read_text()
    assert 'requires-python = ">=3.10"' in PROJECT


def test_all_that_is_declared_is_pinned_for_the_checks() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(re.findall(r"^([a-z-]+)==([\w.]+)", "\n".join(lines), re.MULTILINE))
    assert listed("dependencies") | listed("test") <= set(pinned)
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    hooks = dict(re.findall(r"github\.com/[\w-]+/([\w-]+)\n\s+rev: v([\w.]+)", text))
    assert hooks == {"ruff-pre-commit": pinned["ruff"], "mirrors-mypy": pinned["mypy"]}
