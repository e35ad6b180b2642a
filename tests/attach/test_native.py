"""A program that is not Python: CUDA brings the agent at its start, or a thread that is put there."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from brrrtop.cli import live
from brrrtop.cli.arguments import parse
from brrrtop.session.controller import Controller
from collectors.attach import agent_library, by_ptrace, launch
from collectors.attach.attach import attach
from collectors.attach.client import Client
from collectors.attach.files import AgentFiles
from collectors.attach.ptrace import calls, worker, x86_64
from collectors.doctor import Status, doctor
from collectors.errors import CollectorError
from collectors.process import process as processes
from collectors.protocol import requests
from collectors.protocol.frames import Frame, Kind
from tests import shared
from tests.agent.conftest import FAKES, SOURCES, build_few
from tests.attach import children
from tests.waits import read_report

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="x86-64 only"),
]
PATIENCE_S = 20.0
MOST_S = 30
"""So long programs launch that nobody asks to end."""
ALLOWED = requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.HOLDS)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> dict[str, Path]:
    """The agent, stand-ins of CUDA and CUPTI, and a program that launches from three threads."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    program = tmp_path_factory.mktemp("native") / "program"
    with shared.kept_folder(tmp_path_factory, "agent", *SOURCES) as folder:
        built = build_few(folder) | {"program": program}
    source = str(FAKES / "launchers.c")
    words = [compiler, "-O1", "-DPROGRAM", "-o", str(program), source, "-lpthread", "-ldl"]
    subprocess.run(words, check=True, timeout=60)
    return built


def command(built: dict[str, Path], seconds: int) -> list[str]:
    return [str(built["program"]), str(built["cuda"]), str(built["cupti"]), str(seconds)]


@pytest.fixture
def started(built: dict[str, Path]) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    under_way: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        one = subprocess.Popen(command(built, MOST_S), stdout=subprocess.PIPE, text=True)
        under_way.append(one)
        return one

    yield start
    for one in under_way:
        one.kill()
        one.wait()


def until(client: Client, good: Callable[[list[Frame]], Any]) -> Any:
    frames: list[Frame] = []
    deadline = time.monotonic() + PATIENCE_S
    while not (value := good(frames)):
        chosen_frames = [frame.body for frame in frames if frame.kind == Kind.STATUS]
        assert time.monotonic() < deadline, f"never came: {chosen_frames}"
        select.select([client], [], [], 0.05)
        frames += client.frames()
    return value


def traced(frames: list[Frame]) -> int:
    """Kernels of a burst that has ended."""
    over = any("traced" in frame.body for frame in frames if frame.kind == Kind.STATUS)
    return over and sum(len(frame.body) for frame in frames if frame.kind == Kind.KERNELS)


def undisturbed(text: str) -> None:
    match = re.search(r"calls (\d+) wrong (\d+) beside (\d+)", text)
    assert match is not None, text
    calls, wrong, beside = map(int, match.groups())
    assert calls > 0 and wrong == 0 and beside == 0


def test_cuda_brings_the_agent_into_a_program_that_run_starts(built, tmp_path, capfd):
    files = AgentFiles(agent_library.AGENT_DIR, built["agent"])
    launched = launch.launch(command(built, MOST_S), files)
    client = launched.first_agent(PATIENCE_S)
    assert client is not None
    assert client.hello["cmdline"] == command(built, MOST_S) and client.hello["pid"] == launched.pid
    client.send(ALLOWED)
    client.send(requests.burst(0, 500_000_000))
    assert until(client, traced)
    client.close()
    launched.process.terminate()
    assert launched.process.wait(PATIENCE_S) == 0
    launched.remove()
    undisturbed(capfd.readouterr().out)


def test_a_running_program_is_entered_and_left(built, started):
    one = started()
    deadline = time.monotonic() + PATIENCE_S
    while not processes.read(one.pid).has_cuda_driver and time.monotonic() < deadline:
        time.sleep(0.02)
    files = AgentFiles(agent_library.AGENT_DIR, built["agent"])
    attached = attach(one.pid, files)
    assert attached.method == "loaded library"
    attached.client.send(ALLOWED)
    attached.client.send(requests.burst(0, 500_000_000))
    assert until(attached.client, traced)
    assert attached.leave(5.0)
    one.send_signal(signal.SIGINT)
    text, _ = one.communicate(timeout=PATIENCE_S)
    undisturbed(text)


