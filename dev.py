"""Sets everything up and starts it with nothing but Python: `python3 dev.py demo`, `… test`.

    python3 dev.py demo [SCENARIO …]   brrrtop's demo (any other brrrtop verb works as well)
    python3 dev.py test [PYTEST …]     linters, types, import contracts and all tests;
                                       with arguments only pytest, with those arguments
    python3 dev.py fuzz [OPTION …]     half a minute of broken input into all that reads
    python3 dev.py mutate [OPTION …]   changes to the code that protects, which tests must notice
    python3 dev.py counts              lines and modules of the product, the agent and the tests
    python3 dev.py wheels [FOLDER]     the sources and a wheel for each machine, for any Linux with
                                       glibc 2.17, into dist/ or FOLDER

Each makes its own environment under `.venvs/` at first use and again when the build changes.
Nothing outside this folder is touched. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NoReturn
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent
ENVIRONMENTS = ROOT / ".venvs"
OLDEST, NEWEST = (3, 10), (3, 14)
CONSTRAINTS = ROOT / "constraints.txt"
TORCH = "torch==2.13.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PIP_ZIPAPP = "https://bootstrap.pypa.io/pip/pip.pyz"
BUILDERS = ("build", "hatchling>=1.27", "msgspec>=0.19", "ziglang>=0.13")
MACHINES = ("x86_64", "aarch64")
FUZZ_LIMIT_S = 120

RUFF, FORMAT = ("ruff", "check", "."), ("ruff", "format", "--check", ".")
CONTRACTS = ("lint-imports", "--no-logo")
TYPES = ("mypy", *(("--cache-dir", os.devnull) if os.environ.get("CI") else ()))
"""A checkout that is used once needs no memory of what was checked: a sixth of the time."""
COMPILED = ("pytest", "-qqq", "--collect-only")
"""Compiles all tests and what they import, which else each worker does at the same time."""
ON_THE_CLOCK = ("tests/agent", "tests/attach", "tests/live", "tests/probes")
"""Their trainers, waits and deadlines are real: three at a time, and they mostly wait."""
IN_TIME = ("tests/agent/test_world.py", "tests/attach/test_injection.py")
"""What the agent does there depends on how soon the trainer gets a core: it runs alone."""
PYTEST = ("pytest", "-q", "--durations=10")
IN_WORKERS = (*PYTEST, "--dist", "loadfile", "--no-loadscope-reorder", "-n", "3")
"""A file a worker, in the order of tests/conftest.py; by itself xdist puts few tests last, however long."""
WAITING = (*IN_WORKERS, *ON_THE_CLOCK, *(f"--ignore={file}" for file in IN_TIME))
NO_CLOCK = (*IN_WORKERS, *(f"--ignore={folder}" for folder in ON_THE_CLOCK))
COUNTED = {
    "product, Python": ("brrrtop/**/*.py", "collectors/**/*.py"),
    "agent, C": ("collectors/agent/native/*.[ch]",),
    "trace scanner, C": ("brrrtop/**/*.[ch]",),
    "tests": ("tests/**/*.py",),
    "benchmarks": ("benchmarks/**/*.py",),
}


def main(argv: list[str]) -> int:
    """Runs one of the commands above, or a brrrtop verb; returns its exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(__doc__)
        return 0 if argv else 2
    use_fitting_python()
    os.chdir(ROOT)
    commands = {"counts": counts, "fuzz": fuzz, "mutate": mutate, "test": test, "wheels": wheels}
    try:
        return commands[argv[0]](argv[1:]) if argv[0] in commands else start(argv)
    except KeyboardInterrupt:
        return 130


