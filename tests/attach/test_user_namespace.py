"""Who may talk to the real agent: host root beside user namespaces, and nobody else."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.attach import agent_library
from collectors.attach.attach import attach
from collectors.errors import CollectorError
from collectors.process import process as processes
from tests.attach import children
from tests.attach.children import Child

STRANGER = 6666
_AS_STRANGER = ("setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups")


@pytest.fixture
def rootless(root: None) -> Iterator[Child]:
    """A Python that is root of a user namespace of its own, and user 6666 to us."""
    program = ["unshare", "--user", "--map-root-user", "/usr/bin/python3", "-c"]
    if not all(map(shutil.which, ("setpriv", "unshare", "/usr/bin/python3"))):
        pytest.skip("needs setpriv, unshare and a Python that every user may run")
    if subprocess.run([*_AS_STRANGER, *program, "pass"], capture_output=True).returncode:
        pytest.skip("no user namespace can be made here")
    text = f"import os; print('uid', os.getuid(), flush=True)\n{children.BUSY}"
    with children.child([*_AS_STRANGER, *program, text], cwd="/") as one:
        assert one.hears(b"uid 0\n"), one.output
        yield one


def test_host_root_reaches_the_agent_of_a_rootless_container(tracing, rootless):
    try:
        files = agent_library.agent_files()
    except CollectorError as fault:
        pytest.skip(fault.message)
    sheet = processes.read(rootless.pid)
    assert sheet.uid == STRANGER
    attached = attach(rootless.pid, files, need_torch=False)
    assert attached.client.hello["pid"] == rootless.pid
    assert attached.place is not None
    folder = Path(attached.place.outside)
    assert folder.stat().st_uid == STRANGER
    shared = attach(rootless.pid, files, need_torch=False)
    assert shared.shared, "a second monitor of root's finds it"
    assert not attached.leave() and folder.is_dir(), "the second one still watches"
    assert shared.leave(10)
    assert not folder.exists()
    assert rootless.alive


_KNOCK = """
import os, socket, sys
os.setgroups([]); os.setgid(6666); os.setuid(6666)
knock = socket.socket(socket.AF_UNIX)
knock.settimeout(10)
knock.connect(sys.argv[1])
print("connected", knock.recv(100))
"""


def test_an_agent_says_nothing_to_another_user(tracing, root):
    """Not even with its folder and its socket opened to all by hand."""
    try:
        files = agent_library.agent_files()
    except CollectorError as fault:
        pytest.skip(fault.message)
    with children.python(children.BUSY) as one:
        attached = attach(one.pid, files, need_torch=False)
        assert attached.place is not None
        path = Path(attached.place.outside) / "agent.sock"
        path.parent.chmod(0o777)
        path.chmod(0o666)
        knock = [sys.executable, "-c", _KNOCK, str(path)]
        done = subprocess.run(knock, capture_output=True, text=True, timeout=20)
        assert done.stdout == "connected b''\n", done.stderr
        assert attached.leave(10)
