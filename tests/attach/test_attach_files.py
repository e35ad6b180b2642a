"""The trainer's private folder against a trainer's user who swaps it for a link meanwhile."""

import os
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collectors.attach import bootstrap, client, files
from collectors.attach.attach import why_refused
from collectors.attach.files import AgentFiles
from collectors.errors import NotPermitted, NotWritable
from collectors.process import process as processes
from tests.attach import children
from tests.attach.children import Child

STRANGER = 6666
ROUNDS = 12
FILES = 400
"""Agent files to copy: their number makes the time in which a swap can happen."""
_ATTACKER = """
import os, sys, time
base, victim, user, files = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
os.setgroups([]); os.setgid(user); os.setuid(user)
# A folder that looks like ours, in which every file is a link to what only root may write.
os.makedirs(f"{base}/fake/agent")
for number in range(files):
    os.symlink(f"{victim}/shadow", f"{base}/fake/agent/part{number}.py")
os.symlink(f"{victim}/shadow", f"{base}/fake/library.so")
print("up", flush=True)
number = 0
while True:
    for name in os.listdir(base):
        path = os.path.join(base, name)
        if not name.startswith("brrrtop-") or os.path.islink(path):
            continue
        time.sleep(0.0005 * (number % 8))
        try:
            os.rename(path, f"{base}/was-{number}")
            os.symlink(f"{base}/fake" if number % 2 else victim, path)
        except OSError:
            continue
        number += 1
        print("swapped", flush=True)
"""


@pytest.fixture(autouse=True)
def no_descriptor_stays_open() -> Iterator[None]:
    before = os.listdir("/proc/self/fd")
    yield
    assert os.listdir("/proc/self/fd") == before


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder of the stranger's, as /run/user/UID is; its path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as name:
        os.chown(name, STRANGER, STRANGER)
        yield Path(name)


@pytest.fixture
def victim(tmp_path) -> Path:
    """A folder of root's that anyone may enter, with a file that nobody else may read."""
    folder = tmp_path / "victim"
    folder.mkdir(mode=0o755)
    (folder / "shadow").write_text("root:secret")
    (folder / "shadow").chmod(0o600)
    for path in (tmp_path, *tmp_path.parents):
        if path not in (Path("/"), Path("/tmp")):
            path.chmod(path.stat().st_mode | 0o055)
    return folder


@pytest.fixture
def many_files(tmp_path) -> AgentFiles:
    """An agent of many files, in a folder that only root can read, so that they are copied."""
    folder = tmp_path / "ours" / "agent"
    folder.mkdir(parents=True)
    (tmp_path / "ours").chmod(0o700)
    for name in ("entry.py", *(f"part{number}.py" for number in range(FILES))):
        (folder / name).write_text("pass\n")
    library = tmp_path / "ours" / "library.so"
    library.write_bytes(b"\x7fELF")
    return AgentFiles(folder, library)


@contextmanager
def attacker(base: Path, victim: Path) -> Iterator[Child]:
    command = [_python(), "-I", "-S", "-c", _ATTACKER, str(base), str(victim), str(STRANGER)]
    command.append(str(FILES))
    with children.child(command) as one:
        assert one.hears(b"up\n"), one.output
        yield one


def _python() -> str:
    return "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


def test_root_gives_nothing_away_to_a_user_who_swaps_the_folder_for_a_link(
    root,
    base,
    victim,
    many_files,
    monkeypatch,
):
    monkeypatch.setattr(files, "bases", lambda _: (str(base),))
    with attacker(base, victim) as one:
        sheet = processes.read(one.pid)
        for _ in range(ROUNDS):
            try:
                place = files.prepare(sheet, many_files)
            except NotWritable:
                continue
            place.remove()
        assert one.hears(b"swapped"), "the attacker was never quick enough: this proves nothing"
    texts = (victim / "shadow").stat()
    assert (texts.st_uid, stat.S_IMODE(texts.st_mode)) == (0, 0o600)
    assert (victim / "shadow").read_text() == "root:secret"
    assert victim.stat().st_uid == 0
    assert sorted(os.listdir(victim)) == ["shadow"]


@contextmanager
def of_the_stranger(code: str = "") -> Iterator[Child]:
    """A process of another user that does nothing more once it has run `code` as root."""
    become = f"import os; os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})"
    with children.python(f"{code}\n{become}\n{children.SLEEPING}", _python()) as one:
        assert wait_for(lambda: processes.read(one.pid).uid == STRANGER)
        yield one


