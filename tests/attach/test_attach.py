"""The whole way into a real child and out again, with a stand-in for the agent."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collectors.attach import access
from collectors.attach.access import why_not_remote
from collectors.attach.attach import METHODS, attach, find_agent
from collectors.attach.files import AgentFiles
from collectors.errors import (
    AttachFailed,
    CollectorError,
    NoSuchProcess,
    NoTorch,
    NotPermitted,
    NotPython,
    TrainerStopped,
    Unsupported,
)
from collectors.process import proc
from collectors.process import process as processes
from collectors.process.proc import PythonBuild
from tests.attach import children
from tests.attach.children import python

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


def test_attach_finds_the_shortest_way_and_says_what_it_cost(tracing, stand_in):
    texts: list[str] = []
    with python(children.BUSY) as one:
        attached = attach(one.pid, stand_in, "a=b", need_torch=False, report=texts.append)
        assert attached.client.hello["pid"] == one.pid
        assert attached.client.hello["options"] == "a=b"
        assert attached.method == "pending call"
        assert [attempt.method for attempt in attached.attempts] == ["pending call"]
        assert 0 < attached.stopped_ns < attached.took_ns
        assert any("pending call" in line for line in texts)
        folder = Path(attached.place.outside) if attached.place else None
        assert folder is not None
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        attached.client.close()
        attached.place.remove()  # type: ignore[union-attr]
        assert not folder.exists()
        assert one.alive


def test_a_blocked_main_thread_is_entered_through_another(tracing, stand_in):
    with python(children.BLOCKED) as one:
        attached = attach(one.pid, stand_in, need_torch=False)
        assert attached.method == "parked thread"
        assert "sleeps" in attached.attempts[0].reason
        attached.client.close()
        attached.place.remove()  # type: ignore[union-attr]


def test_what_the_agent_refuses_is_told_at_once(tracing, refusing):
    with python(children.BUSY) as one:
        began = time.monotonic()
        with pytest.raises(CollectorError, match="another machine") as caught:
            attach(one.pid, refusing, need_torch=False)
        assert time.monotonic() - began < 3
        assert caught.value.action
        assert left_behind(one.pid) == []


def left_behind(pid: int) -> list[str]:
    return [str(p) for base in ("/tmp", "/dev/shm") for p in Path(base).glob(f"brrrtop-*-{pid}-*")]


def test_without_an_answer_every_way_is_named_with_its_reason(tracing, stand_in, monkeypatch):
    from collectors.attach import bootstrap

    monkeypatch.setattr(bootstrap, "payload", lambda *_: "pass")
    code = "import threading, time\n"
    code += "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    with python(code + children.BUSY) as one:
        with pytest.raises(AttachFailed) as caught:
            attach(one.pid, stand_in, need_torch=False, handshake_s=0.4)
        assert [a.method for a in caught.value.attempts] == [m.name for m in METHODS[:2]]
        assert all(a.reason for a in caught.value.attempts)
        assert "brrrtop run" in caught.value.action
        assert one.alive
        assert left_behind(one.pid) == []


def test_a_call_that_hangs_with_the_gil_is_waited_for_no_longer_than_said(tracing, stand_in):
    code = "import ctypes, threading, time\n"
    code += "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    with python(code + "ctypes.PyDLL(None).sleep(600)") as one:
        began = time.monotonic()
        with pytest.raises(AttachFailed, match="may hold the lock of its Python") as caught:
            attach(one.pid, stand_in, need_torch=False, handshake_s=1.0)
        assert time.monotonic() - began < 6
        assert "agent.sock" not in caught.value.message
        assert "attach again once it goes on" in caught.value.action
        assert one.alive and left_behind(one.pid) == []


def refused_with(kind: type[CollectorError], pid: int, files: AgentFiles) -> CollectorError:
    with pytest.raises(kind) as caught:
        attach(pid, files, need_torch=kind is NoTorch)
    assert caught.value.message
    return caught.value


def test_a_process_that_is_not_there_is_refused(stand_in):
    fault = refused_with(NoSuchProcess, 2**22 - 1, stand_in)
    assert fault.exit_code == 3


def test_a_zombie_has_exited(stand_in):
    process = subprocess.Popen(["true"])
    try:
        while proc.stat(process.pid)[0] != "Z":
            time.sleep(0.005)
        assert "exited" in refused_with(NoSuchProcess, process.pid, stand_in).message
    finally:
        process.wait()


def test_a_number_that_went_to_another_process_is_noticed():
    with children.child(["sleep", "20"]) as one:
        sheet = processes.read(one.pid)
        assert sheet.still_the_same()
        older = processes.Process(**{**vars(sheet), "start_ticks": sheet.start_ticks - 1})
        assert not older.still_the_same()


def test_a_thread_number_names_its_process(stand_in):
    with python(children.BLOCKED) as one:
        until_s = time.monotonic() + 60
        while not (others := {*os.listdir(f"/proc/{one.pid}/task")} - {str(one.pid)}):
            assert time.monotonic() < until_s, "its thread never began"
            time.sleep(0.01)
        tid = int(others.pop())
        fault = refused_with(NoSuchProcess, tid, stand_in)
        assert fault.action == f"brrrtop attach {one.pid}"


def test_a_program_that_is_not_python_is_refused_by_its_name(stand_in):
    with children.child(["sleep", "20"]) as one:
        assert "sleep" in refused_with(NotPython, one.pid, stand_in).message


def test_a_python_without_torch_is_refused(stand_in):
    with python(children.SLEEPING) as one:
        assert "torch" in refused_with(NoTorch, one.pid, stand_in).message


def test_a_stopped_trainer_is_left_alone(stand_in):
    with python(children.BUSY) as one:
        os.kill(one.pid, signal.SIGSTOP)
        while one.state != "T":
            time.sleep(0.005)
        fault = refused_with(TrainerStopped, one.pid, stand_in)
        assert fault.action == f"kill -CONT {one.pid}"
        assert one.state == "T"


@pytest.mark.parametrize(
    ("version", "torch", "driver", "refused"),
    [("none", False, True, None), ("none", False, False, NotPython), ((3, 8), True, True, Unsupported),
     ((3, 9), False, False, NoTorch), ((3, 9), False, True, None), (None, True, False, None)],
)  # fmt: skip
def test_what_a_process_must_be_to_be_entered(version, torch, driver, refused):
    """`none`: it is no Python; None: one of which nobody knows the version."""
    build = None if version == "none" else PythonBuild("", version, True, False)
    sheet = SimpleNamespace(pid=os.getpid(), state="S", name="x", python=build, has_torch=torch)
    sheet.has_cuda_driver = driver
    with pytest.raises(refused) if refused else nullcontext():
        access.check(cast("Any", sheet))


def test_who_is_gone_is_told_as_such_whatever_the_kernel_answered():
    with children.child(["sleep", "20"]) as one:
        sheet = processes.read(one.pid)
        assert isinstance(access.refusal(sheet, errno.ESRCH), NoSuchProcess)
    assert isinstance(access.refusal(sheet, errno.EPERM), NoSuchProcess)


def test_a_trainer_that_exits_during_the_attach_is_told_as_such(tracing, stand_in, monkeypatch):
    from collectors.attach import bootstrap

    monkeypatch.setattr(bootstrap, "payload", lambda *_: "import os; os._exit(0)")
    with python(children.BUSY) as one:
        began = time.monotonic()
        with pytest.raises(NoSuchProcess, match="exited"):
            attach(one.pid, stand_in, need_torch=False)
        assert time.monotonic() - began < 3


_AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[2])
os.setgid(65534); os.setuid(65534)
from pathlib import Path
from collectors.attach.attach import attach
from collectors.attach.files import AgentFiles
from collectors.errors import CollectorError
try:
    attach(int(sys.argv[1]), AgentFiles(Path("/tmp"), Path("/tmp/none.so")), need_torch=False)
except CollectorError as fault:
    print(type(fault).__name__, fault.exit_code, fault.message, "|", fault.action)
"""


