"""No English sentence is a protocol: what the product decides on is a code, an enum or a flag.

Code that asks how a sentence begins or ends, or what is in it, breaks when somebody improves the
sentence. Sentences of before there were codes are read in one place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OLD_SENTENCES = ROOT / "collectors" / "protocol" / "bodies.py"
SENTENCES = {"says", "sentence", "message", "note", "notes", "blocker", "verdict", "fault", "why"}
"""Names of values that are sentences."""
ASKS = {"startswith", "endswith", "isdigit", "split", "partition", "rpartition", "find", "index"}
SOURCES = sorted(
    path for folder in ("brrrtop", "collectors") for path in (ROOT / folder).rglob("*.py")
)


def _is_sentence(node: ast.expr) -> bool:
    """Whether it is the text of two words or more."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and len(node.value.strip().split(" ")) > 1
    )


def _constants(trees: dict[Path, ast.Module]) -> set[str]:
    """Names of constants, of any module, that hold sentences."""
    constants = set()
    for tree in trees.values():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AnnAssign) and node.value is not None:
                targets = [node.target]
            parts = list(ast.walk(node.value)) if targets else []  # type: ignore[attr-defined]
            calls = {ast.unparse(part.func) for part in parts if isinstance(part, ast.Call)}
            values = parts if calls <= {"frozenset", "tuple"} else []
            if any(_is_sentence(value) for value in values if isinstance(value, ast.expr)):
                constants |= {target.id for target in targets if isinstance(target, ast.Name)}
    return constants


def _name(node: ast.expr) -> str:
    """`says` of `found.says[0]`, of `status["says"]` and of `str(one.says).lower()`."""
    while True:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Call) and len(node.args) == 1:
            node = node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            if isinstance(node.slice.value, str):
                return node.slice.value
            node = node.value
        else:
            break
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def decisions(tree: ast.Module, constants: set[str]) -> Iterator[ast.expr]:
    """Where a sentence is compared with something."""

    def written(node: ast.expr) -> bool:
        parts = [part for part in ast.walk(node) if isinstance(part, ast.expr)]
        return any(_is_sentence(part) or _name(part) in constants for part in parts)

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asks = node.func.attr in ASKS
            if asks and (_name(node.func.value) in SENTENCES or any(map(written, node.args))):
                yield node
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            texts = [one for one in sides if isinstance(one, ast.Constant) and one.value]
            named = any(_name(one) in SENTENCES for one in sides)
            if (
                any(map(_is_sentence, sides))
                or (named and any(isinstance(one.value, str) for one in texts))
                or (named and any(_name(one) in constants for one in sides))
            ):
                yield node


def test_nothing_is_decided_by_a_sentence() -> None:
    trees = {path: ast.parse(path.read_text("utf-8")) for path in SOURCES}
    constants = _constants(trees)
    result = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path, tree in trees.items()
        if path != OLD_SENTENCES
        for node in decisions(tree, constants)
    }
    assert not result, "\n".join(sorted(result))


def test_the_check_finds_what_it_is_for() -> None:
    text = """
_MISSING = "is missing"
WORDS = frozenset({"", "kernel tracing is ready"})
a = note.endswith(_MISSING)
b = str(status["says"]).startswith("slower")
c = found.says[0].isdigit()
d = says not in WORDS
e = any("shared through MPS" in str(line) for line in lines)
f = fault == "too old"
g = fault.errno == "x" or name == "ready" or path.endswith(".brrr") or text.startswith("  ")
"""
    tree = ast.parse(text)
    assert len(list(decisions(tree, _constants({Path("x"): tree})))) == 6
