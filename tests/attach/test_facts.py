"""What is read of processes and ELF files, and what the doctor and the list make of it."""

import dataclasses
import errno
import mmap
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from brrrtop.cli.commands import attach
from brrrtop.cli.commands.attach import RestartedProcesses
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError
from brrrtop.session.restart import RestartedProcess
from collectors import doctor as cuda
from collectors.attach import by_ptrace, elf
from collectors.attach.access import refusal
from collectors.doctor import Report, Status, bad, doctor, fine, wait
from collectors.errors import NoSuchProcess, NotTheTrainer, Unsupported
from collectors.process import proc
from collectors.process import proc as process_maps
from collectors.process import process as processes
from collectors.process.candidates import Candidate, candidates, check_trains
from collectors.process.proc import ProcessEnd
from tests.attach import children
from tests.attach.children import Child, python


def c_library() -> str:
    result = [p for p in processes.read(os.getpid()).files if "/libc.so" in p or "/libc-2" in p]
    if not result:
        pytest.skip("no GNU C library here")
    return result[0]


def test_symbols_are_those_that_the_linker_sees():
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("no nm here")
    names = frozenset(("mmap", "pthread_create", "getpid", "nanosleep", "no_such_function"))
    lines = subprocess.run([nm, "-D", c_library()], capture_output=True, text=True).stdout
    expected = {}
    for line in lines.splitlines():
        words = line.split()
        if len(words) == 3 and words[2].split("@")[0] in names:
            expected[words[2].split("@")[0]] = int(words[0], 16)
    assert elf.read(c_library(), names).symbols == expected


