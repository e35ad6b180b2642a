"""What an installation brings along: bounded below, few, and each imported only where it belongs."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = {
    "textual": ("textual", r"brrrtop/tui/.*|brrrtop/cli/.*"),
    "rich": ("textual", r"brrrtop/tui/.*|brrrtop/cli/.*"),
    "numpy": ("numpy", r"brrrtop/.*|collectors/(process|gpu|attach|protocol)/.*"),
    "msgspec": ("msgspec", r"brrrtop/.*|collectors/(protocol/.*|vocabulary\.py)"),
    "zstandard": ("zstandard", r"brrrtop/sources/.*"),
    "zlib_ng": ("zlib-ng", r"brrrtop/sources/importers/trace/reader\.py"),
    "pynvml": ("nvidia-ml-py", r"collectors/(gpu|doctor)/.*"),
    "platformdirs": (
        "platformdirs",
        r"brrrtop/(analysis/ceilings|cli/settings)\.py|collectors/attach/agent_library\.py",
    ),
    "tomli": ("tomli", r"brrrtop/cli/settings\.py"),
    "shtab": ("shtab", r"brrrtop/cli/arguments\.py"),
    "cupti": ("cupti-python", r"collectors/gpu/counters/.*"),
    "textual_serve": ("textual-serve", r"brrrtop/cli/in_browser\.py"),
    "prometheus_client": ("prometheus-client", r"brrrtop/exporters/prometheus\.py"),
}
"""Module imported → the dependency that brings it, and the files that may import it."""
INSIDE_TRAINERS = {"torch", "_brrrtop_agent"}
"""Of the trainer, not of ours; never a dependency."""
WHERE_INSTALLED = {
    "brrrtop/api/callbacks.py": {"lightning", "pytorch_lightning", "transformers"},
    "brrrtop/api/loggers.py": {"wandb", "mlflow"},
    "brrrtop/exporters/tables.py": {"pyarrow"},
}
"""Used where a user has them and asks for it; never a dependency either."""
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")


def declared() -> dict[str, str]:
    """Each dependency with its bounds."""
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert listed is not None
    entries = re.findall(r'"([^"]+)"', listed[1])
    pairs = (re.fullmatch(r"([A-Za-z0-9_-]+)([^;]*)(;.*)?", entry) for entry in entries)
    return {match[1]: match[2] for match in pairs if match}


def imports(path: Path) -> Iterator[str]:
    """Top-level names of other projects that a file imports, by statement or by name."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            names = [a.value for a in node.args if isinstance(a, ast.Constant)]
        for top in (name.partition(".")[0] for name in names):
            if top not in sys.stdlib_module_names and top not in ("brrrtop", "collectors"):
                yield top


@cache
def files() -> dict[str, set[str]]:
    """What each file of the product imports from others."""
    result = {}
    for package in ("brrrtop", "collectors"):
        for path in (ROOT / package).rglob("*.py"):
            inside = path.is_relative_to(ROOT / "collectors" / "agent")
            siblings = {one.stem for one in path.parent.glob("*.py")} if inside else set()
            name = str(path.relative_to(ROOT))
            optional = WHERE_INSTALLED.get(name, set())
            result[name] = set(imports(path)) - siblings - INSIDE_TRAINERS - optional
    return result


def test_every_dependency_is_imported_and_every_import_declared() -> None:
    used = {name for names in files().values() for name in names}
    assert used == set(IMPORTED)
    assert {IMPORTED[name][0] for name in used} == set(declared())


def test_each_is_imported_only_where_it_belongs() -> None:
    strays = [
        f"{path}: {name}"
        for path, names in files().items()
        for name in names & set(IMPORTED)
        if not re.fullmatch(IMPORTED[name][1], path)
    ]
    assert strays == []


def test_the_project_and_its_set_up_agree_on_the_pythons() -> None:
    text = (ROOT / "dev.py").read_text()
    oldest, newest = (tuple(map(int, pair.split("."))) for pair in (PYTHONS[0], PYTHONS[-1]))
    assert f"OLDEST, NEWEST = {oldest}, {newest}" in text
    assert f'requires-python = ">={PYTHONS[0]}"' in (ROOT / "pyproject.toml").read_text()


def pinned() -> dict[str, str]:
    """The exact versions that the checks run with."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    result = (re.match(r"([a-z-]+)==([\w.]+)", line) for line in lines)
    return {match[1]: match[2] for match in result if match}


def test_all_that_is_declared_is_pinned_for_the_checks() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^test = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert listed is not None
    tools = re.findall(r'"([A-Za-z0-9_-]+)', listed[1])
    assert len(tools) >= 8
    assert [name for name in (*declared(), *tools) if name not in pinned()] == []


def test_what_runs_before_a_commit_is_what_the_checks_run() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    hooks = dict(re.findall(r"github\.com/[\w-]+/([\w-]+)\n\s+rev: v([\w.]+)", text))
    assert hooks == {"ruff-pre-commit": pinned()["ruff"], "mirrors-mypy": pinned()["mypy"]}
