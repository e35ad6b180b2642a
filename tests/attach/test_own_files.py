"""What is kept between runs: no other user leads root elsewhere, and no file is half written."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from brrrtop.advisories import steady
from brrrtop.cli import show
from brrrtop.model.snapshot import Settings
from collectors import own_files
from collectors.own_files import changeable_by, is_own_file, own_folder, replace_file

OTHER = 6666
WRITERS: dict[str, Callable[[], object]] = {
    "brrrtop/config.toml": lambda: show.save_settings(Settings(theme="dark")),
    "brrrtop/tried.json": lambda: steady.keep(
        steady.TriedProgram("/", ("train.py",), "H100", 1.0, {})
    ),
}


@pytest.fixture
def others_home(root: None, tmp_path, monkeypatch) -> Path:
    """The home of another user, which root's environment names, as after `sudo -E`."""
    home = tmp_path / "other"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(own_files, "home", lambda: tmp_path / "root")
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(home / ".kept"))
    (home / ".kept" / "brrrtop").mkdir(parents=True)
    for folder in (home, home / ".kept", home / ".kept" / "brrrtop"):
        os.chown(folder, OTHER, OTHER)
    return home / ".kept"


@pytest.mark.parametrize("name", WRITERS)
def test_root_writes_nothing_through_the_folders_of_another_user(name, others_home, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("root's")
    secret.chmod(0o600)
    (others_home / name).symlink_to(secret)
    WRITERS[name]()
    assert secret.read_text() == "root's" and (others_home / name).is_symlink()
    (kept,) = (tmp_path / "root").rglob(Path(name).name)
    assert kept.stat().st_uid == 0 and kept.stat().st_mode & 0o077 == 0


def test_root_without_a_home_writes_nothing_there_either(others_home, monkeypatch):
    monkeypatch.setattr(own_files, "home", lambda: None)
    aim = own_folder(others_home / "brrrtop", "x") / "f"
    with pytest.raises(PermissionError, match=f"belongs to user {OTHER}"):
        replace_file(aim, b"new")
    assert not aim.exists()


def test_our_own_link_keeps_leading_to_the_file(tmp_path):
    target, link = tmp_path / "dotfiles" / "config.toml", tmp_path / "config.toml"
    link.symlink_to(target)
    replace_file(link, b"new")
    assert target.read_bytes() == b"new" and link.is_symlink()


def test_a_file_is_replaced_whole_or_stays(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace_file(path, b"old")
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail(_: int) -> None:
        raise full

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_what_anybody_can_write_is_not_our_own(tmp_path):
    path, link = tmp_path / "library.so", tmp_path / "link.so"
    path.touch(0o600)
    link.symlink_to(path)
    assert is_own_file(path)
    assert not is_own_file(link) and not is_own_file(tmp_path) and not is_own_file(tmp_path / "no")
    path.chmod(0o666)
    assert not is_own_file(path)


@pytest.mark.usefixtures("root")
def test_what_another_user_owns_is_not_our_own(tmp_path):
    path = tmp_path / "library.so"
    path.touch(0o600)
    os.chown(path, OTHER, OTHER)
    assert not is_own_file(path)


@pytest.mark.usefixtures("root")
def test_in_a_user_namespace_roots_files_outside_belong_to_the_number_for_nobody(
    tmp_path, monkeypatch
):
    path = tmp_path / "library.so"
    path.touch(0o600)
    os.chown(path, 65534, 65534)
    assert not is_own_file(path)
    monkeypatch.setattr(own_files, "_ALL_USERS", ("0", "1000", "1"))
    assert is_own_file(path)


def test_who_can_change_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(own_files, "home", lambda: None)
    inner = tmp_path / "open" / "inner"
    inner.mkdir(parents=True)
    assert changeable_by(inner) == ""
    (tmp_path / "open").chmod(0o777)
    assert changeable_by(inner) == f"anybody can change {tmp_path / 'open'}"
    assert changeable_by(inner / "not" / "there") == changeable_by(inner)
    (tmp_path / "open").chmod(0o777 | stat.S_ISVTX)
    assert changeable_by(inner) == "", "as in /tmp: whoever owns a thing there keeps it"
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setattr(own_files, "home", lambda: inner)
    assert changeable_by(inner) == "", "nothing is asked above our user's home"