def test_an_address_found_in_a_file_is_where_the_code_lies_in_memory():
    import ctypes

    me = processes.read(os.getpid())
    image = elf.read(c_library(), frozenset(("getpid",)))
    mapping = next(m for m in me.maps if m.path == c_library() and m.executable)
    address = image.symbols["getpid"] + image.bias(mapping.start, mapping.offset)
    loaded = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    assert address == loaded
    assert ctypes.string_at(address, 8) == elf.code_at(
        c_library(), image, image.symbols["getpid"], 8
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + b"\xff" * 200],
    ids=["empty", "script", "garbage"],
)
def test_files_that_are_no_elf_are_told_as_such(content, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(Unsupported):
        elf.read(tmp_path / "x", frozenset(("a",)))


def test_an_elf_file_cut_anywhere_never_crashes_the_reader(tmp_path):
    whole = Path(c_library()).read_bytes()
    for size in range(0, len(whole), len(whole) // 23):
        (tmp_path / "x").write_bytes(whole[:size])
        try:
            elf.read(tmp_path / "x", frozenset(("getpid",)))
        except Unsupported:
            continue


@pytest.mark.parametrize(
    ("files", "exe", "expected"),
    [
        (("/a/lib/libpython3.12.so.1.0",), "/a/bin/python3.12", ((3, 12), False, False)),
        (("/a/lib/libpython3.13t.so.1.0",), "/a/bin/python3.13t", ((3, 13), False, True)),
        ((), "/opt/conda/bin/python3.11", ((3, 11), True, False)),
        ((), "/opt/conda/bin/python3.11 (deleted)", ((3, 11), True, False)),
        (("/x/lib/python3.10/lib-dynload/a.so",), "/app/trainer", ((3, 10), True, False)),
        (("/x/_m.cpython-313t-x86_64-linux-gnu.so",), "/app/trainer", ((3, 13), True, True)),
        (("/usr/lib/libc.so.6",), "/usr/bin/sleep", None),
    ],
)
def test_the_python_of_a_process_is_known_by_its_files(files, exe, expected):
    python_build = process_maps.python_build(files, exe)
    message = python_build and (
        python_build.version,
        python_build.static,
        python_build.free_threaded,
    )
    assert message == expected


def test_facts_of_a_child():
    env = {**os.environ, "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "x"}
    with python(children.SLEEPING, env=env) as one:
        sheet = processes.read(one.pid)
        assert sheet.uid == os.geteuid()
        assert sheet.parent == os.getpid()
        assert sheet.cmdline[0] == sys.executable
        assert sheet.ranks == {"RANK": 3, "WORLD_SIZE": 8}
        assert sheet.python is not None
        assert sheet.python.version == sys.version_info[:2]
        assert not sheet.has_torch
        assert not sheet.in_container
        assert sheet.still_the_same()
        one.process.kill()
        one.process.wait(10)
        assert not sheet.still_the_same()
        with pytest.raises(NoSuchProcess):
            processes.read(one.pid)


@contextmanager
def with_mapped(folder: Path, names: list[str], code: str = "") -> Iterator[Child]:
    """A Python that has mapped empty files of these names, as a stand-in for the libraries."""
    paths = []
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(mmap.PAGESIZE))
        paths.append(str(path))
    text = f"""
import mmap, os, time
kept = [mmap.mmap(os.open(p, os.O_RDONLY), 0, prot=mmap.PROT_READ) for p in {paths!r}]
{code}
time.sleep(600)
"""
    with python(text) as one:
        time.sleep(0.05)
        yield one


def checks_of(report: Report) -> dict[str, tuple[Status, str, str]]:
    return {c.name: (c.status, c.message, c.fix) for c in report.checks}


def test_doctor_finds_a_plain_python_fit_and_waiting(tracing, stand_in):
    with python(children.BUSY) as one:
        report = doctor(one.pid, stand_in)
        checks = checks_of(report)
        for name in ("access", "python", "way in", "folder", "agent inside"):
            assert checks[name][0] is Status.FINE, checks[name]
        assert checks["torch"][0] is Status.WAIT
        assert not report.can_attach, "`brrrtop attach` refuses it as well"
        assert report.command == checks["torch"][2]
        assert one.state == "R"
        assert one.status("TracerPid") == "0"


def test_doctor_sends_on_to_attach_where_that_would_work(tracing, stand_in, tmp_path):
    with with_mapped(tmp_path, ["libtorch_cpu.so"]) as one:
        report = doctor(one.pid, stand_in)
        assert report.can_attach
        assert report.tier == "steps", "a torch for the CPU alone has no kernels"
        assert report.command == f"brrrtop attach {one.pid}"
        assert report.exit_code == int(any(c.status is Status.BAD for c in report.checks))


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([fine("a", "")], 0),
        ([fine("a", ""), bad("driver", "", "", "kernels")], 1),
        ([bad("nvml", "", "", "counters")], 1),
        ([bad("access", "", "", denied=True)], 4),
        ([bad("access", "", "", denied=True), bad("yama", "", "", denied=True)], 4),
        ([bad("access", "", "", denied=True), bad("nvml", "", "", "counters")], 4),
        ([bad("access", "", "", denied=True), bad("machine", "", "")], 1),
        ([wait("torch", "", "", "attach")], 1),
    ],
)
def test_a_bad_line_is_an_exit_code(checks, code):
    assert Report(4711, tuple(checks)).exit_code == code


def test_a_refusal_of_the_kernel_is_a_want_of_permission(tracing, stand_in, monkeypatch):
    """What the kernel answers to a process without the right; root here cannot be refused."""
    monkeypatch.setattr(by_ptrace, "probe", lambda one: refusal(one, errno.EPERM))
    with python(children.BUSY) as one:
        report = doctor(one.pid, stand_in)
    result = {check.name: check for check in report.checks}
    assert result["access"].status is Status.BAD
    assert result["access"].denied
    assert report.exit_code == 4


