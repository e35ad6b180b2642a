"""Host root and a trainer in a user namespace (rootless containers), with the real agent."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors import native
from collectors import process as processes
from collectors.attach import attach
from collectors.errors import CollectorError
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
        assert one.hears(b"uid 0\n"), one.said
        yield one


def test_host_root_reaches_the_agent_of_a_rootless_container(
    tracing: None, rootless: Child
) -> None:
    try:
        files = native.agent_files()
    except CollectorError as fault:
        pytest.skip(fault.message)
    sheet = processes.read(rootless.pid)
    assert sheet.uid == STRANGER
    found = attach(rootless.pid, files, need_torch=False)
    assert found.client.hello["pid"] == rootless.pid
    assert found.place is not None
    folder = Path(found.place.outside)
    assert folder.stat().st_uid == STRANGER
    shared = attach(rootless.pid, files, need_torch=False)
    assert shared.shared, "a second monitor of root's finds it"
    shared.client.close()
    assert found.leave()
    assert not folder.exists()
    assert rootless.alive
