"""Finding the library, building it, and saying what helps where that cannot be done."""

import os
import struct
import sys
from pathlib import Path

import pytest

from collectors import own_files, vocabulary
from collectors.attach import agent_library
from collectors.errors import CollectorError, NotWritable, Unsupported
from collectors.protocol import requests
from collectors.protocol.frames import HEADER

SOURCE = 'const char *brrr_fingerprint(void) { return "brrrtop-sources:" BRRR_FINGERPRINT; }\n'
"""All that keeping a library needs of the agent's; many others compile the whole."""


@pytest.fixture
def unbundled(tmp_path, monkeypatch) -> Path:
    """An installation without a library, with a little source, and an empty cache."""
    folder, sources = tmp_path / "agent", tmp_path / "native"
    folder.mkdir()
    sources.mkdir()
    (sources / "agent.c").write_text(SOURCE)
    monkeypatch.setattr(agent_library, "AGENT_DIR", folder)
    monkeypatch.setattr(agent_library, "SOURCE_DIR", sources)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_the_library_is_built_once_and_kept(unbundled):
    first = agent_library.library_path()
    made_ns = first.stat().st_mtime_ns
    assert agent_library.library_path() == first and first.stat().st_mtime_ns == made_ns
    assert list(first.parent.iterdir()) == [first], "nothing half made stays"
    assert first.stat().st_mode & 0o777 == 0o755


def test_a_library_older_than_its_sources_is_not_used(unbundled):
    stale = unbundled / agent_library.LIBRARY_NAME
    stale.write_bytes(b"\x7fELF brrrtop-sources:0123456789abcdef")
    assert agent_library.library_path() != stale
    stale.write_bytes(f"brrrtop-sources:{agent_library.library().fingerprint()}".encode())
    assert agent_library.library_path() == stale


def plant(cache: Path) -> Path:
    """A library where ours would be kept, that fits by its name."""
    folder = (
        cache
        / "brrrtop"
        / "agent"
        / f"{agent_library.library().fingerprint()}-{os.uname().machine}"
    )
    folder.mkdir(parents=True)
    (folder / agent_library.LIBRARY_NAME).write_bytes(b"\x7fELF planted")
    return folder / agent_library.LIBRARY_NAME


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_library_of_another_user_is_built_anew(unbundled, monkeypatch):
    planted = plant(Path(os.environ["XDG_CACHE_HOME"]))
    os.chown(planted, 6666, 6666)
    assert agent_library.library_path() == planted
    assert b"planted" not in planted.read_bytes() and planted.stat().st_uid == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of another user")
def test_a_cache_of_another_user_is_left_alone(unbundled, monkeypatch):
    """As `sudo -E` leaves it to root; the file may even be root's own."""
    cache, roots = Path(os.environ["XDG_CACHE_HOME"]), unbundled / "root"
    planted = plant(cache)
    os.chown(cache, 6666, 6666)
    roots.mkdir()
    monkeypatch.setattr(own_files, "home", lambda: roots)
    made = agent_library.library_path()
    assert roots in made.parents and b"planted" not in made.read_bytes()
    assert planted.read_bytes() == b"\x7fELF planted"
    os.chown(roots, 6666, 6666)
    with pytest.raises(NotWritable, match="belongs to user 6666"):
        agent_library.library_path()


def test_the_compiler_leaves_its_files_where_nobody_else_can_change_them(
    unbundled, tmp_path, monkeypatch
):
    seen = tmp_path / "seen"
    compiler = unbundled / "cc"
    compiler.write_text(f'#!/bin/sh\necho "$TMPDIR" > {seen}\nexec gcc "$@"\n')
    compiler.chmod(0o700)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("TMPDIR", "/somebody/elses")
    made = agent_library.library_path()
    assert Path(seen.read_text().strip()).parent == made.parent


def test_without_a_compiler_the_sentence_says_what_to_install(unbundled, monkeypatch):
    monkeypatch.setenv("PATH", str(unbundled))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(Unsupported, match="no C compiler") as refused:
        agent_library.library_path()
    assert "apt install gcc" in refused.value.action and "counters alone" in refused.value.action


def test_a_compiler_that_fails_is_quoted(unbundled, monkeypatch):
    monkeypatch.setenv("CC", f"{sys.executable} -c raise(SystemExit('no_such_header.h'))")
    with pytest.raises(CollectorError, match=r"did not compile: .*no_such_header"):
        agent_library.library_path()


def test_a_disk_that_is_full_is_no_want_of_a_compiler(unbundled, monkeypatch):
    linker = unbundled / "cc"
    linker.write_text(
        "#!/bin/sh\necho 'ld: final link failed: No space left on device' >&2\nexit 1\n"
    )
    linker.chmod(0o700)
    monkeypatch.setenv("CC", str(linker))
    with pytest.raises(NotWritable, match="No space left on device") as refused:
        agent_library.library_path()
    assert "make room" in refused.value.action


def test_a_cache_path_that_is_a_file_is_named(unbundled, monkeypatch):
    taken = unbundled / "taken"
    taken.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(taken))
    with pytest.raises(NotWritable, match="taken"):
        agent_library.library_path()


def test_other_machines_are_refused(monkeypatch):
    real = os.uname()
    other = os.uname_result((*real[:4], "riscv64"))
    monkeypatch.setattr(os, "uname", lambda: other)
    with pytest.raises(Unsupported, match="riscv64"):
        agent_library.library_path()


def test_orders_are_whole_frames():
    order = requests.burst(4, 1_500_000_000)
    size, kind, flags, _ = HEADER.unpack_from(order)
    assert (size, kind, flags, len(order)) == (24, requests.CONTROL_KIND, 0, 40)
    assert struct.unpack_from("<IIqq", order, 16) == (requests.Op.BURST, 0, 4, 1_500_000_000)
    assert struct.unpack_from("<II", requests.detach(), 16) == (4, 0)


def test_the_sources_speak_the_wire_of_this_package():
    """The numbers of `wire.h` are those of `wire.py`."""
    from collectors.protocol import frames as wire

    text = (agent_library.SOURCE_DIR / "wire.h").read_text()
    names = "HELLO NAMES DEVICE KERNELS COPIES CALLS MARKS STATUS END OBSERVED LOSS".split()
    for name in names:
        assert f"WIRE_{name} = {int(wire.Kind[name])}," in text
    assert f"#define WIRE_VERSION {wire.WIRE_VERSION}\n" in text
    for op in requests.Op:
        assert f"OP_{op.name} = {int(op)}" in text
    order = [line.strip(" ,") for line in text.split("enum call_class {")[1].split("}")[0].split()]
    assert [f"CALL_{one.name}" for one in vocabulary.CallClass] == [o for o in order if o]