@pytest.mark.parametrize(
    ("names", "check", "status", "words"),
    [
        (["libtorch_cpu.so"], "torch", Status.FINE, "loaded"),
        (["libcuda.so.1", "libtorch_cpu.so"], "cupti", Status.BAD, "no CUPTI"),
        (["libcuda.so.1"], "cuda", Status.WAIT, "no context"),
        (["libtorch_cpu.so"], "cuda", Status.WAIT, "built for the CPU alone"),
        (["libtorch_cpu.so", "libtorch_cuda.so"], "cuda", Status.WAIT, "no CUDA yet"),
        (["libtorch_cpu.so"], "cupti", Status.WAIT, "this is not"),
        (["libcupti.so.13"], "cupti", Status.FINE, "libcupti.so.13"),
        (["libcupti.so.2025.3.1"], "cupti", Status.FINE, "2025"),
        (["libcupti.so.11.8"], "cupti", Status.BAD, "too old"),
        (["libcupti.so.2023.3.1"], "cupti", Status.BAD, "too old"),
        (["libcupti.so.14"], "cupti", Status.NOTE, "newer"),
        (["a/libcupti.so.13", "b/libcupti.so.2025.1.1"], "cupti", Status.NOTE, "two"),
        (["libToolsInjection64.so"], "other tools", Status.BAD, "libToolsInjection64"),
    ],
)
def test_doctor_reads_cuda_off_the_mapped_files(names, check, status, words, tmp_path):
    with with_mapped(tmp_path, names) as one:
        result = {c.name: c for c in cuda.cuda_checks(processes.read(one.pid))}[check]
        assert result.status is status, result
        assert words in result.message
        assert result.fix or status is not Status.BAD


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 only")
def test_doctor_says_how_kernels_come_without_torch(tmp_path, monkeypatch):
    (tmp_path / "libcupti.so.13").write_bytes(b"")
    with with_mapped(tmp_path, ["libcuda.so.1", "libcudart.so.13"]) as one:
        process = processes.read(one.pid)
        monkeypatch.setattr(cuda, "yama_scope", lambda: 1)
        result = {c.name: c for c in cuda.cuda_checks(process)}
        assert result["torch"].status is Status.NOTE
        assert "--no-trace-graphs" in result["torch"].message
        assert result["cupti"].status is Status.FINE
        assert str(tmp_path / "libcupti.so.13") in result["cupti"].message
        monkeypatch.setattr(cuda, "yama_scope", lambda: 3)
        result = {c.name: c for c in cuda.cuda_checks(process)}
        assert (result["torch"].status, result["torch"].blocks) == (Status.BAD, "kernels")


def test_doctor_reads_neighbours_off_the_environment():
    with python(children.SLEEPING, env={**os.environ, "CUDA_INJECTION64_PATH": "/x.so"}) as one:
        result = {c.name: c for c in cuda.cuda_checks(processes.read(one.pid))}
        assert result["other tools"].status is Status.NOTE


def test_doctor_says_what_stops_it(stand_in):
    with children.child(["sleep", "30"]) as one:
        report = doctor(one.pid, stand_in)
        assert not report.can_attach
        assert report.tier == ("counters" if report.can_count else "nothing")
        assert "not Python" in checks_of(report)["python"][1]
    with python(children.BUSY) as one:
        os.kill(one.pid, signal.SIGSTOP)
        while one.state != "T":
            time.sleep(0.005)
        assert doctor(one.pid, stand_in).command == f"kill -CONT {one.pid}"
    with pytest.raises(NoSuchProcess):
        doctor(2**22 - 1, stand_in)


def test_doctor_of_a_host_names_every_check_with_its_fix():
    report = doctor(None)
    checks = checks_of(report)
    assert set(checks) == {"machine", "driver", "agent", "ptrace", "yama", "nvml"}
    assert checks["agent"][0] is Status.BAD
    assert all(fix for status, _, fix in checks.values() if status is Status.BAD)


def test_the_list_offers_trainers_and_says_why_not_the_others(tmp_path):
    fork = "os.fork()"
    with with_mapped(tmp_path, ["libtorch_cpu.so"], fork) as one:
        result = {c.pid: c for c in candidates() if c.job == one.pid}
        assert result[one.pid].not_because == ""
        workers = [c for c in result.values() if c.pid != one.pid]
        assert len(workers) == 1
        assert str(one.pid) in workers[0].not_because
        as_rank = {c.pid: c for c in candidates([one.pid, workers[0].pid])}
        assert as_rank[workers[0].pid].not_because == ""
        assert as_rank[workers[0].pid].on_gpu
        assert as_rank[workers[0].pid].job == one.pid
        os.kill(workers[0].pid, signal.SIGKILL)


def test_the_list_leaves_out_what_has_neither_torch_nor_a_gpu():
    with python(children.SLEEPING) as one:
        assert one.pid not in {c.pid for c in candidates()}