def in_a_fork(job: dict[str, Any], _: float) -> dict[str, Any]:
    """The process that traces, without the start of a Python of its own."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        calls.block_signals()
        os.write(writes, json.dumps(worker._enter(job)).encode())
        os._exit(0)
    os.close(writes)
    with open(reads, "rb") as file:
        answer = file.read()
    os.waitpid(child, 0)
    entered: dict[str, Any] = json.loads(answer)
    return entered


@pytest.mark.usefixtures("tracing")
@pytest.mark.parametrize(
    "rounds", [1, pytest.param(240, marks=[pytest.mark.soak, pytest.mark.timeout(9000)])]
)
def test_no_call_of_a_thread_ends_in_eintr_when_its_process_is_entered_through_it(
    built, tmp_path, monkeypatch, rounds
):
    report, chosen = tmp_path / "report", [0]
    monkeypatch.setattr(by_ptrace, "run_worker", in_a_fork)
    monkeypatch.setattr(worker, "_candidates", lambda _: chosen)
    env = {"LD_PRELOAD": str(built["waits"]), "WAITS_REPORT": str(report)}
    words = command(built, 100_000)
    with children.child(words, env={**os.environ, **env}) as one:
        while not report.exists() or len(waits := read_report(report.read_text())) < 30:
            assert one.alive
        for _ in range(rounds):
            for chosen[0] in (wait.tid for wait in waits.values()):
                files = AgentFiles(agent_library.AGENT_DIR, built["agent"])
                attached = attach(
                    one.pid, files, limit_s=90.0, handshake_s=60.0
                )  # threads enough to be slow
                assert [stop.tid for stop in attached.attempts[-1].stops] == chosen
                assert attached.leave()
        time.sleep(1)
        while (told := read_report(report.read_text())).keys() != waits.keys():
            assert one.alive, "it is written anew while it is read"
        assert told.keys() == waits.keys() and not any(wait.cut_short for wait in told.values())
        one.process.send_signal(signal.SIGINT)
        assert one.hears(b"beside")
        undisturbed(one.output.decode())


_, KEEPS_FRAMED, KEEPS_ABOVE = x86_64.GADGETS["keep"]


@pytest.fixture
def framed(built: dict[str, Path], tmp_path) -> dict[str, Path]:
    """A C++ program, and a library that has the code of a C library with frame pointers."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler here")
    library, hello = tmp_path / "libframed.so", tmp_path / "hello.cc"
    flags = ["-O2", "-fno-omit-frame-pointer", "-fPIC", "-shared", "-Wl,-z,lazy"]
    build = ["gcc", *flags, "-o", str(library), str(FAKES.parent / "framed.c")]
    subprocess.run(build, check=True, timeout=60)
    if any(code not in library.read_bytes() for code in (KEEPS_FRAMED, KEEPS_ABOVE)):
        pytest.skip("this compiler keeps a result by other code")
    hello.write_text("#include <iostream>\nstatic struct H { H() { std::cout.flush(); } } hello;\n")
    objects, program = tmp_path / "launchers.o", tmp_path / "program"
    source = str(FAKES / "launchers.c")
    subprocess.run(["gcc", "-O1", "-DPROGRAM", "-c", "-o", str(objects), source], check=True)
    words = ["g++", "-o", str(program), str(hello), str(objects), "-lpthread", "-ldl"]
    subprocess.run(words, check=True, timeout=60)
    return {**built, "program": program, "framed": library}


@pytest.fixture
def cxx(framed: dict[str, Path]) -> Iterator[subprocess.Popen[str]]:
    """That program, on the GPU."""
    env = {**os.environ, "LD_PRELOAD": str(framed["framed"])}
    with subprocess.Popen(
        command(framed, MOST_S), stdout=subprocess.PIPE, text=True, env=env
    ) as one:
        deadline = time.monotonic() + PATIENCE_S
        while not processes.read(one.pid).has_cuda_driver and time.monotonic() < deadline:
            time.sleep(0.02)
        yield one
        one.kill()


@pytest.mark.parametrize("code", [KEEPS_FRAMED, KEEPS_ABOVE], ids=["frame pointers", "above"])
def test_a_cxx_program_whose_c_library_keeps_results_in_its_own_way_is_entered_and_left(
    cxx, built, monkeypatch, code
):
    monkeypatch.setitem(x86_64.GADGETS, "keep", (code,))
    plan = by_ptrace.make_plan(processes.read(cxx.pid))
    assert plan.expected[plan.gadgets["keep"]] == code.hex()
    files = AgentFiles(agent_library.AGENT_DIR, built["agent"])
    attached = attach(cxx.pid, files)
    attached.client.send(ALLOWED)
    attached.client.send(requests.burst(0, 500_000_000))
    assert until(attached.client, traced)
    assert attached.leave(5.0)
    cxx.send_signal(signal.SIGINT)
    text, _ = cxx.communicate(timeout=PATIENCE_S)
    undisturbed(text)


