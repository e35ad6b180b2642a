"""SECURITY.md is short, and every promise in it has a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)\n", PAGE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_test_it_names_exists() -> None:
    named = _TEST.findall(PAGE)
    assert len(named) > 15
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, FUNCTIONS)}
        assert name in defined, f"{path}::{name}"


def test_every_point_of_a_promise_names_a_test() -> None:
    points = [
        point
        for title, text in sections().items()
        if title != "What is not promised"
        for point in re.findall(r"^- (.+?)(?=^- |^$|\Z)", text, re.MULTILINE | re.DOTALL)
    ]
    assert len(points) > 15
    assert [point for point in points if not _TEST.search(point)] == []


def test_nothing_that_is_read_is_run() -> None:
    """ruff refuses pickle, eval, exec and shells; only what starts the agent, a text of ours, may."""
    sources = [*(ROOT / "brrrtop").rglob("*.py"), *(ROOT / "collectors").rglob("*.py")]
    refused = re.compile(r"noqa: S\d|allow_pickle=True|^import (marshal|shelve)", re.MULTILINE)
    exempt = {path.name for path in sources if refused.search(path.read_text())}
    assert len(exempt) == 1
    ruled = (ROOT / "pyproject.toml").read_text()
    assert all(f'"{rule}"' in ruled for rule in ("S102", "S301", "S307", "S602", "S604", "S605"))
