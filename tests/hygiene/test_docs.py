"""Docs that speak of this repository name what is in it."""

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from brrrtop.cli.arguments import parse
from brrrtop.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"}
    - {ROOT / "CHANGELOG.md"}  # speaks of the past
)
FOLDERS = ("brrrtop", "collectors", "tests", "benchmarks", "docs", "screenshots")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """What its headings are linked by, as GitHub and the site make it."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one).lower().replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_names_what_exists_and_commands_that_parse(page):
    text = page.read_text("utf-8")
    quoted = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+)`", text)
    missing = [one for one in quoted if not (ROOT / one).exists()]
    for path, anchor in re.findall(r"\]\(([^):#]*)#?([^):]*)\)", text):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(f"{path}#{anchor}")
    assert missing == []
    for line in commands(page):
        assert parse(shlex.split(line)) is not None


def test_the_architecture_names_every_folder_of_the_pipe():
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    for package in ("brrrtop", "collectors"):
        for folder in (ROOT / package).iterdir():
            if (folder / "__init__.py").exists():
                assert f"`{package}/{folder.name}`" in text, folder


def test_the_recipes_name_modules_that_exist():
    """Paths in the text are below `brrrtop/`, `collectors/` or the agent."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text("utf-8")
    roots = [ROOT, ROOT / "brrrtop", ROOT / "collectors", ROOT / "collectors" / "agent"]
    roots += [ROOT / "brrrtop" / "analysis", ROOT / "brrrtop" / "analysis" / "account"]
    named_files = re.findall(r"`([\w./-]+\.(?:py|c|csv))`", text)
    assert len(named_files) > 20
    assert [one for one in named_files if not any((root / one).exists() for root in roots)] == []


STANDS_FOR = {
    "FILE": "tests/recordings/traces/stacks.json.gz",
    "TRACE": "tests/recordings/traces/stacks.json.gz",
    "DIR": "tests/ranks/traces/dlrm",
    "A": "tests/recordings/traces/stacks.json.gz",
    "B": "tests/recordings/traces/serving.json.zst",
    "PID": "4711",
    "URL": "http://localhost:4318",
}
NEEDS_NO_GPU = ("analyze", "compare", "demo --list", "--version")


def commands(page: Path) -> set[str]:
    """What a page tells one to type, without `brrrtop`; a verb alone is its name, not a command."""
    text = page.read_text("utf-8")
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
    lines = [line.split(" #")[0].strip() for line in blocks]
    lines += re.findall(r"`(brrrtop [^\s`]+ [^`\n…]+)`", text)
    typed = {line.removeprefix("brrrtop ") for line in lines if line.startswith("brrrtop ")}
    typed |= set(re.findall(r"`(analyze (?:FILE|DIR)[^`\n…]*)`", text))
    return {re.sub(r"\b[A-Z]+\b", lambda m: STANDS_FOR.get(m[0], m[0]), one) for one in typed}


def test_what_the_pages_tell_one_to_type_works(tmp_path, monkeypatch, capsys):
    typed = {line for page in PAGES for line in commands(page)}
    ran = []
    for line in sorted(typed):
        words = shlex.split(line.replace(" PATH", f" {tmp_path / str(len(ran))}"))
        files = [one for one in words if "/" in one or one.endswith((".gz", ".zst", ".brrr"))]
        exist = all((ROOT / one).exists() or tmp_path in Path(one).parents for one in files)
        if line.startswith(NEEDS_NO_GPU) and exist:
            monkeypatch.chdir(ROOT)
            assert main(words) in (0, 5), line
            capsys.readouterr()
            ran.append(line)
    assert len(ran) >= 8, ran


