"""The folders of `run`: private, short enough for sockets, and gone when nobody needs them."""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.attach import client, run_folders
from collectors.errors import NotWritable

BASES = run_folders._bases


@pytest.fixture(autouse=True)
def base(monkeypatch) -> Iterator[Path]:
    """The only place that folders are made in and swept from."""
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as name:
        folder = Path(name)
        monkeypatch.setattr(run_folders, "_bases", lambda: iter([folder]))
        yield folder


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "60"])
    yield child
    child.kill()
    child.wait(10)


def left_by(pid: int, base: Path, monkeypatch) -> Path:
    """A folder as process `pid` would have made it."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: pid)
        return run_folders.make()


def gone(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait(10)


def test_it_is_private_and_has_room_for_a_socket(base):
    folder = run_folders.make()
    assert folder.parent == base and folder.stat().st_mode & 0o777 == 0o700
    run_folders.sweep(base)
    assert folder.is_dir(), "we live"
    usual = f"/run/user/4294967294/{folder.name}/4194304.agent.sock"
    assert len(usual) <= client.PATH_LIMIT_BYTES


def test_a_disk_without_room_for_a_file_is_none(base):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        with pytest.raises(NotWritable, match=f"{base}: File too large") as fault:
            run_folders.make()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "make room" in fault.value.action
    assert list(base.iterdir()) == []


def test_a_host_without_a_temporary_folder_is_no_fault(monkeypatch):
    def nowhere() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert [str(one) for one in BASES()] == ["/tmp", "/dev/shm", "/var/tmp"]


def test_folders_that_are_too_long_for_a_socket_are_passed_over(base, monkeypatch):
    long = base / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(run_folders, "_bases", lambda: iter([long, base]))
    assert run_folders.make().parent == base
    monkeypatch.setattr(run_folders, "_bases", lambda: iter([long]))
    with pytest.raises(NotWritable, match=f"{long}: too long for a socket"):
        run_folders.make()


def test_the_folder_for_temporary_files_is_one_of_them(monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/usr/lib")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/usr/bin")
    assert [str(one) for one in BASES()][:3] == ["/usr/bin", "/usr/lib", "/tmp"]


def test_what_another_user_made_or_nobody_can_read_is_left_alone(root, base, sleeper, monkeypatch):
    theirs, damaged = (left_by(sleeper.pid, base, monkeypatch) for _ in range(2))
    (damaged / "command").write_text("no number")
    os.chown(theirs, 6666, 6666)
    gone(sleeper)
    run_folders.sweep(base)
    assert theirs.is_dir() and damaged.is_dir()
    os.chown(theirs, 0, 0)
    (damaged / "command").unlink()
    run_folders.sweep(base)
    assert list(base.iterdir()) == []


def test_what_a_killed_owner_left_is_removed_by_the_next(base, sleeper, monkeypatch):
    folder = left_by(sleeper.pid, base, monkeypatch)
    (folder / "sitecustomize.py").write_text("")
    run_folders.make()
    assert folder.is_dir()
    gone(sleeper)
    run_folders.make()
    assert not folder.exists()


def test_it_stays_while_the_command_or_one_with_an_agent_lives(base, sleeper, monkeypatch):
    owner = subprocess.Popen(["sleep", "60"])
    folder = left_by(owner.pid, base, monkeypatch)
    run_folders.note_command(folder, sleeper.pid)
    gone(owner)
    run_folders.sweep(base)
    assert folder.is_dir(), "the command can still be attached to"
    gone(sleeper)
    (folder / f"{os.getpid()}.agent.sock").touch()
    run_folders.sweep(base)
    assert folder.is_dir(), "a rank of it can"
    (folder / f"{os.getpid()}.agent.sock").unlink()
    run_folders.sweep(base)
    assert not folder.exists()


def test_nothing_else_is_touched(base, sleeper, monkeypatch):
    folder = left_by(sleeper.pid, base, monkeypatch)
    boot, namespace, *rest = folder.name.removeprefix(run_folders.PREFIX).split("-")
    names = [
        "brrrtop-run-0123456789abcdef",
        f"{folder.name}.log",
        "-".join(("brrrtop-run", "00000000", namespace, *rest)),
        "-".join(("brrrtop-run", boot, "1", *rest)),
    ]
    others = [base / name for name in names]
    for one in others:
        one.mkdir()
    (base / "target").mkdir()
    link = base / f"{folder.name[:-1]}{'0' if folder.name[-1] != '0' else '1'}"
    link.symlink_to(base / "target")
    gone(sleeper)
    run_folders.sweep(base)
    assert not folder.exists()
    assert all(one.is_dir() for one in (*others, link, base / "target"))


_MAKE = "from collectors.attach import run_folders; print(run_folders.make())"


def test_root_makes_no_folder_below_one_that_another_user_can_change(root, base):
    """After `su` or `sudo -E` the environment still names that user's folders."""
    theirs, below = base / "user", base / "user" / "roots"
    theirs.mkdir(mode=0o700)
    below.mkdir(mode=0o700)  # root's own, and its parent can be renamed
    os.chown(theirs, 6666, 6666)
    for runtime, temporary in ((theirs, theirs), (below, theirs), (theirs, below)):
        named = {"XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(temporary)}
        made = subprocess.run(
            [sys.executable, "-c", _MAKE], env=os.environ | named, capture_output=True, text=True
        )
        folder = Path(made.stdout.strip())
        assert folder.is_dir(), made.stderr
        folder.rmdir()
        assert theirs not in folder.parents
    assert list(below.iterdir()) == []


def test_a_folder_that_anybody_can_change_is_none_unless_it_is_sticky(base, monkeypatch):
    base.chmod(0o777)
    with pytest.raises(NotWritable, match=f"anybody can change {base}"):
        run_folders.make()
    base.chmod(0o1777)
    assert run_folders.make().parent == base