def wait_for(condition: Callable[[], bool], limit_s: float = 10.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def test_the_folder_and_all_in_it_belong_to_the_trainers_user(root, base, many_files, monkeypatch):
    monkeypatch.setattr(files, "bases", lambda _: (str(base),))
    os.chown(a_folder(base, 2**22 - 1, 77), STRANGER, STRANGER)
    with of_the_stranger() as one:
        place = files.prepare(processes.read(one.pid), many_files)
        place.write("boot.py", "pass")
        (folder,) = base.iterdir()
        everything = [folder, *folder.rglob("*")]
        assert len(everything) == FILES + 5
        assert Path(place.agent_inside) == folder / "agent"
        assert stat.S_IMODE((folder / "library.so").stat().st_mode) == 0o500
        (folder / "elsewhere").symlink_to(folder / "agent")
        assert {(p.lstat().st_uid, p.lstat().st_gid) for p in everything} == {(STRANGER, STRANGER)}
        assert {p.stat().st_mode & 0o077 for p in everything} == {0}
        assert (Path(place.outside) / "boot.py").read_text() == "pass"
        place.remove()
    assert list(base.iterdir()) == []


@pytest.mark.parametrize("kind", ["hard link", "link", "pipe"])
def test_what_lies_in_place_of_a_refusal_is_not_read_with_roots_rights(
    kind, root, base, victim, many_files,
    monkeypatch,
):  # fmt: skip
    monkeypatch.setattr(files, "bases", lambda _: (str(base),))
    with of_the_stranger() as one:
        place = files.prepare(processes.read(one.pid), many_files)
        path = Path(place.socket_outside + bootstrap.REFUSED_SUFFIX)
        if kind == "hard link":
            os.link(victim / "shadow", path)
        elif kind == "link":
            os.symlink(victim / "shadow", path)
        else:
            os.mkfifo(path)
        assert why_refused(place) == ("" if kind != "link" else str(victim / "shadow"))
        place.remove()
    assert (victim / "shadow").read_text() == "root:secret"


def test_links_of_a_container_never_lead_to_the_hosts_folders(
    root, tmp_path, many_files, monkeypatch
):
    """The link is absolute: inside it names a folder of the container, outside one of the host."""
    with tempfile.TemporaryDirectory(prefix="h", dir="/tmp") as host:
        inside = tmp_path / "image"
        (inside / "shm").mkdir(parents=True)
        (inside / "tmp").symlink_to(host)
        monkeypatch.setattr(files, "bases", lambda _: ("/tmp", "/shm"))
        with children.python(f"import os; os.chroot({str(inside)!r})\n{children.BUSY}") as one:
            sheet = processes.read(one.pid)
            assert wait_for(lambda: os.path.samestat(os.stat(sheet.root), inside.stat()))
            place = files.prepare(sheet, many_files)
            assert place.inside.startswith("/shm/"), "the link is passed over"
            assert list(Path(host).iterdir()) == []
            assert len(list((inside / "shm").iterdir())) == 1
            place.remove()
            assert list((inside / "shm").iterdir()) == []
            left = a_folder(inside / "shm", 1, 5)
            files.remove_beside(sheet, f"{sheet.root}/shm/{left.name}/agent.sock")
            assert not left.exists()
            monkeypatch.setattr(files, "bases", lambda _: ("/tmp",))
            with pytest.raises(NotWritable, match="/tmp: "):
                files.prepare(sheet, many_files)
        assert not files.same_mounts(sheet), "it has gone"
        assert files.same_mounts(processes.read(os.getpid()))


def a_folder(base: Path, pid: int, ticks: int, end: str = "a" * 16) -> Path:
    folder = base / f"brrrtop-{files.pid_namespace()}-{pid}-{ticks}-{end}"
    folder.mkdir(mode=0o700)
    return folder


def sweep(base: Path, pid: int) -> None:
    handle = os.open(base, os.O_PATH | os.O_DIRECTORY)
    try:
        files.sweep(processes.read(pid), handle)
    finally:
        os.close(handle)


def test_folders_of_dead_trainers_are_swept_and_those_of_living_ones_stay(tmp_path):
    ours = processes.read(os.getpid()).start_ticks
    living = a_folder(tmp_path, os.getpid(), ours)
    reused = a_folder(tmp_path, os.getpid(), ours - 1)
    dead = a_folder(tmp_path, 2**22 - 1, 77)
    elsewhere = tmp_path / f"brrrtop-1-{2**22 - 1}-77-{'a' * 16}"
    elsewhere.mkdir()
    sweep(tmp_path, os.getpid())
    assert living.exists()
    assert elsewhere.exists(), "a process of another pid namespace may well live"
    assert not reused.exists()
    assert not dead.exists()


def test_root_sweeps_only_what_the_trainers_user_owns(root, base):
    roots, strangers = a_folder(base, 2**22 - 1, 77), a_folder(base, 2**22 - 1, 78)
    os.chown(strangers, STRANGER, STRANGER)
    with of_the_stranger() as one:
        sweep(base, one.pid)
    assert roots.exists() and not strangers.exists()


def test_a_trainer_cannot_have_the_folder_of_another_user_removed(root, base):
    """It named its socket below a folder of its own, and put a link there afterwards."""
    with tempfile.TemporaryDirectory(prefix="o", dir="/tmp") as others:
        Path(others).chmod(0o1777)
        theirs = a_folder(Path(others), os.getpid(), 5)
        (theirs / "agent.sock").touch()
        (base / "link").symlink_to(others)
        with of_the_stranger() as one:
            sheet = processes.read(one.pid)
            files.remove_beside(sheet, f"{base}/link/{theirs.name}/agent.sock")
            assert (theirs / "agent.sock").exists()
            own = a_folder(base, os.getpid(), 5)
            os.chown(own, STRANGER, STRANGER)
            files.remove_beside(sheet, f"{own}/agent.sock")
            assert not own.exists()


def test_a_link_in_place_of_the_socket_leads_root_to_no_service_of_its_own(root, base):
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(base / "service"))  # only root may connect there
        os.chmod(base / "service", 0o600)
        service.listen(4)
        service.setblocking(False)
        (base / "agent.sock").symlink_to(base / "service")
        with pytest.raises(NotPermitted):
            client.connect(f"{base}/agent.sock", pid=os.getpid(), uid=STRANGER, limit_s=0.2)
        with pytest.raises(BlockingIOError):
            service.accept()