FIGURES = {
    "attaches": (r"([\d,]+) attaches (?:and detaches and|were)",),
    "an attach holds, ms": (r"holds? a thread for some ([\d.]+) ms", r"of the trainer for ([\d.]+) ms in the med"),
    "ranks measured": (r"A DDP job on (\w+) H100s", r"more than (\w+) ranks have not", r"all (\w+) ranks of a DDP"),
    "models of the last round": (r"edits on (\d+) models chosen", r"\| 3 \| (\d+) \| 111 "),
    "edits": (r"(\d+) edits on \d+ models", r"17 of 19 \((\d+) edits", r"\| 3 \| \d+ \| (\d+) "),
    "median miss": (r"differ by ([\d.]+) points in the median, 15", r"before: ([\d.]+) points", r"\| 111 \| ([\d.]+)"),
    "its 90th percentile": (r"median, ([\d.]+) at the 90th", r"before: [\d.]+ points, ([\d.]+)", r"111 \| 2.4 \| ([\d.]+)"),
    "inside": (r"chosen afterwards it did (\d+ %)", r"15.2 points, (\d+ %)", r"\| 15.2 \| (\d+ %)"),
    "edits, as of today": (r"(\d+) edits\). \[Every model", r"\| fresh \| \d+ \| (\d+)"),
    "fresh programs": (r"(\d+) programs that nothing was", r"monitor of (\d+) programs", r"\*\*(\d+) programs that no"),
    "waits right": (r"within 5 points\) in (\d+)", r"own clock \| 95 % \| (\d+) of"),
    "phases right": (r"phases in (\d+ of \d+)", r"within 5 points \| 9 of 10 \| (\d+ of \d+)"),
    "tried": (r"loader-workers, ([\d.]+)×",),
    "Python": (r"Linux, Python (3\.\d+ to 3\.\d+)", r"brrrtop itself\s+(3\.\d+ to 3\.\d+)"),
}  # fmt: skip
"""What stands on several pages, each where it stands: a change of one is a change of all."""


def test_a_figure_of_several_pages_is_one_figure():
    pages = {page: page.read_text("utf-8") for page in PAGES}
    for what, patterns in FIGURES.items():
        values, places = set(), set()
        for page, text in pages.items():
            hits = {one for pattern in patterns for one in re.findall(pattern, text)}
            values |= hits
            places |= {page} if hits else set()
        assert (len(values), len(places) > 1) == (1, True), (what, values, places)
    rows = re.findall(
        r"^\| `[a-zA-Z_]", (ROOT / "docs" / "faults.md").read_text("utf-8"), re.MULTILINE
    )
    assert f"{len(rows)} injected faults" in pages[ROOT / "README.md"]


def test_the_rule_that_is_shown_is_in_the_source():
    page = (ROOT / "docs" / "writing-a-rule.md").read_text("utf-8")
    (shown,) = re.findall(r"```python\n(.*?)\n```", page, re.DOTALL)
    rules = (ROOT / "brrrtop" / "advisories" / "rules").glob("*.py")
    assert any(shown in path.read_text("utf-8") for path in rules)


def test_the_site_builds_as_the_workflow_builds_it(tmp_path):
    """With what `.[docs]` installs; `dev.py test` and `.ci/run` install it, too."""
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    (line,) = re.findall(r"run: (python -m sphinx .* site)$", workflow, re.MULTILINE)
    command = [sys.executable, *shlex.split(line)[1:-1], str(tmp_path / "site"), "-q"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "site" / "docs" / "api.html").read_text("utf-8")
    assert reference.count("brrrtop.Report.") > 10


PAGE = (ROOT / "SECURITY.md").read_text()
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)\n", PAGE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_test_it_names_exists():
    named = _TEST.findall(PAGE)
    assert len(named) > 15
    for path, name in named:
        tree = ast.parse((ROOT / path).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, FUNCTIONS)}
        assert name in defined, f"{path}::{name}"


def test_every_point_of_a_promise_names_a_test():
    points = [
        point
        for title, text in sections().items()
        if title != "What is not promised"
        for point in re.findall(r"^- (.+?)(?=^- |^$|\Z)", text, re.MULTILINE | re.DOTALL)
    ]
    assert len(points) > 15
    assert [point for point in points if not _TEST.search(point)] == []


def test_nothing_that_is_read_is_run():
    """ruff refuses pickle, eval, exec and shells; only what starts the agent, a text of ours, may."""
    sources = [*(ROOT / "brrrtop").rglob("*.py"), *(ROOT / "collectors").rglob("*.py")]
    refused = re.compile(r"noqa: S\d|allow_pickle=True|^import (marshal|shelve)", re.MULTILINE)
    exempt = {path.name for path in sources if refused.search(path.read_text())}
    assert len(exempt) == 1
    ruled = (ROOT / "pyproject.toml").read_text()
    assert all(f'"{rule}"' in ruled for rule in ("S102", "S301", "S307", "S602", "S604", "S605"))