def test_a_program_without_such_code_is_left_alone_and_the_reason_is_said(cxx, built, monkeypatch):
    monkeypatch.setitem(x86_64.GADGETS, "keep", (KEEPS_FRAMED * 2,))
    with pytest.raises(CollectorError) as refused:
        attach(cxx.pid, AgentFiles(agent_library.AGENT_DIR, built["agent"]))
    assert "no library of the trainer has the code that stores a call's result" in str(
        refused.value
    )
    assert "brrrtop run -- CMD" in refused.value.action
    cxx.send_signal(signal.SIGINT)
    text, _ = cxx.communicate(timeout=PATIENCE_S)
    undisturbed(text)


_LAUNCHES = """\
import ctypes, signal, sys, time
seconds = []
signal.signal(signal.SIGTERM, lambda *_: seconds.append(1))
signal.signal(signal.SIGINT, lambda *_: seconds.append(0))
cuda, cupti, launchers = (ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in sys.argv[1:4])
launchers.launchers_begin(cupti.fake_api, 2, 20, 200, 20)
print("begun", flush=True)
end = time.monotonic() + 30
while time.monotonic() < end:
    time.sleep(0.01)
    if seconds:
        end = time.monotonic() + seconds.pop()
print("calls", 1, "wrong", launchers.launchers_end(), "beside", cupti.fake_beside(), flush=True)
"""


def python_words(built: dict[str, Path], text: str) -> list[str]:
    paths = [str(built[name]) for name in ("cuda", "cupti", "launchers")]
    return [sys.executable, "-c", text, *paths]


@pytest.fixture(params=["C++", "Python"])
def torchless(request, built: dict[str, Path]) -> Iterator[subprocess.Popen[str]]:
    """On the GPU: a program without an interpreter, or, as JAX, threads of which it knows nothing."""
    words = command(built, MOST_S) if request.param == "C++" else python_words(built, _LAUNCHES)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as one:
        deadline = time.monotonic() + PATIENCE_S
        while not processes.read(one.pid).has_cuda_driver and time.monotonic() < deadline:
            time.sleep(0.02)
        yield one
        one.kill()


def watched(one: subprocess.Popen[str], built: dict[str, Path], *options: str) -> Controller:
    """As `attach` does it with these options."""
    agent = attach(one.pid, AgentFiles(agent_library.AGENT_DIR, built["agent"])).client
    return live.open_live(agent, one.pid, parse(["attach", str(one.pid), *options]), "")


def kernels_until(controller: Controller, noted: str) -> int:
    """How many were seen when a note of the source said that."""
    source = controller.source
    count, deadline = 0, time.monotonic() + PATIENCE_S
    while not any(noted in note for note in source.info.notes):
        assert time.monotonic() < deadline, f"never noted: {source.info.notes}"
        controller.poll()
        count += sum(len(f.body) for f in source.frames() if f.kind == Kind.KERNELS)
        time.sleep(0.02)
    return count + sum(len(f.body) for f in source.frames() if f.kind == Kind.KERNELS)


def test_a_program_without_torch_is_traced_unless_that_is_left_out(torchless, built):
    controller = watched(torchless, built, "--no-trace-graphs")
    assert kernels_until(controller, "left out (--no-trace-graphs)") == 0
    controller.source.close()
    controller = watched(torchless, built)
    assert kernels_until(controller, "all threads are held outside CUDA for some") > 0
    controller.source.close()
    torchless.send_signal(signal.SIGINT)
    text, _ = torchless.communicate(timeout=PATIENCE_S)
    undisturbed(text)


def test_doctor_says_how_such_a_program_is_traced(torchless, built):
    report = doctor(torchless.pid, AgentFiles(agent_library.AGENT_DIR, built["agent"]))
    checks = {check.name: check for check in report.checks}
    assert "--no-trace-graphs" in checks["torch"].message or checks["torch"].denied
    assert checks["python"].status is Status.FINE


def test_run_brings_the_agent_into_a_python_that_imports_another_library_for_gpus(built, tmp_path):
    (tmp_path / "cupy.py").write_text("")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    files = AgentFiles(agent_library.AGENT_DIR, built["agent"])
    text = "import os, cupy; assert 'CUDA_INJECTION64_PATH' not in os.environ\n" + _LAUNCHES
    launched = launch.launch(python_words(built, text), files, env=env)
    try:
        client = launched.first_agent(PATIENCE_S)
        assert client is not None and client.hello["python"]
        client.close()
        launched.process.terminate()
        assert launched.process.wait(PATIENCE_S) == 0
    finally:
        launched.process.kill()
        launched.remove()