@pytest.mark.parametrize(
    ("mode", "above", "uid", "gid", "may"),
    [(0o400, 0o500, 1, 9, True), (0o044, 0o555, 1, 2, False), (0o040, 0o050, 9, 2, True),
     (0o404, 0o555, 9, 2, False), (0o004, 0o005, 9, 9, True), (0o440, 0o555, 9, 9, False),
     (0o444, 0o444, 1, 2, False), (0o000, 0o000, 0, 0, True)],
)  # fmt: skip
def test_a_file_is_reached_where_every_folder_above_and_it_may_be_read(
    mode, above, uid, gid, may, root, base
):
    """Of user 1 and group 2."""
    file = base / "folder" / "file"
    file.parent.mkdir()
    file.touch()
    for path, bits in ((base, 0o755), (file, mode), (file.parent, above)):
        os.chown(path, 1, 2)
        path.chmod(bits)
    sheet = cast("Any", SimpleNamespace(root="", uid=uid, gid=gid))
    assert files.reachable(sheet, file) is may
    sheet.root = str(base)
    assert not files.reachable(sheet, file), "it sees no such file"
    (Path(f"{base}{file.parent}")).mkdir(parents=True)
    Path(f"{base}{file}").touch()
    assert not files.reachable(sheet, file), "it sees another one there"


@pytest.mark.parametrize("reason", ["another user's", "too long", "noexec"])
def test_a_folder_that_is_of_no_use_is_refused_and_taken_away(
    reason, root, base, many_files, monkeypatch
):
    make = os.mkdir

    def make_and_lose(name: str, mode: int, dir_fd: int) -> None:
        make(name, mode, dir_fd=dir_fd)
        os.chown(name, STRANGER, STRANGER, dir_fd=dir_fd)

    there = base / ("x" * 60 if reason == "too long" else "x")
    there.mkdir()
    if reason == "another user's":
        monkeypatch.setattr(os, "mkdir", make_and_lose)
    elif reason == "noexec":
        monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    monkeypatch.setattr(files, "bases", lambda _: (str(there),))
    monkeypatch.setattr(files, "reachable", lambda *_: False)
    with pytest.raises(NotWritable, match=reason):
        files.prepare(processes.read(os.getpid()), many_files)
    assert list(there.iterdir()) == []


def test_a_libcupti_is_named_where_the_program_lacks_one_and_may_read_it(root, base, monkeypatch):
    def lib(path: str) -> str:
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).touch()
        return str(base / path)

    def option(**facts: Any) -> str:
        usual = {
            "files": [runtime],
            "has_torch": False,
            "has_cuda_driver": True,
            "root": "",
            "uid": 0,
        }
        return files.cupti_option(cast("Any", SimpleNamespace(**{**usual, **facts})))

    base.chmod(0o700)
    runtime, its = (
        lib("a/nvidia/cu13/lib/libcudart.so.13"),
        lib("a/nvidia/cupti/lib/libcupti.so.13"),
    )
    older, newer = lib("t/cuda-12/lib64/libcupti.so.12"), lib("t/cuda-13/lib64/libcupti.so.13.1")
    lib("t/cuda-13/lib64/libcupti.so.13.0")
    lib("a;b/nvidia/cupti/lib/libcupti.so.13")
    monkeypatch.setattr(files, "_TOOLKITS", (f"{base}/t/*",))
    monkeypatch.setattr(sys, "path", [str(base / "a;b"), str(base / "a")])
    assert option() == f"cupti={its}"
    assert option(files=[]) == f"cupti={newer}"
    assert option(files=[older]) == option(has_torch=True) == option(has_cuda_driver=False) == ""
    assert option(uid=1, gid=1) == "", "it may not read any"
    assert files.cupti_option(None) == f"cupti={newer}"
    monkeypatch.setattr(files, "_TOOLKITS", ())
    assert files.cupti_option(None) == f"cupti={its}"
