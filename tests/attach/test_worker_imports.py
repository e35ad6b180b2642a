"""The process that touches the trainer imports the standard library and its siblings alone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from collectors.attach import by_ptrace
from collectors.attach.ptrace import calls
from collectors.gpu.counters import process
from tests.attach import children

ROOT = Path(__file__).resolve().parents[2]


def test_packages_beside_ours_are_never_imported(tracing, tmp_path, monkeypatch):
    """site-packages may hold a `json`, or a `collectors` that came with another package."""
    compiled = shutil.ignore_patterns("native", "__pycache__", "*.so")
    shutil.copytree(ROOT / "collectors", tmp_path / "collectors", ignore=compiled)
    for name in ("json", "signal", "ctypes", "contextlib", "importlib"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from site-packages')")
    monkeypatch.setattr(by_ptrace, "__file__", str(tmp_path / "collectors/attach/by_ptrace.py"))
    with children.python(children.SLEEPING) as one:
        answer = by_ptrace.run_worker({"do": "probe", "pid": one.pid}, 5.0)
    assert answer == {"ok": True, "tries": []}


def test_the_worker_takes_our_package_and_leaves_the_search_path(tmp_path):
    folder = str(ROOT / "collectors")
    text, _, _ = by_ptrace._WORKER.format(folder=folder).partition("; from ")
    show = "import json, collectors.attach.ptrace.calls as p; print(json.dumps([p.__file__, sys.path]))"
    plain = "import json, sys; print(json.dumps(sys.path))"

    def said_by(code: str) -> list[object]:
        command = [sys.executable, "-I", "-S", "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
        answer: list[object] = json.loads(done.stdout)
        return answer

    assert said_by(f"{text}; {show}") == [calls.__file__, said_by(plain)]


def test_the_counter_worker_searches_beside_our_package_last(tmp_path):
    (tmp_path / "collectors").mkdir()
    (tmp_path / "json.py").write_text("raise SystemExit('imported from site-packages')")
    text, _, _ = process._WORKER.format(root=str(tmp_path)).partition("; from ")
    code = f"{text}; import json, collectors; print(collectors.__path__[0])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == str(tmp_path / "collectors"), done.stderr
