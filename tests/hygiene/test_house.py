"""What neither ruff nor the import contracts check of the house."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import conftest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path for name in ("brrrtop", "collectors") for path in (ROOT / name).rglob("*.py"))
FUNCTION_LINES = 60
VAGUE_NAMES = set("utils util common helpers helper misc base manager core".split())
CLOSED_WORLDS = [ROOT / "collectors" / "agent", ROOT / "collectors" / "trial"]
"""What runs in somebody's program."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_functions_stay_readable():
    long = [
        f"{named(path)}: {node.name}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
    ]
    assert long == []


def test_modules_have_names_and_packages_stay_empty():
    assert [named(path) for path in MODULES if path.stem in VAGUE_NAMES] == []
    packages = [named(path) for path in MODULES if path.name == "__init__.py" and path.read_text()]
    assert packages == ["brrrtop/__init__.py"], "the public names load what they need late"


def test_every_broad_except_carries_its_reason():
    """ruff finds blind excepts; those let through say why on the line."""
    silent = re.compile(r"noqa: BLE001(?!\s+-?\s*\w)")
    assert [named(path) for path in MODULES if silent.search(path.read_text())] == []


def test_the_program_never_calls_home():
    """Nothing in the packages opens a connection over the network; the exporter's port listens."""
    imports = r"^\s*(from|import) (urllib|http|requests|httpx|aiohttp|ssl)\b"
    calls = re.compile(imports + r"|\bAF_INET6?\b|\bcreate_connection\(", re.MULTILINE)
    network = [named(path) for path in MODULES if calls.search(path.read_text())]
    assert network == ["brrrtop/exporters/prometheus.py"]
    assert ".connect(" not in (ROOT / network[0]).read_text()


def test_what_is_kept_between_runs_goes_through_one_writer():
    """Another user may own the folders that root's environment names (`collectors.own_files`)."""
    kept = [path for path in MODULES if "platformdirs.user_" in path.read_text()]
    assert len(kept) >= 3
    assert [named(path) for path in kept if "own_folder(" not in path.read_text()] == []
    writes = re.compile(r"write_text|write_bytes|O_TRUNC|open\([^)]*[\"']wb?[\"']")
    by_hand = [path for path in kept if writes.search(path.read_text())]
    assert [named(path) for path in by_hand] == ["collectors/attach/agent_library.py"], "its lock"


def test_the_files_that_are_run_first_exist():
    assert [one for one in conftest._LONGEST if not (ROOT / f"tests/{one}.py").is_file()] == []


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


def test_help_loads_only_the_parser():
    modules = loaded_after("from brrrtop.cli.main import main\nmain(['--help'])")
    assert outsiders(modules, {"brrrtop"}) == set()
    assert "shutil" not in modules
    assert not any(name.startswith(("brrrtop.session", "brrrtop.tui")) for name in modules)


def test_a_report_loads_no_screen():
    modules = loaded_after("import brrrtop.cli.commands.reports, brrrtop.views.json_report")
    assert not {"textual", "rich", "pynvml", "cupti", "torch"} & modules


@pytest.mark.parametrize("world", CLOSED_WORLDS, ids=lambda path: path.name)
def test_what_runs_in_a_trainer_needs_the_standard_library_only(world):
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
    for path in world.rglob("*.py"):
        imported = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add((node.module or "").partition(".")[0])
        assert imported <= set(sys.stdlib_module_names), path


_SENTENCE = r"\b(?:says|sentence|message|notes?|blocker|verdict|fault|why)\b"
_ASKS = "startswith|endswith|isdigit|split|partition|rpartition|find|index"
DECIDES = re.compile(
    rf'{_SENTENCE}(?:"?\]|\))*(?:\[[^]]*\])?\.(?:{_ASKS})\(|{_SENTENCE}"?\]? (?:==|!=) "'
    r'|"\w+ [^"]*" (?:in|==|!=) |(?:==|!=) "\w+ [^"]*"'
)
"""Where a sentence, by its name or of two words and more, is compared with something."""


def test_nothing_is_decided_by_a_sentence():
    old = (
        ROOT / "collectors" / "protocol" / "bodies.py"
    )  # of recordings from before there were codes
    lines = [
        (path, one) for path in MODULES if path != old for one in path.read_text().splitlines()
    ]
    assert [(named(path), one) for path, one in lines if DECIDES.search(one.split("  #")[0])] == []
    text = """
b = str(status["says"]).startswith("slower")
c = found.says[0].isdigit()
e = any("shared through MPS" in str(line) for line in lines)
f = fault == "too old"
g = fault.errno == "x" or name == "ready" or path.endswith(".brrr") or text.startswith("  ")
"""
    assert len(DECIDES.findall(text)) == 4, "the check finds what it is for"
