"""A name says what the value is: participles that mean everything are no names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("brrrtop", "collectors", "benchmarks", "screenshots", "tests")
BARE = frozenset({"found", "told", "said", "held", "heard", "look"})


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that the module gives to something, and the line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name, node.lineno


def bare_names(text: str) -> list[tuple[str, int]]:
    return [one for one in bound_names(ast.parse(text)) if one[0].strip("_").lower() in BARE]


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_say_what_the_value_is(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    named = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in files
        for name, line in bare_names(path.read_text())
    ]
    assert not named


@pytest.mark.parametrize(
    "text",
    [
        "found = 1",
        "self._held = []",
        "def told(): ...",
        "def f(said): ...",
        "for look in x: ...",
        "HELD: int = 1",
    ],
)
def test_a_bare_name_is_noticed(text: str) -> None:
    assert len(bare_names(text)) == 1
