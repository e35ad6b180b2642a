"""`run`, `doctor` and the search for trainers, as far as a machine without a GPU can show them."""

import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from brrrtop.cli import live
from brrrtop.cli.commands import attach, find, run
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError, NoTrainer, UsageError
from brrrtop.model.snapshot import Event, Freshness, Snapshot, SourceInfo
from collectors.attach import agent_library, run_folders
from collectors.attach.attach import Attached
from collectors.attach.files import AgentFiles
from collectors.errors import NotWritable
from collectors.process import process as processes
from collectors.process.process import mapped_bytes
from collectors.vocabulary import Metric
from tests.tui import snapshots

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("code", [0, 7])
def test_run_passes_on_the_exit_code_and_the_output(code, command):
    done = command("run", "--", sys.executable, "-c", f"print('out'); raise SystemExit({code})")
    assert done.returncode == code
    assert done.stdout == "out\n"
    assert "Traceback" not in done.stderr


def test_run_says_by_signal_as_a_shell_does(command):
    done = command("run", "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == 128 + 15


def test_a_command_that_does_not_exist_is_127(command):
    done = command("run", "--", "no-such-command-anywhere")
    assert (done.returncode, done.stdout) == (127, "")
    assert "no-such-command-anywhere" in done.stderr


def test_a_taken_recording_stops_before_anything_starts(command, tmp_path):
    (tmp_path / "old.brrr").write_text("precious")
    done = command("run", "--record", "old.brrr", "--", "touch", "started")
    assert done.returncode == 2
    assert "never overwrites" in done.stderr
    assert (tmp_path / "old.brrr").read_text() == "precious"
    assert not (tmp_path / "started").exists()
    assert command("run", "--record", "no/where.brrr", "--", "touch", "started").returncode == 1
    assert not (tmp_path / "started").exists()


def test_doctor_says_what_can_be_seen_and_what_to_do(command):
    text = command("doctor")
    assert "What can be seen of this host:" in text.stdout
    for line in text.stdout.splitlines()[:-1]:
        assert len(line) <= 80 or len(line[19:].split()) == 1, "only a path may be longer"
    report = json.loads(command("doctor", "--json").stdout)
    assert report["schema"] == "brrrtop.doctor/1"
    assert report["tier"] in ("kernels", "steps", "counters", "nothing")
    assert {"name", "status", "says", "fix"} == report["checks"][0].keys()


def test_doctor_of_nobody_is_no_such_trainer(command):
    assert command("doctor", "2147483646").returncode == 3


def test_lines_end_with_the_trainer_by_code_3_and_gates_that_held_by_0(capsys):
    ended = Snapshot(SourceInfo("live", "pid 7"), Freshness.ENDED, 0, None, None, None)
    driver: Any = SimpleNamespace(advance=lambda: ended, ended="the trainer (pid 7) exited")
    with pytest.raises(NoTrainer, match="exited") as caught:
        live._lines(driver, Options(json=True))
    assert caught.value.exit_code == 3
    assert json.loads(capsys.readouterr().out)["source"]["kind"] == "live"
    with pytest.raises(BrrrtopError):
        live._lines(driver, Options(fail_if=("idle > 99%",)))


def a_candidate(pid: int, **changes: Any) -> Any:
    facts = {"pid": pid, "rank": None, "on_gpu": True, "command": "python train.py",
             "not_because": ""}  # fmt: skip
    return SimpleNamespace(**(facts | changes))


def test_nobody_to_watch_points_at_the_demo(monkeypatch):
    monkeypatch.setattr(find, "candidates", lambda pids: [])
    with pytest.raises(NoTrainer) as caught:
        find.run(Options(once=True))
    assert "brrrtop demo" in caught.value.action


def test_several_trainers_are_listed_and_one_must_be_named(monkeypatch, capsys):
    result = [
        a_candidate(11, rank=0),
        a_candidate(12, rank=1),
        a_candidate(13, not_because="helps"),
    ]
    monkeypatch.setattr(find, "candidates", lambda pids: result)
    with pytest.raises(UsageError) as caught:
        find.run(Options())
    text = capsys.readouterr().err
    assert "rank 1" in text
    assert "13" not in text
    assert caught.value.action == "name one: `brrrtop attach 11`"


@pytest.mark.parametrize(("typed", "pid"), [("2\n", 12), ("12\n", 12), ("\n", 11), ("9\n1\n", 11)])
def test_the_picker_takes_a_number_or_a_pid(typed, pid, monkeypatch):
    lines = iter(typed.splitlines(keepends=True))
    keyboard = SimpleNamespace(isatty=lambda: True, readline=lambda: next(lines, ""))
    monkeypatch.setattr(sys, "stdin", keyboard)
    monkeypatch.setattr(find, "candidates", lambda pids: [a_candidate(11), a_candidate(12)])
    opened: list[int] = []
    monkeypatch.setattr(find, "_open", lambda one, *_: opened.append(one.pid) or 0)
    assert find.run(Options()) == 0
    assert opened == [pid]


def test_the_picker_is_left_by_q(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: "q\n"))
    monkeypatch.setattr(find, "candidates", lambda pids: [a_candidate(11), a_candidate(12)])
    with pytest.raises(UsageError, match="none was chosen"):
        find.run(Options())


