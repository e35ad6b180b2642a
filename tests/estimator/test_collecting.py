"""Collecting on several GPUs: scripts and `ncu` replaced by small programs that leave traces of how
they were run."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from benchmarks.truth import collect as collecting
from benchmarks.truth.keep import stated
from brrrtop.advisories.catalogue import ENTRIES
from brrrtop.model import Regime

KNOWN = {entry.kind for entry in ENTRIES}
COLLECT = Path(__file__).resolve().parents[2] / "benchmarks" / "truth" / "collect.py"
SCRIPT = """\
TRUTH = {}
import os, pathlib, sys, time
out = pathlib.Path(sys.argv[sys.argv.index("--profile-dir") + 1])
name = pathlib.Path(__file__).stem
facts = os.environ["CUDA_VISIBLE_DEVICES"] + " " + os.environ["TMPDIR"] + " " + str(time.time())
time.sleep(float(os.environ.get("NAP", "0.4")))
(out / f"{name}.trace.json.gz").write_bytes(os.urandom(int(os.environ.get("WEIGHT", "10"))))
(out / f"{name}.meta.json").write_text(facts + " " + str(time.time()))
"""
WRAPPER = """\
#!/bin/sh
"{python}" "$(dirname "$0")/ncu.py" "$@"
"""
NCU = """\
import os, pathlib, subprocess, sys, time
if "slow.py" in sys.argv:
    trains = "import time; time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", trains, "slow.py", "--ncu-step"])
    pathlib.Path(os.environ["PIDS"]).write_text(str(child.pid))
    child.wait()
assert sys.argv[-1] == "--ncu-step" and pathlib.Path(sys.argv[-2]).exists()
print("==PROF== Connected")
columns = ["Kernel Name", "Grid Size", "Block Size"]
metrics = sys.argv[sys.argv.index("--metrics") + 1].split(",")
for row in (columns + metrics, [""] * 11, ["gemm"] + ["1"] * 10, ["norm"] + ["2"] * 10):
    print(",".join('"' + cell + '"' for cell in row))
