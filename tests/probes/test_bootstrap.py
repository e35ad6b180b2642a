import subprocess
import sys
from pathlib import Path

import pytest

from collectors import vocabulary
from collectors.attach.bootstrap import PAYLOAD_LIMIT_BYTES, REFUSED_SUFFIX, payload
from collectors.protocol import frames as wire

from .conftest import AGENT, clean_environment, other_python

TRAIN = """
import sys, time
before = set(globals()) | set("before text PyRun pending end i file old".split())
with open(sys.argv[1], "rb") as file: text = file.read()
import ctypes
pending = ctypes.pythonapi.Py_AddPendingCall
pending.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
PyRun = ctypes.cast(ctypes.pythonapi.PyRun_SimpleString, ctypes.c_void_p)
before.add("ctypes")
for i in range(2):
    assert pending(PyRun, text) == 0
end = time.monotonic() + 5
old = sys.version_info < (3, 9)
while not ("_brrrtop_agent.entry" in sys.modules or old) and time.monotonic() < end:
    time.sleep(.01)
time.sleep(.4)
print(sorted(set(globals()) - before), "collectors" in sys.modules, __name__)
"""


def inject(
    tmp_path,
    library: Path,
    python: str = sys.executable,
    flags: tuple[str, ...] = (),
    socket: str = "s",
) -> tuple[str, str, str]:
    """Runs the payload from a pending call in a child; its output, the log, any refusal."""
    (tmp_path / "train.py").write_text(TRAIN)
    text = payload(str(AGENT), str(library), str(tmp_path / socket), "flush_ms=40")
    (tmp_path / "payload").write_text(text)
    log = tmp_path / "log"
    done = subprocess.run(
        [python, *flags, "train.py", "payload"],
        cwd=tmp_path,
        env=clean_environment(BRRRTOP_TEST_LOG=str(log), PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    refused = tmp_path / (socket + REFUSED_SUFFIX)
    return (
        done.stdout.strip(),
        log.read_text() if log.exists() else "",
        str(refused.readlink()) if refused.is_symlink() else "",
    )


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_the_agent_starts_once_and_leaves_no_name_behind(version, tmp_path, library):
    out, log, refused = inject(tmp_path, library, other_python(version))
    assert out == "[] False __main__" and refused == ""
    lines = log.splitlines()
    assert [line.split()[0] for line in lines] == ["start", "stop"], "one start, and a stop at exit"
    assert "|flush_ms=40|" in lines[0] and '"wire": 1' in lines[0]


@pytest.mark.parametrize("flags", [("-I",), ("-S",), ("-E", "-s"), ("-B",)])
def test_interpreter_flags_do_not_matter(flags, tmp_path, library):
    out, log, _ = inject(tmp_path, library, flags=flags)
    assert out == "[] False __main__" and log.startswith("start ")


def test_a_hostile_collectors_folder_is_not_even_imported(tmp_path, library):
    for package in ("collectors", "brrrtop", "_brrrtop_agent"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('hostile')")
    out, log, _ = inject(tmp_path, library)
    assert out == "[] False __main__" and log.startswith("start ")


def test_python_3_8_is_refused_with_a_sentence(tmp_path, library):
    out, log, refused = inject(tmp_path, library, other_python("3.8"))
    assert out == "[] False __main__" and log == ""
    assert refused == "ImportError: Python 3.8 is too old: brrrtop enters 3.9 and newer"


def test_a_library_that_refuses_or_is_missing_is_reported(tmp_path, library):
    assert inject(tmp_path, library, socket="refuse-me")[2] == "the directory cannot be written"
    assert "cannot be used" in inject(tmp_path, tmp_path / "none.so", socket="t")[2]


def test_ctrl_c_during_the_payload_reaches_the_trainer(tmp_path):
    text = payload("/a", "/b", "/c").replace("def boot", "raise KeyboardInterrupt\\ndef boot", 1)
    (tmp_path / "t.py").write_text(
        f"import time\ntry:\n    exec({text!r})\n    time.sleep(600)\n"
        "except KeyboardInterrupt: print('mine')\n"
    )
    command = [sys.executable, tmp_path / "t.py"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert out.stdout == "mine\n"


def test_the_payload_is_small_and_says_when_it_cannot_be():
    text = payload("/usr/lib/a" * 10, "/usr/lib/b" * 10, "/tmp/c" * 10)
    assert len(text.encode()) <= PAYLOAD_LIMIT_BYTES
    assert "'" in payload("/it's", '/a "quoted" \\ folder/ü', "/c")
    with pytest.raises(ValueError, match="longer than"):
        payload("/a" * 1000, "/b", "/c")


def test_the_numbers_of_the_agent_are_those_of_the_wire():
    from collectors.agent import facts
    from collectors.agent import library as native

    assert facts.WIRE == wire.WIRE_VERSION
    for kind in ("HELLO", "DEVICE", "STATUS"):
        assert getattr(native, kind) == wire.Kind[kind]
    for name in "INPUT COMPILE GC CHECKPOINT ALLOCATOR LOGGING EVALUATION OPTIMIZER STACK".split():
        assert getattr(native, name) == vocabulary.MarkClass[name]


def test_the_agent_is_imported_piece_by_piece_and_leaves_no_piece_out():
    """A piece that another one imports first is compiled together with it, at a stretch."""
    code = f"""
import sys, types
package = types.ModuleType("a"); package.__path__ = [{str(AGENT)!r}]; sys.modules["a"] = package
from a import loading
came = []
class Watch:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.startswith("a."): came.append(name[2:])
sys.meta_path.insert(0, Watch)
loading.load()
print(came == list(loading._PIECES), *came)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    in_order, *came = done.stdout.split()
    paths = [file.relative_to(AGENT).with_suffix("") for file in AGENT.rglob("*.py")]
    there = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    there -= {"__init__", "loading"}
    assert in_order == "True" and set(came) == there