def test_a_gpu_that_nobody_trains_on_is_watched_by_its_counters(monkeypatch, capsys):
    stranger = a_candidate(13, not_because="process 13 belongs to user bob")
    monkeypatch.setattr(find, "candidates", lambda pids: [stranger])
    opened: list[Any] = []
    monkeypatch.setattr(live, "open_live", lambda agent, pid, *_: opened.append((agent, pid)))
    monkeypatch.setattr(live, "watch", lambda source, options: 0)
    assert find.run(Options(gpu=1, once=True)) == 0
    assert opened == [(None, None)]
    text = capsys.readouterr().err
    assert "belongs to user bob" in text
    assert "the counters of GPU 1 only" in text


def test_a_driver_that_hangs_does_not_hold_up_the_search(monkeypatch):
    free = threading.Event()
    monkeypatch.setattr(find, "NVML_S", 0.05)
    monkeypatch.setattr(find, "_list_compute", lambda pids: free.wait())
    assert find.compute_pids() == set()
    free.set()


def test_once_with_shapes_waits_for_what_comes_of_them(capsys):
    judged = snapshots.snapshot()
    message = replace(
        judged, events=(Event(judged.now_ns, "shapes", "no shapes: a step takes 9 s"),)
    )
    waiting = [judged, judged, message]
    driver: Any = SimpleNamespace(
        advance=lambda: waiting.pop(0) if len(waiting) > 1 else waiting[0], of_job=False
    )
    assert live._once(driver, Options(once=True, shapes=True, interval=0.01), "") == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("no shapes: a step takes 9 s") and len(waiting) == 1
    assert captured.out.count("WAITS FOR DATA, ") >= 1
    waiting[:] = [judged, message]
    assert live._once(driver, Options(once=True), "") == 0  # nor for what comes unasked
    assert len(waiting) == 1 and "shapes" not in capsys.readouterr().err


def test_a_report_of_no_gpu_at_all_is_a_failure(capsys, monkeypatch):
    monkeypatch.setattr(live, "COUNTERS_S", 0.0)
    info = SourceInfo("live", "this machine's GPUs", tier="nvml")
    nothing = Snapshot(info, Freshness.LIVE, 0, None, None, None)
    own = {int(Metric.MONITOR_CPU_SHARE): 0.01}
    for gauges in ({}, own):
        driver: Any = SimpleNamespace(
            advance=lambda g=gauges: replace(nothing, gauges=g), of_job=False
        )
        with pytest.raises(BrrrtopError, match="nothing of a GPU"):
            live._once(driver, Options(once=True, interval=0.01), "")
        assert "No verdict" in capsys.readouterr().out
    counted = SimpleNamespace(
        advance=lambda: replace(nothing, gauges=own | {int(Metric.POWER_WATT): 70.0}),
        of_job=False,
    )
    assert live._once(counted, Options(once=True, interval=0.01), "") == 0  # type: ignore[arg-type]