"""


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    folder, tools = tmp_path / "zoo", tmp_path / "bin"
    folder.mkdir()
    tools.mkdir()
    for name in ("a", "b", "c", "d", "_helper"):
        (folder / f"{name}.py").write_text('"""Fake."""\n' + SCRIPT)
    # NVIDIA's is a shell script too, and the real one its child.
    (tools / "ncu").write_text(WRAPPER.format(python=sys.executable))
    (tools / "ncu").chmod(0o755)
    (tools / "ncu.py").write_text(NCU)
    return folder


def collect(zoo: Path, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{zoo.parent / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, COLLECT, "--zoo", zoo, "--out", zoo.parent / "out", *options],
        env=os.environ | {"PATH": path, **env}, text=True, capture_output=True, timeout=50, check=False,
    )  # fmt: skip


def packed(zoo: Path) -> dict[str, bytes]:
    """Everything in the tar files; nothing else may be left."""
    found: dict[str, bytes] = {}
    for path in (zoo.parent / "out").iterdir():
        assert path.suffix == ".tar"
        with tarfile.open(path) as tar:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                found[member.name] = file.read()
    return found


def test_scripts_run_side_by_side_one_a_gpu_each_with_its_own_temporary_folder(zoo: Path) -> None:
    done = collect(zoo, "--gpus", "2", CUDA_VISIBLE_DEVICES="3,5,6")
    assert done.returncode == 0, done.stderr
    files = packed(zoo)
    assert set(files) == {"collect.log"} | {
        f"{name}.{end}" for name in "abcd" for end in ("trace.json.gz", "meta.json", "ncu.csv")
    }
    spans: dict[str, list[tuple[float, float]]] = {}
    folders: dict[str, set[str]] = {}
    for name in "abcd":
        gpu, folder, start, end = files[f"{name}.meta.json"].decode().split()
        spans.setdefault(gpu, []).append((float(start), float(end)))
        folders.setdefault(gpu, set()).add(folder)
    assert set(spans) == {"3", "5"}
    assert all(len(of_gpu) == 1 for of_gpu in folders.values())
    assert folders["3"] != folders["5"]
    for of_gpu in spans.values():
        ordered = sorted(of_gpu)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ordered))
    assert min(e for _, e in spans["3"]) > min(s for s, _ in spans["5"])
    assert files["a.ncu.csv"].decode().splitlines()[1:] == [
        "0,gemm" + ",1" * 10,
        "1,norm" + ",2" * 10,
    ]


def test_at_the_deadline_what_runs_is_stopped_and_what_is_finished_is_kept(zoo: Path) -> None:
    (zoo / "slow.py").write_text('"""Fake."""\n' + SCRIPT)
    pids = zoo.parent / "pids"
    began = time.monotonic()
    done = collect(zoo, "--only", "a,slow,b", "--deadline", "4", PIDS=str(pids), NAP="0")
    assert time.monotonic() - began < 15
    files = packed(zoo)
    assert {"a.ncu.csv", "slow.trace.json.gz"} <= set(files)
    # Once its trainer is gone, ncu tells what it counted of it.
    assert len(files["slow.ncu.csv"].splitlines()) == 3
    assert "b.meta.json" not in files
    log = files["collect.log"].decode()
    assert "ncu 2 kernels" in log and "not started" in log
    assert log in done.stdout
    assert gone(pids)


def test_an_ncu_that_outlives_its_trainer_is_stopped_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, pathlib, subprocess, sys, time; subprocess.Popen(['sleep', '60']);"
        " pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    )
    monkeypatch.setattr(
        collecting, "after_child", functools.partial(collecting.after_child, patience_s=0.2)
    )
    job = collecting.Job(tmp_path, tmp_path, 1, 1.0, time.monotonic() + 20)
    command = [sys.executable, "-c", code, str(pids)]
    ended = collecting.bounded(command, job, dict(os.environ), end_child=True)
    assert ended.code is None and ended.why == "stopped"
    assert gone(pids)


def gone(pids: Path) -> bool:
    """Whether the process whose id was written there is no more, or only waits to be reaped."""
    stat = Path("/proc") / pids.read_text() / "stat"
    return not stat.exists() or stat.read_text().split()[2] == "Z"


def test_large_results_are_split_into_files_that_can_be_sent(zoo: Path) -> None:
    done = collect(zoo, "--gpus", "4", NAP="0", WEIGHT=str(6 << 20))
    assert "truth-2.tar" in done.stdout
    sizes = [path.stat().st_size for path in (zoo.parent / "out").iterdir()]
    assert len(sizes) == 2 and max(sizes) <= 15 << 20
    assert len(packed(zoo)) == 13


def test_a_script_that_fails_leaves_its_last_words_and_no_files(zoo: Path) -> None:
    (zoo / "bad.py").write_text("TRUTH = {}\nraise SystemExit('no such op here')\n")
    done = collect(zoo, "--only", "bad,a", NAP="0")
    assert "bad                gpu 0: trace failed: no such op here" in done.stdout
    assert not [name for name in packed(zoo) if name.startswith("bad")]
    assert "a.ncu.csv" in packed(zoo)


def test_what_a_script_could_not_run_is_in_the_log(zoo: Path) -> None:
    told = 'import sys\nprint("left out: fp8: no such type", file=sys.stderr)\n'
    (zoo / "part.py").write_text(SCRIPT + told)
    assert collect(zoo, "--only", "part", NAP="0").returncode == 0
    files = packed(zoo)
    assert "part.ncu.csv" in files
    assert "part               left out: fp8: no such type\n" in files["collect.log"].decode()


def test_results_are_never_mixed_with_those_of_another_run(zoo: Path) -> None:
    assert collect(zoo, "--only", "a", NAP="0").returncode == 0
    again = collect(zoo, "--only", "b", NAP="0")
    assert again.returncode == 1 and "name an empty folder" in again.stderr


@pytest.mark.parametrize("name", [*collecting.SCRIPTS, *collecting.HELD_OUT])
def test_every_script_states_a_regime_and_advice_that_exist(name: str) -> None:
    truth = stated(collecting.ZOO / f"{name}.py")
    assert Regime(truth["regime"]) in (Regime.COMPUTE, Regime.MEMORY, Regime.OVERHEAD, Regime.MIXED)
    assert {*truth["advice"], *truth["not_advice"]} <= KNOWN
    assert not {*truth["advice"]} & {*truth["not_advice"]}


def test_counters_alone_are_collected_where_the_traces_are_there_already(zoo: Path) -> None:
    done = collect(zoo, "--only", "a,b", "--counters-only", NAP="0")
    assert "trace left out; ncu 2 kernels" in done.stdout
    assert sorted(packed(zoo)) == ["a.ncu.csv", "b.ncu.csv", "collect.log"]