@pytest.mark.parametrize(
    ("code", "words"),
    [("raise SystemExit(3)", "exit code 3"), ("os.abort()", "killed by SIGABRT"), ("", None)],
)
def test_how_a_process_ended_is_known_of_a_zombie_and_after_it(code, words):
    with python(f"import os, time; time.sleep(0.3)\n{code}") as one:
        end = ProcessEnd(one.pid)
        assert end.describe() is None
        while one.state != "Z":
            time.sleep(0.01)
        assert end.describe() == words, "a zombie's 0 reads like a figure that is withheld"
        one.process.wait(10)
        kernel = tuple(int(n) for n in os.uname().release.split(".")[:2])
        assert end.describe() == ((words or "exit code 0") if kernel >= (6, 15) else None)
        end.close()


def alike(one: Child, **options: object) -> RestartedProcesses:
    return RestartedProcesses(processes.read(one.pid), Options(**options), agent=True)


def test_a_successor_runs_the_same_command_in_the_same_folder_and_started_later(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(attach, "UNNOTICED_S", 0.0)
    libraries = ["libtorch_cpu.so"]
    with (
        with_mapped(tmp_path, libraries) as first,
        with_mapped(tmp_path, libraries),
        with_mapped(tmp_path, libraries, "os.chdir('/')"),
    ):
        finder = alike(first, interval=0.0)
        assert finder.how == "watch it"
        first.process.kill()
        first.process.wait(10)
        time.sleep(0.05)
        assert finder.find() is None
        with (
            with_mapped(tmp_path, [*libraries, "other.so"]),
            with_mapped(tmp_path, libraries) as heir,
        ):
            restarted_process = finder.find()
            assert restarted_process == RestartedProcess(heir.pid, ready=False, only=True)
            monkeypatch.setattr(attach, "IMPORTS_S", 0.0)
            with with_mapped(tmp_path, libraries):
                assert finder.find() == RestartedProcess(heir.pid, ready=True, only=False)


def test_a_process_of_another_user_is_no_successor_whatever_its_command(root, tmp_path):
    """With `--yes` root attaches to a successor unasked: nobody else may offer one."""
    with with_mapped(tmp_path, ["libtorch_cpu.so"]) as first:
        finder = alike(first, interval=0.0, yes=True)
        first.process.kill()
        first.process.wait(10)
        assert finder.find() is None
        with with_mapped(tmp_path, ["libtorch_cpu.so"]) as heir:
            sheet = processes.read(heir.pid)
            assert finder._fits(sheet)
            assert not finder._fits(dataclasses.replace(sheet, uid=65534))


def test_a_successor_trains_has_the_same_rank_and_began_as_the_other_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(attach, "candidates", lambda **_: [])
    with with_mapped(tmp_path, ["libtorch_cpu.so"]) as one:
        finder, sheet = alike(one, interval=0.5), processes.read(one.pid)
        assert finder.find() is None
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        for ago_s, fits in ((0.0, True), (3.3, True), (3.7, False)):
            ticks = int((now_s - ago_s) * proc.TICKS_PER_S)
            assert finder._fits(dataclasses.replace(sheet, start_ticks=ticks)) is fits
    for own, rank, why, trains in [
        (None, None, "", True), (None, 3, "", True), (3, None, "", True), (3, 3, "", True),
        (3, 4, "", False), (None, None, "a loader's worker", False), (3, 3, "a shell", False),
    ]:  # fmt: skip
        finder._rank = own
        candidate = Candidate(sheet, sheet.pid, False, rank, None, why)
        assert finder._is_trainer(candidate) is trains


def test_the_agent_leaves_every_successor_that_it_was_put_into(tmp_path, monkeypatch):
    left: list[int] = []

    def enter(pid: int, _: object) -> SimpleNamespace:
        return SimpleNamespace(client=None, leave=lambda: left.append(pid))

    monkeypatch.setattr(attach.attaching, "attach", enter)
    monkeypatch.setattr(attach.live, "open_live", lambda *_: None)
    with with_mapped(tmp_path, ["libtorch_cpu.so"]) as first, with_mapped(tmp_path, []) as then:
        finder = alike(first)
        finder.enter(first.pid)
        finder.enter(then.pid)
        finder.close()
        finder.close()
    assert sorted(left) == sorted([first.pid, then.pid])


def test_a_successor_that_cannot_be_entered_says_why(tmp_path):
    with with_mapped(tmp_path, ["libtorch_cpu.so"]) as first:
        finder = alike(first, yes=True)
        assert finder.agreed
        with (
            children.child(["sleep", "30"]) as other,
            pytest.raises(BrrrtopError, match="not Python"),
        ):
            finder.enter(other.pid)
        finder.close()


def test_a_thread_of_the_kernel_is_called_so():
    try:
        name = Path("/proc/2/comm").read_text().strip()
    except OSError:
        name = ""
    if name != "kthreadd":
        pytest.skip("no kernel threads are shown here")
    with pytest.raises(NoSuchProcess, match="thread of the kernel"):
        processes.read(2)


def started_by(pid: int) -> list[Candidate]:
    return [c for c in candidates() if c.process.parent == pid and not c.not_because]


def test_a_process_that_only_helps_points_at_the_one_that_trains(tmp_path):
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(bytes(mmap.PAGESIZE))
    text = f"""
import mmap, os, subprocess, sys, time
rank = '''
import mmap, os, time
kept = mmap.mmap(os.open({str(library)!r}, os.O_RDONLY), 0, prot=mmap.PROT_READ)
os.fork()
time.sleep(600)
'''
ranks = [
    subprocess.Popen([sys.executable, "-c", rank], env=dict(os.environ, RANK=str(n)))
    for n in range(2)
]
time.sleep(600)
"""
    with python(text) as launcher:
        try:
            deadline = time.monotonic() + 10
            while len(started_by(launcher.pid)) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            ranks = started_by(launcher.pid)
            assert sorted(one.rank or 0 for one in ranks) == [0, 1]
            with pytest.raises(NotTheTrainer) as caught:
                check_trains(processes.read(launcher.pid))
            for one in ranks:
                assert f"brrrtop attach {one.pid} (rank {one.rank})" in caught.value.action
            check_trains(ranks[0].process)
            (worker,) = [c.pid for c in candidates() if c.process.parent == ranks[0].pid]
            why = f"does not train itself: a copy of process {ranks[0].pid} that uses no GPU"
            with pytest.raises(NotTheTrainer, match=why) as caught:
                check_trains(processes.read(worker))
            assert caught.value.action == f"brrrtop attach {ranks[0].pid} (rank {ranks[0].rank})"
        finally:
            ranks = started_by(launcher.pid)
            helpers = [c for c in candidates() if c.process.parent in {one.pid for one in ranks}]
            for one in (*ranks, *helpers):
                os.kill(one.pid, signal.SIGKILL)


def test_torchs_own_name_for_a_loader_worker_is_believed_even_on_a_gpu(tmp_path):
    named = "open('/proc/self/comm', 'w').write('pt_data_worker')"
    with with_mapped(tmp_path, ["libtorch_cpu.so", "libcuda.so.1"], named) as one:
        (result,) = [c for c in candidates([one.pid]) if c.pid == one.pid]
        assert result.on_gpu
        assert "DataLoader's worker" in result.not_because


@pytest.mark.parametrize(
    ("euid", "able", "helps", "useless"),
    [
        (1000, False, "sudo $(which brrrtop) attach", "cap-add"),
        (0, False, "--cap-add SYS_PTRACE", "sudo"),
        (0, True, "attach from the host", "sudo"),
    ],
)
def test_what_would_help_depends_on_who_asks(euid, able, helps, useless, monkeypatch):
    with children.child(["sleep", "20"]) as one:
        sheet = processes.read(one.pid)
        monkeypatch.setattr(os, "geteuid", lambda: euid)
        monkeypatch.setattr(processes, "has_ptrace_capability", lambda: able)
        for uid in (euid, 12345):
            theirs = processes.Process(**{**vars(sheet), "uid": uid})
            fault = processes.refusal(theirs, PermissionError(13, "Permission denied"))
            assert helps in fault.action
            assert useless not in fault.action