def readable_copy(to: Path) -> Path:
    """Our package where any user may read it."""
    compiled = shutil.ignore_patterns("native", "__pycache__", "*.so")
    shutil.copytree(ROOT / "collectors", to / "collectors", ignore=compiled)
    for path in (to, *to.parents):
        if path not in (Path("/"), Path("/tmp")):
            path.chmod(path.stat().st_mode | 0o055)
    return to


def test_another_users_process_is_refused_with_the_command_that_helps(root, tmp_path):
    copy = readable_copy(tmp_path)
    interpreter = "/usr/bin/python3"
    if not Path(interpreter).exists():
        pytest.skip("needs a Python that every user may run")
    packages = next(p for p in sys.path if p.endswith("site-packages"))
    env = {"PYTHONPATH": packages}
    probe = [interpreter, "-c", "import os; os.setuid(65534); import msgspec, numpy"]
    if subprocess.run(probe, env=env, capture_output=True).returncode:
        pytest.skip("no Python with our dependencies that every user may run")
    with python(children.SLEEPING) as one:
        command = [interpreter, "-c", _AS_NOBODY, str(one.pid), str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=20)
    assert done.stdout.startswith("NotPermitted 4"), done.stderr
    assert "belongs to user root" in done.stdout
    assert f"sudo $(which brrrtop) attach {one.pid}" in done.stdout


def test_refusals_for_another_user_name_the_owner(monkeypatch):
    with children.child(["sleep", "20"]) as one:
        sheet = processes.read(one.pid)
        theirs = processes.Process(**{**vars(sheet), "uid": NOBODY})
        monkeypatch.setattr(access, "has_ptrace_capability", lambda: False)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        fault = access.refusal(theirs, 1)
        assert isinstance(fault, NotPermitted)
        assert processes.user_name(NOBODY) in fault.message and "lacks" not in fault.message
        assert fault.exit_code == 4
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        assert "root here lacks CAP_SYS_PTRACE" in access.refusal(theirs, 1).message
        for seccomp in ("0", "2"):
            monkeypatch.setattr(access.proc, "status", lambda _, found=seccomp: {"Seccomp": found})
            assert access._is_confined() == (seccomp != "0")