def use_fitting_python() -> None:
    """Goes on in a Python that fits, or says which ones do."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        other = shutil.which(f"python3.{minor}")
        if other and works([other, "-c", ""]):
            os.execv(other, [other, str(Path(__file__).resolve()), *sys.argv[1:]])
    fail(
        f"this is Python {sys.version.split()[0]}; brrrtop needs 3.{OLDEST[1]} to 3.{NEWEST[1]}",
        "install one of them, e.g. `uv python install 3.12` or your system's package",
    )


def start(argv: list[str]) -> int:
    """brrrtop with `argv`, from an environment with what it needs to run."""
    program = str(environment("run") / "brrrtop")
    sys.stdout.flush()
    # What brrrtop says to type again must work in a shell without this environment.
    os.execve(program, [program, *argv], {**os.environ, "BRRRTOP_COMMAND": "python3 dev.py"})


def test(pytest_arguments: list[str]) -> int:
    """All checks, or only pytest when it is given arguments. The exit code of the first failure."""
    programs = test_environment()
    if pytest_arguments:
        return run(programs, ("pytest", *pytest_arguments))
    counts([])
    with ExitStack() as stack:
        beside = [stack.enter_context(in_background(programs, TYPES))]
        codes = [run(programs, check) for check in (RUFF, FORMAT, CONTRACTS, COMPILED)]
        beside.append(stack.enter_context(in_background(programs, NO_CLOCK)))
        codes.append(run(programs, WAITING))
        for process, output in beside:
            codes.append(process.wait())
            output.seek(0)
            say(" ".join(map(str, process.args)))  # type: ignore[arg-type]
            print(output.read(), end="", flush=True)
        codes.append(run(programs, (*PYTEST, *IN_TIME)))
    say("something failed: see above" if any(codes) else "everything passed")
    return next(filter(None, codes), 0)


@contextmanager
def in_background(
    programs: Path, check: tuple[str, ...]
) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A check that takes only what others leave of the cores, and its output; it ends with the block."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        say(f"beside: {' '.join(check)}")
        process = subprocess.Popen(
            ["nice", "-n", "15", str(programs / check[0]), *check[1:]],
            stdout=output, stderr=subprocess.STDOUT, text=True, env=own_environ(),
        )  # fmt: skip
        try:
            yield process, output
        finally:
            process.terminate()
            process.wait()


def run(programs: Path, check: tuple[str, ...]) -> int:
    say(" ".join(check))
    return subprocess.call([programs / check[0], *check[1:]], env=own_environ())


def own_environ() -> dict[str, str]:
    """Our environment, in which the many programs that tests start keep what they compile."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def fuzz(options: list[str]) -> int:
    """Broken input for everything that reads, for half a minute on every core or as the options say."""
    command = [str(test_environment() / "python"), "-m", "tests.fuzz.fuzz", *options]
    try:
        limit_s = None if options else FUZZ_LIMIT_S
        return subprocess.run(command, timeout=limit_s, env=own_environ(), check=False).returncode
    except subprocess.TimeoutExpired:
        say(f"the fuzzing did not end within {FUZZ_LIMIT_S} s")
        return 1


def mutate(options: list[str]) -> int:
    """Whether tests notice changes to the code that protects (tests/mutate.py)."""
    command = [str(test_environment() / "python"), "-m", "tests.mutate", *options]
    return subprocess.call(command, env=own_environ())


def counts(_: list[str]) -> int:
    """Prints lines and modules; modules without a line are not counted."""
    for name, patterns in COUNTED.items():
        files = [path for pattern in patterns for path in ROOT.glob(pattern)]
        lines = [path.read_bytes().count(b"\n") for path in files]
        print(f"{name:18}{sum(lines):7,} lines{sum(map(bool, lines)):5} files")
    return 0


def wheels(folder: list[str]) -> int:
    """Source distribution and wheels of all machines, by a compiler that knows each glibc."""
    target = Path(folder[0] if folder else "dist").resolve()
    python = str(made(ENVIRONMENTS / "wheels") / "python")
    pip_install(Path(python), *BUILDERS)
    build = [python, "-m", "build", "--no-isolation", "--outdir", str(target)]
    codes = [subprocess.call([*build, "--sdist"])]
    for machine in MACHINES:
        compiler = f"{python} -m ziglang cc -target {machine}-linux-gnu.2.17"
        ours = {**os.environ, "BRRRTOP_MACHINE": machine, "CC": compiler}
        codes.append(subprocess.call([*build, "--wheel"], env=ours))
    return max(codes)


