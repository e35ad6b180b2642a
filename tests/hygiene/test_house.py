"""Is it still the same house: sizes, names, fences, promised ids."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests import conftest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (ROOT / "brrrtop", ROOT / "collectors")
FUNCTION_LINES = 60
FORBIDDEN_NAMES = {
    "utils",
    "util",
    "common",
    "helpers",
    "helper",
    "misc",
    "base",
    "manager",
    "core",
}


def modules() -> list[Path]:
    return sorted(path for package in PACKAGES for path in package.rglob("*.py"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function with its length in lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def top_level_imports(path: Path) -> set[str]:
    """Modules that importing the file imports: not those for type checkers alone."""
    texts: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            texts |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            texts.add(node.module or "")
    return texts


def test_functions_stay_readable() -> None:
    long = {
        f"{named(path)}: {name}": lines
        for path in modules()
        for name, lines in functions(path)
        if lines > FUNCTION_LINES
    }
    assert long == {}


def test_packages_stay_empty_so_that_importing_one_imports_nothing() -> None:
    ours = ROOT / "brrrtop" / "__init__.py"
    assert top_level_imports(ours) == {"importlib"}, "the public names load what they need late"
    packages = [path for path in modules() if path.name == "__init__.py" and path != ours]
    assert len(packages) > 20
    assert [named(path) for path in packages if path.read_text()] == []


def test_modules_say_what_they_are() -> None:
    files = [path for path in modules() if path.name != "__init__.py"]
    without = [named(path) for path in files if not ast.get_docstring(ast.parse(path.read_text()))]
    assert without == [], "a one-line job title is missing"
    assert [named(path) for path in files if path.stem in FORBIDDEN_NAMES] == []


def test_every_fence_says_what_it_keeps_out() -> None:
    """ruff finds blind excepts; those let through carry their reason on the line."""
    silent = re.compile(r"noqa: BLE001(?!\s+-?\s*\w)")
    result = [
        f"{named(path)}:{number}"
        for path in modules()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if silent.search(line)
    ]
    assert result == []


def test_the_program_never_calls_home() -> None:
    """Nothing in the packages opens a connection over the network; the exporter's port listens."""
    imports = r"^\s*(from|import) (urllib|http|requests|httpx|aiohttp|ssl)\b"
    calls = re.compile(imports + r"|\bAF_INET6?\b|\bcreate_connection\(", re.MULTILINE)
    speaks = [named(path) for path in modules() if calls.search(path.read_text())]
    assert speaks == ["brrrtop/exporters/prometheus.py"]
    assert ".connect(" not in (ROOT / speaks[0]).read_text()


def test_what_is_kept_between_runs_goes_through_one_writer() -> None:
    """Another user may own the folders that root's environment names (`collectors.own_files`)."""
    kept = [path for path in modules() if "platformdirs.user_" in path.read_text()]
    assert len(kept) >= 3
    assert [named(path) for path in kept if "own_folder(" not in path.read_text()] == []
    writes = re.compile(r"write_text|write_bytes|O_TRUNC|open\([^)]*[\"']wb?[\"']")
    by_hand = [path for path in kept if writes.search(path.read_text())]
    assert [named(path) for path in by_hand] == ["collectors/attach/agent_library.py"], "its lock"


def test_the_pictures_of_the_readme_exist() -> None:
    shown = re.findall(r"!\[[^]]*\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert shown
    assert [path for path in shown if not (ROOT / path).is_file()] == []


def test_the_files_that_are_run_first_exist() -> None:
    assert [one for one in conftest._LONGEST if not (ROOT / f"tests/{one}.py").is_file()] == []
