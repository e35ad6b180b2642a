"""The libcupti that belongs to cupti-python is loaded, whatever else is installed."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from collectors.gpu.counters.cupti_python import candidates, load_cupti


def install(site: Path, name: str, version: str, file: str | None = None) -> Path:
    """A distribution as pip leaves it; returns the path of its one file."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    path = site / (file or "empty.py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not a library")
    (info / "RECORD").write_text(f"{path.relative_to(site)},,\n")
    return path


LIB = "nvidia/cu13/lib/libcupti.so.13"


@pytest.fixture
def torchs(tmp_path) -> Path:
    """A site with torch's libcupti 13.0."""
    install(tmp_path / "torch", "nvidia-cuda-cupti", "13.0.85", LIB)
    return tmp_path / "torch"


def test_the_first_on_the_path_wins_among_equals(tmp_path):
    a = install(tmp_path / "a", "nvidia-cuda-cupti", "13.4.92", LIB)
    b = install(tmp_path / "b", "nvidia-cuda-cupti", "13.5.25", LIB)
    install(tmp_path / "b", "cupti-python", "13.4.0")
    assert candidates([str(tmp_path / "a"), str(tmp_path / "b")]) == [a, b]
    assert candidates([str(tmp_path / "b"), str(tmp_path / "a")]) == [b, a]


def test_one_older_than_the_binding_comes_last_though_first_on_the_path(tmp_path, torchs):
    ours = install(tmp_path / "ours", "nvidia-cuda-cupti", "13.4.92", LIB)
    install(tmp_path / "ours", "cupti-python", "13.4.0")
    assert candidates([str(torchs), str(tmp_path / "ours")]) == [ours, torchs / LIB]


def test_another_major_version_does_not_belong_to_the_binding(tmp_path):
    other = install(tmp_path / "a", "nvidia-cuda-cupti", "14.0.1", "lib/libcupti.so.14")
    ours = install(tmp_path / "b", "nvidia-cuda-cupti", "13.4.92", LIB)
    install(tmp_path / "b", "cupti-python", "13.4.0")
    assert candidates([str(tmp_path / "a"), str(tmp_path / "b")]) == [ours, other]


def test_without_the_binding_the_path_decides(tmp_path, torchs):
    ours = install(tmp_path / "ours", "nvidia-cuda-cupti", "13.4.92", LIB)
    assert candidates([str(torchs), str(tmp_path / "ours")]) == [torchs / LIB, ours]


def test_files_that_are_listed_but_gone_and_other_files_are_passed_over(tmp_path):
    install(tmp_path, "nvidia-cuda-cupti", "13.4.92", LIB).unlink()
    install(tmp_path, "nvidia_cuda.cupti", "13.5.0", "nvidia/cu13/lib/libcheckpoint.so")
    assert candidates([str(tmp_path)]) == []


def test_what_does_not_load_is_no_failure(torchs):
    assert load_cupti([str(torchs)]) is None
    assert load_cupti([]) is None


def test_broken_metadata_is_no_failure(torchs):
    info = next(torchs.glob("*.dist-info"))
    (info / "METADATA").write_bytes(b"\xff\xfe")
    (info / "RECORD").write_bytes(b"\xff\xfe,,,,")
    assert load_cupti([str(torchs)]) is None


def test_the_loaded_library_is_the_one_every_later_look_up_finds(tmp_path):
    path = install(tmp_path, "nvidia-cuda-cupti", "13.4.92", "lib/libcupti.so.913")
    source = tmp_path / "empty.c"
    source.write_text("int brrr_test_marker(void) { return 913; }\n")
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcupti.so.913", "-o", str(path)]
    subprocess.run([*command, str(source)], check=True, timeout=60)
    assert load_cupti([str(tmp_path)]) == path
    assert ctypes.CDLL("libcupti.so.913").brrr_test_marker() == 913
    assert ctypes.CDLL(None).brrr_test_marker() == 913
