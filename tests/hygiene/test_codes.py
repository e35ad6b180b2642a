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


def decisions(tree: ast.Module) -> Iterator[ast.expr]:
    """Where a sentence is compared with something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_one = _name(node.func.value) in SENTENCES or any(map(_is_sentence, node.args))
            if node.func.attr in ASKS and of_one:
                yield node
        elif isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            texts = any(isinstance(getattr(part, "value", None), str) for part in parts)
            if any(map(_is_sentence, parts)) or (
                texts and any(_name(part) in SENTENCES for part in parts)
            ):
                yield node


def test_nothing_is_decided_by_a_sentence() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in SOURCES
        if path != OLD_SENTENCES
        for node in decisions(ast.parse(path.read_text("utf-8")))
    }
    assert not found, "\n".join(sorted(found))
    text = """
b = str(status["says"]).startswith("slower")
c = found.says[0].isdigit()
e = any("shared through MPS" in str(line) for line in lines)
f = fault == "too old"
g = fault.errno == "x" or name == "ready" or path.endswith(".brrr") or text.startswith("  ")
"""
    assert len(list(decisions(ast.parse(text)))) == 4, "the check finds what it is for"