def test_a_gate_says_what_it_waits_for(capsys):
    source = SourceInfo("live", "pid 7", notes=("waiting for the trainer to touch its GPU",))
    waiting = Snapshot(source, Freshness.LIVE, 0, None, None, None)
    ended = Snapshot(source, Freshness.ENDED, 1, None, None, None)
    snapshots = iter([waiting, waiting, ended])
    driver: Any = SimpleNamespace(advance=lambda: next(snapshots), ended="exited")
    with pytest.raises(BrrrtopError, match="could not be judged"):
        live._lines(driver, Options(interval=0.1, fail_if=("idle > 1%",)))
    assert capsys.readouterr().err == "brrrtop: waiting for the trainer to touch its GPU\n"


def test_detaching_says_what_stays(monkeypatch):
    process = processes.read(os.getpid())
    client: Any = None
    here = Attached(client, process, "shared", (), None, 0)
    assert "another monitor" in attach._left(here, ended=False)
    monkeypatch.setattr(attach, "mapped_bytes", lambda process, name: 180_224)
    left = attach._left(here, ended=True)
    assert "a 176 KiB library stays loaded but idle, and so does CUPTI's" in left
    without = {"libcupti.so": 0}
    monkeypatch.setattr(attach, "mapped_bytes", lambda process, name: without.get(name, 180_224))
    assert attach._left(here, ended=True).endswith("stays loaded but idle")
    other = dataclasses.replace(here, process=dataclasses.replace(process, start_ticks=1))
    assert attach._left(other, ended=True) == "", "its number is another's"


def test_what_is_mapped_is_measured():
    here = processes.read(os.getpid())
    assert mapped_bytes(here, "no such library") == 0
    assert mapped_bytes(here, "libc") > 100_000


@pytest.fixture
def no_compiler(tmp_path, monkeypatch) -> None:
    """An installation without the library, on a machine without a C compiler."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr(agent_library, "AGENT_DIR", empty)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.delenv("CC", raising=False)


def program(code: str, **changes: Any) -> Options:
    return Options(
        verb="run", command=(sys.executable, "-c", code), **({"interval": 0.1} | changes)
    )


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("code", [0, 7])
def test_without_a_compiler_the_program_runs_and_the_counters_are_watched(code, capfd):
    text = f"import os; print(os.environ.get('PYTHONPATH')); raise SystemExit({code})"
    assert run.run(program(text)) == code
    captured = capfd.readouterr()
    assert captured.out == f"{os.environ.get('PYTHONPATH')}\n", "nothing was put in its way"
    missing, *report = captured.err.splitlines()
    assert "there is no C compiler" in missing and "the program runs without the agent" in missing
    assert "apt install gcc libc6-dev" in missing
    assert "brrrtop --gpu" not in missing, "that is what it gets anyway"
    assert any("No verdict: it ended before any kernel was seen" in line for line in report)
    assert f"  the program exited: exit code {code}" in report


@pytest.mark.usefixtures("no_compiler")
def test_counters_alone_are_reported_once_where_one_report_is_asked_for(monkeypatch, capfd):
    monkeypatch.setattr(live, "COUNTERS_S", 0.2)
    assert run.run(program("import time; time.sleep(1)", once=True, json=True)) == 0
    (line,) = capfd.readouterr().out.splitlines()
    assert json.loads(line)["regime"] == "unknown"


@pytest.mark.usefixtures("no_compiler")
def test_a_gate_that_counters_cannot_answer_is_no_pass_and_no_second_opinion():
    with pytest.raises(BrrrtopError, match="could not be judged"):
        run.run(program("pass", fail_if=["idle > 30%"]))
    assert run.run(program("raise SystemExit(3)", fail_if=["idle > 30%"])) == 3


def test_where_no_private_folder_can_be_made_the_program_runs(tmp_path, monkeypatch, capfd):
    def refused() -> Path:
        raise NotWritable("no private folder can be made", "free some space in /tmp")

    monkeypatch.setattr(run_folders, "make", refused)
    monkeypatch.setattr(agent_library, "agent_files", lambda: AgentFiles(tmp_path, tmp_path / "so"))
    assert run.run(program("raise SystemExit(4)")) == 4
    assert "no private folder can be made: the program runs" in capfd.readouterr().err
