"""The agent and the stand-in CUPTI and CUDA, built once; trainers and monitors that always end."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors import native
from tests.agent.rig import Monitor, Trainer

FLAGS = ("-std=c11", "-O1", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror", "-shared")
FAKES = Path(__file__).resolve().parents[1] / "fakes" / "cupti"
NVML = FAKES.parent / "nvml" / "fake_nvml.c"


def build(target: Path, source: Path, *flags: str) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None
    soname = f"-Wl,-soname,{target.name}"
    done = subprocess.run(
        [compiler, *FLAGS, *flags, soname, "-o", str(target), str(source), "-lpthread"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


def build_all(folder: Path, *flags: str) -> dict[str, Path]:
    """By role: the agent, a libcupti, an older one, one that looks like Triton's, a libcuda,
    a libtorch that needs the second libcupti."""
    folder.mkdir(exist_ok=True)
    cupti, cuda = FAKES / "fake_cupti.c", FAKES / "fake_cuda.c"
    torch = (*flags, "-Wl,--no-as-needed", str(folder / "second" / "libcupti.so.12"))
    built = {
        "agent": native.compile_library(folder / native.LIBRARY_NAME, ("-Werror", *flags)),
        "cupti": build(folder / "libcupti.so.13", cupti, *flags),
        "second": build(folder / "second" / "libcupti.so.12", cupti, *flags),
        "older": build(folder / "older" / "libcupti.so.12", cupti, "-DOLDER_THAN_12_6", *flags),
        "triton": build(folder / "triton" / "libcupti.so.2025.1.1", cupti, *flags),
        "cuda": build(folder / "libcuda.so.1", cuda, *flags),
        "nvml": build(folder / "nvml" / "libnvidia-ml.so.1", NVML, *flags),
        "faults": build(
            folder / "libfaults.so", FAKES.parent / "faults" / "faults.c", *flags, "-ldl"
        ),
        "sanitizer": build(folder / "libsanitizer-collection.so", cuda, *flags),
    }
    built["torch"] = build(folder / "libtorch_cpu.so", cuda, *torch)
    return built


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if native.compiler() is None:
        pytest.skip("no C compiler here")
    return build_all(tmp_path_factory.mktemp("agent"))


@pytest.fixture
def trainer(built: dict[str, Path], tmp_path: Path) -> Iterator[Trainer]:
    """A trainer in which nothing is loaded yet."""
    one = Trainer(built, tmp_path)
    yield one
    one.close()


@pytest.fixture
def connect() -> Iterator[Callable[[Trainer], Monitor]]:
    made: list[Monitor] = []

    def connected(trainer: Trainer) -> Monitor:
        made.append(Monitor(trainer.socket_path))
        return made[-1]

    yield connected
    for monitor in made:
        monitor.close()
