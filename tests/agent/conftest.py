"""The agent and the stand-in CUPTI and CUDA, built once; trainers and monitors that always end."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.attach import agent_library
from tests import shared, waits
from tests.agent.rig import Monitor, Trainer

FLAGS = ("-std=c11", "-O1", "-g", "-fPIC", "-Wall", "-Wextra", "-Werror", "-shared")
FAKES = Path(__file__).resolve().parents[1] / "fakes" / "cupti"
CUPTI, CUDA = FAKES / "fake_cupti.c", FAKES / "fake_cuda.c"
NVML = FAKES.parent / "nvml" / "fake_nvml.c"
SOURCES = (
    *sorted(agent_library.library().sources.glob("*.[ch]")),
    *sorted(FAKES.parent.rglob("*.[ch]")),
    Path(agent_library.__file__),
    Path(__file__),
)
"""What the agent and its stand-ins are made of, the code that compiles them included."""


def build(target: Path, source: Path, *flags: str) -> Path:
    """The library, compiled unless it is there."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None
    soname = f"-Wl,-soname,{target.name}"
    made = target.with_name(f"{target.name}.part")
    done = subprocess.run(
        [compiler, *FLAGS, *flags, soname, "-o", str(made), str(source), "-lpthread"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made.replace(target)
    return target


def build_few(folder: Path, *flags: str) -> dict[str, Path]:
    """By role: the agent, a libcupti and a libcuda."""
    folder.mkdir(exist_ok=True)
    agent = folder / agent_library.LIBRARY_NAME
    if not agent.exists():
        agent_library.library().compile(agent, ("-Werror", *flags))
    return {
        "agent": agent,
        "cupti": build(folder / "libcupti.so.13", CUPTI, *flags),
        "cuda": build(folder / "libcuda.so.1", CUDA, *flags),
        "launchers": build(folder / "liblaunchers.so", FAKES / "launchers.c", *flags),
        "waits": build(folder / "libwaits.so", waits.SOURCE, "-lrt", *flags),
    }


def build_all(folder: Path, *flags: str) -> dict[str, Path]:
    """Besides a second libcupti, an older one, one that looks like Triton's, a libtorch that needs
    the second, another tool of NVIDIA's, an NVML, and what makes calls fail."""
    torch = (*flags, "-Wl,--no-as-needed", str(folder / "second" / "libcupti.so.12"))
    built = build_few(folder, *flags) | {
        "second": build(folder / "second" / "libcupti.so.12", CUPTI, *flags),
        "older": build(folder / "older" / "libcupti.so.12", CUPTI, "-DOLDER_THAN_12_6", *flags),
        "triton": build(folder / "triton" / "libcupti.so.2025.1.1", CUPTI, *flags),
        "nvml": build(folder / "nvml" / "libnvidia-ml.so.1", NVML, *flags),
        "faults": build(
            folder / "libfaults.so", FAKES.parent / "faults" / "faults.c", *flags, "-ldl"
        ),
        "sanitizer": build(folder / "libsanitizer-collection.so", CUDA, *flags),
    }
    built["torch"] = build(folder / "libtorch_cpu.so", CUDA, *torch)
    return built


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> dict[str, Path]:
    if agent_library.compiler() is None:
        pytest.skip("no C compiler here")
    with shared.kept_folder(tmp_path_factory, "agent", *SOURCES) as folder:
        return build_all(folder)


@pytest.fixture
def trainer(built: dict[str, Path], tmp_path) -> Iterator[Trainer]:
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
