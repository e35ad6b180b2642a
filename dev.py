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
import venv
from pathlib import Path
from typing import NoReturn
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent
OLDEST, NEWEST = (3, 10), (3, 14)
TORCH, TORCH_CPU_INDEX = "torch==2.13.0", "https://download.pytorch.org/whl/cpu"
PIP_ZIPAPP = "https://bootstrap.pypa.io/pip/pip.pyz"
BUILDERS = ("build", "hatchling>=1.27", "msgspec>=0.19", "ziglang>=0.13")
FUZZ_LIMIT_S = 120

TYPES = ("mypy", *(("--cache-dir", os.devnull) if os.environ.get("CI") else ()))
FIRST = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("lint-imports", "--no-logo"),
    ("pytest", "-qqq", "--collect-only"),  # compiles once what each worker else compiles
)
ON_THE_CLOCK = ("tests/agent", "tests/attach", "tests/live", "tests/probes")
"""Their trainers, waits and deadlines are real: three at a time, and they mostly wait."""
IN_TIME = (
    "tests/agent/test_world.py",
    "tests/attach/test_injection.py",
    "tests/trials/test_example.py",
)
"""What is done or measured there depends on how soon a trainer gets a core: it runs alone."""
PYTEST = ("pytest", "-q", "--durations=10")
ALONE = (f"--ignore={file}" for file in IN_TIME)
IN_WORKERS = (*PYTEST, *ALONE, "--dist", "loadfile", "--no-loadscope-reorder", "-n", "3")
"""A file a worker, in the order of tests/conftest.py; xdist by itself puts few tests last."""
WAITING = (*IN_WORKERS, *ON_THE_CLOCK)
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
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        fits = f"3.{OLDEST[1]} to 3.{NEWEST[1]}"
        fail(f"brrrtop needs Python {fits}, this is {sys.version.split()[0]}", "call another one")
    os.chdir(ROOT)
    # The many programs that tests start keep what they compile.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    commands = {"counts": counts, "fuzz": fuzz, "mutate": mutate, "test": test, "wheels": wheels}
    return commands[argv[0]](argv[1:]) if argv[0] in commands else start(argv)


def start(argv: list[str]) -> int:
    """brrrtop with `argv`, from an environment with what it needs to run."""
    program = str(environment("run") / "brrrtop")
    sys.stdout.flush()
    # What brrrtop prints to type again must work in a shell without this environment.
    os.execve(program, [program, *argv], {**os.environ, "BRRRTOP_COMMAND": "python3 dev.py"})


def test(arguments: list[str]) -> int:
    """All checks, or only pytest when it is given arguments; returns the highest exit code."""
    programs = test_environment()
    if arguments:
        return run(programs, "pytest", *arguments)
    counts([])
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        # What nobody waits for takes only what the tests with a clock leave of the cores.
        beside = [run_beside(programs, TYPES, output)]
        codes = [run(programs, *check) for check in FIRST]
        beside.append(run_beside(programs, NO_CLOCK, output))
        codes.append(run(programs, *WAITING))
        codes += [process.wait() for process in beside]
        output.seek(0)
        shutil.copyfileobj(output, sys.stdout)
    codes.append(run(programs, *PYTEST, *IN_TIME))
    log("something failed: see above" if any(codes) else "everything passed")
    return max(map(abs, codes))


def run(programs: Path, *command: str) -> int:
    """Returns the exit code of a program of an environment."""
    log(" ".join(command))
    return subprocess.call([programs / command[0], *command[1:]])


def run_beside(programs: Path, command: tuple[str, ...], output: object) -> subprocess.Popen[str]:
    """Starts a program at the lowest priority that still ends in time."""
    log(f"beside: {' '.join(command)}")
    words = ["nice", "-n", "15", str(programs / command[0]), *command[1:]]
    return subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)  # type: ignore


def fuzz(options: list[str]) -> int:
    """Broken input for everything that reads, for half a minute on every core or as the options say."""
    limit = [] if options else ["timeout", str(FUZZ_LIMIT_S)]
    python = test_environment() / "python"
    return subprocess.call([*limit, python, "-m", "tests.fuzz.fuzz", *options])


def mutate(options: list[str]) -> int:
    """Whether tests notice changes to the code that protects (tests/mutate.py)."""
    return run(test_environment(), "python", "-m", "tests.mutate", *options)


