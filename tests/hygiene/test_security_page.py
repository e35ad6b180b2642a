"""SECURITY.md is short, and every promise in it has a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_LOADS_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_RUNS_TEXT = {"eval", "exec", "compile", "os.system", "os.popen"}


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


def runs_what_it_reads(tree: ast.AST) -> list[str]:
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            texts += [one.name for one in node.names if one.name in _LOADS_CODE]
        elif isinstance(node, ast.ImportFrom) and node.module in _LOADS_CODE:
            texts.append(node.module)
        elif isinstance(node, ast.Call):
            if ast.unparse(node.func) in _RUNS_TEXT:
                texts.append(ast.unparse(node.func))
            options = {one.arg: ast.unparse(one.value) for one in node.keywords}
            texts += [name for name in ("shell", "allow_pickle") if options.get(name) == "True"]
    return texts


def test_nothing_that_is_read_is_run() -> None:
    """Of the monitor's side; what starts the agent in a trainer is text of ours."""
    paths = [*(ROOT / "brrrtop").rglob("*.py"), *(ROOT / "collectors").glob("*.py")]
    strays = {
        str(path.relative_to(ROOT)): names
        for path in paths
        if (names := runs_what_it_reads(ast.parse(path.read_text())))
    }
    assert strays == {}
    hostile = "import pickle\neval(x)\nnp.load(f, allow_pickle=True)\nrun(x, shell=True)"
    assert runs_what_it_reads(ast.parse(hostile)) == ["pickle", "eval", "allow_pickle", "shell"]