@pytest.mark.parametrize(
    ("able", "owner", "words"),
    [(False, 0, "belongs to user"), (True, 0, "security profile"), (True, 1000, "security profile"),
     (False, 1000, "closed itself")],
)  # fmt: skip
def test_a_refusal_names_what_stands_in_the_way(able, owner, words, monkeypatch):
    monkeypatch.setattr(access, "yama_scope", lambda: 0)
    monkeypatch.setattr(access, "_is_confined", lambda: False)
    monkeypatch.setattr(access, "has_ptrace_capability", lambda: able)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with children.child(["sleep", "20"]) as one:
        sheet = processes.Process(
            **{**vars(processes.read(one.pid)), "uid": owner, "pids_inside": (one.pid,)}
        )
        fault = access.refusal(sheet, errno.EPERM)
    assert isinstance(fault, NotPermitted) and words in fault.message


@pytest.mark.parametrize(
    ("scope", "words"),
    [(1, "ancestors"), (2, "administrators"), (3, "next boot")],
)
def test_where_yama_forbids_tracing_what_helps_is_named(scope, words, monkeypatch):
    monkeypatch.setattr(access, "yama_scope", lambda: scope)
    monkeypatch.setattr(access, "has_ptrace_capability", lambda: False)
    with children.child(["sleep", "20"]) as one:
        fault = access.refusal(processes.read(one.pid), 1)
        assert words in fault.message
        assert "brrrtop run" in fault.action
        assert ("sudo" in fault.action) == (scope < 3)


def test_root_enters_another_users_trainer_and_gives_it_its_folder(tracing, root, stand_in):
    if not Path("/usr/bin/python3").exists():
        pytest.skip("needs a Python that every user may run")
    code = "import os; os.setgid(65534); os.setuid(65534)\n" + children.BUSY
    with python(code, "/usr/bin/python3") as one:
        attached = attach(one.pid, stand_in, need_torch=False)
        assert attached.place is not None
        assert os.stat(attached.place.outside).st_uid == NOBODY
        copied = attached.client.hello["agent"]
        assert copied.startswith(attached.place.inside), (
            "its own folder, since ours is not readable"
        )
        assert sorted(os.listdir(copied)) == ["__init__.py", "entry.py"]
        attached.client.close()
        attached.place.remove()
        assert left_behind(one.pid) == []


def test_a_process_without_an_agent_has_none():
    with python(children.SLEEPING) as one:
        assert find_agent(processes.read(one.pid)) is None


def test_remote_exec_says_why_not():
    with python(children.SLEEPING) as one:
        reason = why_not_remote(processes.read(one.pid))
    if sys.version_info < (3, 14):
        assert "3.14" in reason


def test_the_real_agent_answers_from_a_torch_training_with_workers(tracing):
    pytest.importorskip("torch")
    from collectors.attach import agent_library

    try:
        files = agent_library.agent_files()
    except CollectorError as fault:
        pytest.skip(fault.message)
    with children.child(
        [sys.executable, str(Path(__file__).with_name("torch_training.py"))]
    ) as one:
        if not one.hears(b"step 3", 40):
            pytest.fail(one.output.decode())
        for _ in range(2):
            attached = attach(one.pid, files)
            assert attached.client.hello["pid"] == one.pid
            assert attached.leave(), "the agent ends when asked"
        assert left_behind(one.pid) == []
        one.output = b""
        assert one.hears(b"step"), "the training goes on"
        assert one.alive


def test_a_trainer_in_a_container_is_entered_from_the_host(tracing, root, stand_in):
    unshare = shutil.which("unshare")
    python = Path(sys.executable).resolve()  # an environment of ours may lie in the /tmp that goes
    inside = f"mount -t tmpfs none /tmp && exec {python} -c '{children.BUSY}'"
    flags = ["--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private"]
    if unshare is None or subprocess.run([unshare, *flags, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces can be made here")
    with children.child([unshare, *flags, "sh", "-c", inside]) as outer:
        pid = first_python_below(outer.pid)
        sheet = processes.read(pid)
        try:
            assert sheet.in_container
            assert sheet.pids_inside[-1] == 1
            attached = attach(pid, stand_in, need_torch=False)
            assert attached.place is not None
            assert attached.place.outside.startswith(f"/proc/{pid}/root/tmp/")
            assert attached.client.hello["pid"] == 1
            assert attached.client.hello["agent"].startswith(attached.place.inside)
            second = attach(pid, stand_in, need_torch=False)
            assert second.shared
            second.client.close()
            attached.client.close()
            outside = Path(attached.place.outside)
            assert outside.exists()
            attached.place.remove()
            assert not outside.exists()
            assert sheet.still_the_same()
        finally:
            os.kill(pid, signal.SIGKILL)


def first_python_below(pid: int) -> int:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for one in processes.pids():
            try:
                sheet = processes.read(one)
                if sheet.parent == pid and sheet.python is not None and sheet.state == "R":
                    time.sleep(0.1)
                    return one
            except CollectorError:
                continue
        time.sleep(0.01)
    raise AssertionError("the child did not start")