def counts(_: list[str]) -> int:
    """Prints lines and modules; modules without a line are not counted."""
    for name, patterns in COUNTED.items():
        files = [path for pattern in patterns for path in ROOT.glob(pattern)]
        lines = [path.read_bytes().count(b"\n") for path in files]
        print(f"{name:18}{sum(lines):7,} lines{sum(map(bool, lines)):5} files", flush=True)
    return 0


def wheels(folder: list[str]) -> int:
    """Source distribution and wheels of all machines, by a compiler that knows each glibc."""
    target = Path(folder[0] if folder else "dist").resolve()
    python = make(ROOT / ".venvs" / "wheels") / "python"
    pip_install(python, *BUILDERS)
    build = [python, "-m", "build", "--no-isolation", "--outdir", target]
    codes = [subprocess.call([*build, "--sdist"])]
    for machine in ("x86_64", "aarch64"):
        compiler = f"{python} -m ziglang cc -target {machine}-linux-gnu.2.17"
        ours = {**os.environ, "BRRRTOP_MACHINE": machine, "CC": compiler}
        codes.append(subprocess.call([*build, "--wheel"], env=ours))
    return max(codes)


def test_environment() -> Path:
    """The folder of the programs that check, made ready."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        fail(
            "the tests build C libraries, and there is no compiler", "apt-get install gcc libc6-dev"
        )
    return environment("test", "[test,docs]")


def environment(name: str, extra: str = "") -> Path:
    """The programs of a ready environment; makes it, or brings it up to date, where needed."""
    folder = ROOT / ".venvs" / name
    digest = hashlib.sha256(f"{sys.version}{sys.executable}{ROOT}{extra}".encode())
    native = sorted((ROOT / "collectors" / "agent" / "native").glob("*.[ch]"))
    build = ("pyproject.toml", "constraints.txt", "hatch_build.py", "dev.py")
    for path in (*(ROOT / one for one in build), *native):
        digest.update(path.read_bytes())
    mark = folder / "brrrtop.stamp"
    if mark.is_file() and mark.read_text() == digest.hexdigest():
        return folder / "bin"
    log(f"preparing {folder.relative_to(ROOT)} (once; a minute or two)")
    mark.unlink(missing_ok=True)
    python = make(folder) / "python"
    if not pip_install(python, "-e", f".{extra}", "--constraint", "constraints.txt"):
        fail("pip could not install that", "see above; is the package index reachable?")
    if extra:
        # PyPI's has gigabytes of CUDA with it, except where only a mirror of the CPU's answers.
        plan = [python, "-m", "pip", "install", "--dry-run", "-q", "--report", "-", TORCH]
        cuda = b"nvidia-" in subprocess.run(plan, stdout=subprocess.PIPE).stdout
        source = ("--index-url", TORCH_CPU_INDEX) if cuda else ()
        if not (pip_install(python, "--no-deps", TORCH, *source) and pip_install(python, TORCH)):
            log("no torch: the tests that train with it will be skipped")
    mark.write_text(digest.hexdigest())
    return folder / "bin"


def make(folder: Path) -> Path:
    """The programs of an environment with pip; Debian splits ensurepip from Python."""
    python = folder / "bin" / "python"
    fits = f"import pip, sys; sys.exit(sys.version != {sys.version!r})"
    if python.exists() and not subprocess.call([python, "-c", fits], stderr=subprocess.DEVNULL):
        return python.parent
    try:
        venv.create(folder, clear=True, symlinks=True, with_pip=True)
    except (subprocess.CalledProcessError, ImportError):
        log(f"no ensurepip in this Python: fetching pip from {PIP_ZIPAPP}")
        try:
            venv.create(folder, clear=True, symlinks=True)
            with urlopen(PIP_ZIPAPP, timeout=60) as answer:
                (folder / "pip.pyz").write_bytes(answer.read())
            subprocess.check_call([python, folder / "pip.pyz", "install", "-q", "pip"])
        except (OSError, subprocess.CalledProcessError) as fault:
            fail(
                f"no pip to be had: {fault}", f"apt-get install python3.{sys.version_info[1]}-venv"
            )
    return python.parent


def pip_install(python: Path, *arguments: str) -> bool:
    """Whether pip installed that."""
    log(f"installing {' '.join(arguments)}")
    quiet = ("-q", "--no-input", "--disable-pip-version-check", "--progress-bar", "off")
    return not subprocess.call([python, "-m", "pip", "install", *quiet, *arguments])


def fail(message: str, action: str) -> NoReturn:
    sys.exit(f"dev: {message}\n  {action}")


def log(sentence: str) -> None:
    print(f"dev: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
