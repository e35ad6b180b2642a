"""Skips what this machine forbids, and a stand-in for the agent."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from collectors.attach import bootstrap, by_ptrace
from collectors.attach.files import AgentFiles
from collectors.process import process as processes

_STAND_IN = Path(__file__).with_name("agent_stand_in.py")


@cache
def why_no_tracing() -> str:
    """Empty: a throwaway child could be traced."""
    if sys.platform != "linux":
        return "no ptrace outside Linux"
    child = subprocess.Popen(["sleep", "20"])
    try:
        fault = by_ptrace.probe(processes.read(child.pid))
    finally:
        child.kill()
        child.wait(10)
    return "" if fault is None else fault.message


@pytest.fixture
def tracing() -> None:
    """Skips where nobody may be traced."""
    reason = why_no_tracing()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def root() -> None:
    """Skips where we are not root."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")


def _payload(agent_dir: str, library: str, socket: str, options: str = "", pid: int = 0) -> str:
    given = f"AGENT, LIBRARY, PATH, OPTIONS = {(agent_dir, library, socket, options)!r}\n"
    return f"exec({given + _STAND_IN.read_text()!r}, {{}})"


@pytest.fixture
def stand_in(tmp_path, monkeypatch) -> AgentFiles:
    """An agent that only listens and says hello, in place of the real one."""
    monkeypatch.setattr(bootstrap, "payload", _payload)
    folder = tmp_path / "agent"
    folder.mkdir()
    for name in ("__init__.py", "entry.py"):
        (folder / name).write_text("")
    library = tmp_path / "library.so"
    library.write_bytes(b"\x7fELF")
    return AgentFiles(folder, library)


@pytest.fixture
def refusing(stand_in: AgentFiles, monkeypatch) -> AgentFiles:
    """An agent that says why it does not start."""

    def payload(_: str, __: str, socket: str, options: str = "", pid: int = 0) -> str:
        path = socket + bootstrap.REFUSED_SUFFIX
        return f"__import__('os').symlink('the library is for another machine', {path!r})"

    monkeypatch.setattr(bootstrap, "payload", payload)
    return stand_in
