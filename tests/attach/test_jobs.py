"""Which processes are one job, across users, containers and their networks."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from brrrtop.cli.commands import attach as verb
from brrrtop.cli.live import JobProcesses
from brrrtop.cli.options import Options
from collectors.attach.files import AgentFiles
from collectors.process.candidates import Candidate, candidates, ranks_of
from collectors.process.process import Process
from tests.agent.conftest import built
from tests.attach import children
from tests.attach.children import Child
from tests.attach.test_attach import first_python_below

__all__ = ["built"]

PYTHON = "/usr/bin/python3"
OURS, THEIRS = 6666, 6667
RANK = """
import ctypes, sys, time
ctypes.CDLL(sys.argv[1])
print("up", flush=True)
while True: time.sleep(0.002)
"""
MEETS = {
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": str(20_000 + os.getpid() % 20_000),
    "WORLD_SIZE": "2",
}
CONTAINER = [
    "unshare",
    "--mount",
    "--pid",
    "--fork",
    "--mount-proc",
    "--propagation",
    "private",
    "--kill-child",
]


@pytest.fixture
def torch_library(built: dict[str, Path]) -> Iterator[str]:
    """A library by torch's name that every user may load."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield shutil.copy(built["cuda"], Path(folder) / "libtorch_cpu.so")


@contextmanager
def rank(number: int, library: str, *before: str, python: str = sys.executable) -> Iterator[Child]:
    """A rank of a job of two that has what looks like torch."""
    command = [*before, python, "-c", RANK, library]
    with children.child(command, env=os.environ | MEETS | {"RANK": str(number)}, cwd="/") as one:
        assert one.hears(b"up\n"), one.output
        yield one


def as_user(uid: int) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")


def as_told_by(uid: int, work: Callable[[], object]) -> Any:
    """What `work` returns in a fork that is user `uid`'s for good. What it imports must be there already."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            text = json.dumps(work())
        except BaseException as fault:  # noqa: BLE001  to the parent, which fails
            text = json.dumps(repr(fault))
        os.write(theirs, text.encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


def require(*command: str) -> None:
    if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"{command[0]} cannot do that here")


def opened(candidates: list[Candidate], pid: int, files: AgentFiles) -> list[tuple[bool, str]]:
    """Of each: whether it is watched, and why not."""
    processes = JobProcesses(pid, Options(), files)
    ranks = processes.open(candidates)
    for one in ranks:
        if one.controller is not None:
            one.controller.source.close()
    processes.leave()
    return [(one.session is not None, one.why or "") for one in ranks]


def test_a_rank_of_another_user_has_a_row_that_says_why(tracing, root, torch_library):
    require(*as_user(OURS), PYTHON, "-c", "")
    with (
        rank(0, torch_library, *as_user(OURS), python=PYTHON) as ours,
        rank(1, torch_library, *as_user(THEIRS), python=PYTHON) as theirs,
    ):
        files = verb.agent_files()
        assert [one.pid for one in ranks_of(ours.pid)] == [ours.pid, theirs.pid]

        def rows() -> object:
            ranks = ranks_of(ours.pid)
            return [(one.pid, one.rank) for one in ranks], opened(ranks[1:], ours.pid, files)

        listed, watched = as_told_by(OURS, rows)
        assert listed == [[ours.pid, 0], [theirs.pid, None]]
        assert watched == [[False, f"process {theirs.pid} belongs to user {THEIRS}"]]


def test_root_watches_ranks_of_two_users(tracing, root, torch_library):
    require(*as_user(OURS), PYTHON, "-c", "")
    with (
        rank(0, torch_library) as mine,
        rank(1, torch_library, *as_user(OURS), python=PYTHON) as ours,
    ):
        ranks = ranks_of(ours.pid)
        assert [(one.pid, one.rank) for one in ranks] == [(mine.pid, 0), (ours.pid, 1)]
        assert opened(ranks, mine.pid, verb.agent_files()) == [(True, ""), (True, "")]
        assert mine.alive and ours.alive


def test_a_rank_on_a_gpu_is_looked_into_once(torch_library, monkeypatch):
    """Its maps are long, and the search for newcomers comes every few seconds."""
    read: list[int] = []
    real = Process.maps.func  # type: ignore[attr-defined]

    def counted(process: Process) -> object:
        read.append(process.pid)
        return real(process)

    maps = cached_property(counted)
    maps.__set_name__(Process, "maps")
    monkeypatch.setattr(Process, "maps", maps)
    with rank(0, torch_library) as one:
        for _ in range(3):
            [same] = [c for c in candidates([one.pid]) if c.pid == one.pid]
            assert same.on_gpu and same.rank == 0
        assert read.count(one.pid) == 1
    assert one.pid not in [c.pid for c in candidates([one.pid])]


def test_ranks_in_containers_that_share_a_network_are_one_job(tracing, root, torch_library):
    require(*CONTAINER, "true")
    with ExitStack() as stack:
        outer = [
            stack.enter_context(rank(number, torch_library, *CONTAINER)).pid for number in (0, 1)
        ]
        pids = [first_python_below(pid) for pid in outer]
        ranks = ranks_of(pids[0])
        assert [(one.pid, one.rank) for one in ranks] == [(pids[0], 0), (pids[1], 1)]
        assert opened(ranks, pids[0], verb.agent_files()) == [(True, ""), (True, "")]


def test_jobs_that_meet_at_the_localhost_of_their_own_container_are_two(root, torch_library):
    require("unshare", "--net", "true")
    with (
        rank(0, torch_library, "unshare", "--net") as one,
        rank(1, torch_library, "unshare", "--net") as other,
        rank(0, torch_library) as outside,
        rank(1, torch_library) as beside,
    ):
        assert [rank.pid for rank in ranks_of(one.pid)] == [one.pid]
        assert [rank.pid for rank in ranks_of(other.pid)] == [other.pid]
        assert [rank.pid for rank in ranks_of(beside.pid)] == [outside.pid, beside.pid]