def test_environment() -> Path:
    """The folder of the programs that check, made ready."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        fail(
            "the tests build C libraries that stand in for NVIDIA's, and there is no C compiler",
            "`apt-get install gcc libc6-dev` (Debian, Ubuntu)",
        )
    return environment("test", extra="[test,docs]", torch=True)


def environment(name: str, extra: str = "", torch: bool = False) -> Path:
    """The programs of a ready environment; makes it, or brings it up to date, where needed."""
    folder = ENVIRONMENTS / name
    stamp, mark = stamp_of(extra, torch), folder / "brrrtop.stamp"
    if mark.is_file() and mark.read_text() == stamp:
        return folder / "bin"
    began = time.monotonic()
    say(f"preparing {folder.relative_to(ROOT)} (once; a minute or two)")
    mark.unlink(missing_ok=True)
    python = made(folder) / "python"
    pip_install(python, "-e", f".{extra}", "--constraint", str(CONSTRAINTS))
    if torch:
        # PyPI's has gigabytes of CUDA with it, except where only a mirror of the CPU's answers.
        plan = [python, "-m", "pip", "install", "--dry-run", "-q", "--report", "-", TORCH]
        cuda = b"nvidia-" in subprocess.run(plan, stdout=subprocess.PIPE).stdout
        source = ("--index-url", TORCH_CPU_INDEX) if cuda else ()
        alone = pip_install(python, "--no-deps", TORCH, *source, needed=False)
        if not (alone and pip_install(python, TORCH, needed=False)):
            say("no torch: the tests that train with it will be skipped")
    mark.write_text(stamp)
    say(f"ready after {time.monotonic() - began:.0f} s")
    return folder / "bin"


def stamp_of(extra: str, torch: bool) -> str:
    """Changes when the environment must be made up to date: interpreter, requirements, native code."""
    digest = hashlib.sha256(f"{sys.version}{sys.executable}{ROOT}{extra}{torch}".encode())
    native = sorted((ROOT / "collectors" / "agent" / "native").glob("*.[ch]"))
    build = (ROOT / "pyproject.toml", CONSTRAINTS, ROOT / "hatch_build.py", Path(__file__))
    for path in (*build, *native):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def made(folder: Path) -> Path:
    """The programs of an environment with pip; it is made where it is not there, or of another Python."""
    python = folder / "bin" / "python"
    fits = f"import pip, sys; sys.exit(sys.version != {sys.version!r})"
    if python.exists() and works([python, "-c", fits]):
        return python.parent
    shutil.rmtree(folder, ignore_errors=True)
    if works([sys.executable, "-m", "venv", folder]) or without_ensurepip(folder):
        return python.parent
    shutil.rmtree(folder, ignore_errors=True)
    fail(
        f"{sys.executable} cannot make an environment with pip, and none could be fetched",
        f"`apt-get install python3.{sys.version_info[1]}-venv` (Debian, Ubuntu)",
    )


def without_ensurepip(folder: Path) -> bool:
    """Makes the environment with PyPA's zip application: Debian splits ensurepip from Python."""
    shutil.rmtree(folder, ignore_errors=True)
    if not works([sys.executable, "-m", "venv", "--without-pip", folder]):
        return False
    say(f"no ensurepip in this Python: fetching pip from {PIP_ZIPAPP}")
    try:
        with urlopen(PIP_ZIPAPP, timeout=60) as answer:
            (folder / "pip.pyz").write_bytes(answer.read())
    except OSError as fault:
        say(f"that failed: {fault}")
        return False
    return works([folder / "bin" / "python", folder / "pip.pyz", "install", "pip"])


def pip_install(python: Path, *arguments: str, needed: bool = True) -> bool:
    """Whether pip installed that; where it is needed, a failure ends the program instead."""
    say(f"installing {' '.join(arguments)}")
    quiet = ("-q", "--no-input", "--disable-pip-version-check", "--progress-bar", "off")
    code = subprocess.call([python, "-m", "pip", "install", *quiet, *arguments])
    if code and needed:
        fail("pip could not install that", "see above; is the package index reachable?")
    return code == 0


def works(command: list[str | Path]) -> bool:
    quiet = subprocess.DEVNULL
    return subprocess.call(command, stdout=quiet, stderr=quiet, stdin=quiet) == 0


def say(sentence: str) -> None:
    print(f"dev: {sentence}", file=sys.stderr, flush=True)


def fail(message: str, action: str) -> NoReturn:
    sys.exit(f"dev: {message}\n  {action}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
