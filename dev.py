"""Sets everything up and starts it with nothing but Python: `python3 dev.py demo`, `… test`.

    python3 dev.py demo [SCENARIO …]   brrrtop's demo (any other brrrtop verb works as well)
    python3 dev.py test [PYTEST …]     linters, types, import contracts and all tests;
                                       with arguments only pytest, with those arguments
    python3 dev.py fuzz [OPTION …]     half a minute of broken input into all that reads
    python3 dev.py audit               known faults in what brrrtop needs, and whether each
                                       supported Python finds wheels of all of it; asks PyPI
    python3 dev.py wheels [FOLDER]     the sources and a wheel for each machine, for any Linux with
                                       glibc 2.17, into dist/ or FOLDER

Each makes its own environment under `.venvs/` at first use and again when the build changes.
Nothing outside this folder is touched. Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parent
ENVIRONMENTS = ROOT / ".venvs"
OLDEST, NEWEST = (3, 10), (3, 14)
TORCH = "torch==2.13.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CONSTRAINTS = ROOT / "constraints.txt"
AUDITOR = "pip-audit>=2.7"
AUDIT_LIMIT_S = 60
MACHINES = ("x86_64", "aarch64")
FUZZ = ROOT / "tests" / "fuzz" / "fuzz.py"
FUZZ_LIMIT_S = 120
PIP_ZIPAPP = "https://bootstrap.pypa.io/pip/pip.pyz"
CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("lint-imports", "--no-logo"),
)
ON_THE_CLOCK = ("tests/agent", "tests/attach", "tests/live", "tests/probes")
"""Their trainers, waits and deadlines are real: three at a time, and they mostly wait."""
IN_TIME = ("tests/agent/test_world.py",)
"""What the agent does there depends on how soon the trainer gets a core: nothing beside but what is nice."""
COMPILED = ("pytest", "-qqq", "--collect-only")
"""Compiles all tests and what they import, which else each of six workers does at the same time."""
PYTEST = ("pytest", "-q", "--durations=10")
IN_WORKERS = (*PYTEST, "--dist", "loadfile", "--no-loadscope-reorder", "-n")
"""A file a worker, in the order of tests/conftest.py; by itself xdist puts few tests last, however long."""
WAITING = (*IN_WORKERS, "3", *ON_THE_CLOCK, *(f"--ignore={file}" for file in IN_TIME))
PROMPT = (*PYTEST, *IN_TIME)
NO_CLOCK = (*IN_WORKERS, "3", *(f"--ignore={folder}" for folder in ON_THE_CLOCK))
"""More workers than a small machine has cores: some wait for programs that they start."""
FAILURES = {WAITING: "failed-on-the-clock", PROMPT: "failed-in-time", NO_CLOCK: "failed-elsewhere"}
"""Where each run keeps which of its tests failed."""
TYPES = ("mypy", *(("--cache-dir", os.devnull) if os.environ.get("CI") else ()))
"""A checkout that is used once needs no memory of what was checked: a sixth of the time."""
MOST_AGAIN = 5
"""So many tests that failed beside others may be tried once more, alone: more are no accident."""
PATIENT = ("nice", "-n", "15")
"""What takes only the cores that those on the clock leave."""


def main(argv: list[str]) -> int:
    """Runs `demo`, `test`, `fuzz`, `audit`, `wheels` or a brrrtop verb; returns its exit code."""
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(__doc__)
        return 0 if argv else 2
    suit_python(argv)
    os.chdir(ROOT)
    try:
        own = {"audit": audit, "fuzz": fuzz, "test": test, "wheels": wheels}
        return own[argv[0]](argv[1:]) if argv[0] in own else start(argv)
    except KeyboardInterrupt:
        return 130


def suit_python(argv: list[str]) -> None:
    """Goes on in a Python that fits, or says which ones do."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        other = shutil.which(f"python3.{minor}")
        if other and subprocess.call([other, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            os.execv(other, [other, str(Path(__file__).resolve()), *argv])
    fail(
        f"this is Python {sys.version.split()[0]}; brrrtop needs 3.{OLDEST[1]} to 3.{NEWEST[1]}",
        "install one of them, e.g. `uv python install 3.12` or your system's package",
    )


def start(argv: list[str]) -> int:
    """brrrtop with `argv`, from an environment with what it needs to run."""
    folder = environment("run", extra="")
    program = str(folder / "bin" / "brrrtop")
    sys.stdout.flush()
    # What brrrtop says to type again must work in a shell without this environment.
    os.execve(program, [program, *argv], {**os.environ, "BRRRTOP_COMMAND": "python3 dev.py"})


def test(pytest_arguments: list[str]) -> int:
    """All checks, or only pytest when it is given arguments. The exit code of the first failure."""
    folder = test_environment()
    if pytest_arguments:
        return subprocess.call([folder / "pytest", *pytest_arguments], env=unhindered())
    codes = beside_each_other(folder)
    codes |= {check: second_try(folder, check, codes[check]) for check in FAILURES}
    failed = next(filter(None, codes.values()), 0)
    say("something failed: see above" if failed else "everything passed")
    return failed


def beside_each_other(folder: Path) -> dict[tuple[str, ...], int]:
    """Exit codes of the checks and tests that are shown as they run, and of those shown at the end."""
    with ExitStack() as stack:
        working = {TYPES: stack.enter_context(patiently(folder, TYPES))}
        codes: dict[tuple[str, ...], int] = {c: run(folder, c) for c in (*CHECKS, COMPILED)}
        working[NO_CLOCK] = stack.enter_context(patiently(folder, remembering(NO_CLOCK)))
        codes |= {check: run(folder, remembering(check)) for check in (WAITING, PROMPT)}
        for check, (process, output) in working.items():
            codes[check] = process.wait()
            say(" ".join(check))
            output.seek(0)
            print(output.read(), end="", flush=True)
    return codes


def remembering(check: tuple[str, ...]) -> tuple[str, ...]:
    """The tests, with pytest's memory of failed ones in an empty folder of their own."""
    folder = ENVIRONMENTS / FAILURES[check]
    shutil.rmtree(folder, ignore_errors=True)
    return (*check, "-o", f"cache_dir={folder}")


def second_try(folder: Path, check: tuple[str, ...], code: int) -> int:
    """The exit code, once the few tests that failed beside others have run again with nothing beside.

    Real trainers, deadlines and terminals share two cores with a type checker there: what passes alone
    was short of a core. Both runs are shown.
    """
    memory = ENVIRONMENTS / FAILURES[check] / "v" / "cache" / "lastfailed"
    if code != 1 or not memory.is_file():
        return code
    failed = list(json.loads(memory.read_text()))
    if len(failed) > MOST_AGAIN:
        return code
    say(f"again, alone: {len(failed)} that failed")
    return subprocess.call([folder / "pytest", "-q", *failed], env=unhindered())


@contextmanager
def patiently(
    folder: Path, check: tuple[str, ...]
) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A check that runs on what others leave, and its output; it ends with the block."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        command = [*PATIENT, str(folder / check[0]), *check[1:]]
        say(f"beside: {' '.join(check)}")
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, text=True, env=unhindered()
        )
        try:
            yield process, output
        finally:
            process.terminate()
            process.wait()


def run(folder: Path, check: tuple[str, ...]) -> int:
    say(" ".join(check))
    return subprocess.call([folder / check[0], *check[1:]], env=unhindered())


def unhindered() -> dict[str, str]:
    """Our environment, in which the many programs that tests start keep what they compile."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def test_environment() -> Path:
    """Where the programs are that check, made ready."""
    if not (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")):
        fail(
            "the tests build C libraries that stand in for NVIDIA's, and there is no C compiler",
            "`apt-get install gcc libc6-dev` (Debian, Ubuntu)",
        )
    return environment("test", extra="[test]", torch=True) / "bin"


def fuzz(options: list[str]) -> int:
    """Broken input for everything that reads, for half a minute on every core or as the options say."""
    if not FUZZ.is_file():
        say(f"nothing fuzzed: {FUZZ.relative_to(ROOT)} is missing")
        return 1
    module = ".".join(FUZZ.relative_to(ROOT).with_suffix("").parts)
    command = [str(test_environment() / "python"), "-m", module, *options]
    limit_s = None if options else FUZZ_LIMIT_S
    say(f"python -m {module} {' '.join(options)}")
    try:
        return subprocess.run(command, timeout=limit_s, env=unhindered(), check=False).returncode
    except subprocess.TimeoutExpired:
        say(f"the fuzzing did not end within {limit_s} s")
        return 1


def wheels(folder: list[str]) -> int:
    """Source distribution and wheels of all machines, by a compiler that knows each glibc."""
    target = Path(folder[0] if folder else "dist").resolve()
    make(ENVIRONMENTS / "wheels")
    python = str(ENVIRONMENTS / "wheels" / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    install(
        pip, ["build", "hatchling>=1.27", "msgspec>=0.19", "ziglang>=0.13"], "what builds wheels"
    )
    build = [python, "-m", "build", "--no-isolation", "--outdir", str(target)]
    codes = [subprocess.call([*build, "--sdist"])]
    for machine in MACHINES:
        compiler = f"{python} -m ziglang cc -target {machine}-linux-gnu.2.17"
        ours = {**os.environ, "BRRRTOP_MACHINE": machine, "CC": compiler}
        codes.append(subprocess.call([*build, "--wheel"], env=ours))
    return max(codes)


def audit(_: list[str]) -> int:
    """Known faults in all that an installation brings along, and wheels for each Python.

    Returns:
        0: none is known, or nobody could be asked, which is said; 1: a fault, or a wheel is missing.
    """
    folder = ENVIRONMENTS / "audit"
    make(folder)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    pythons = [f"3.{n}" for n in range(OLDEST[1], NEWEST[1] + 1)]
    with ThreadPoolExecutor() as pool:
        plans = dict(zip(pythons, pool.map(lambda one: resolved(pip, one), pythons), strict=True))
    without = [python for python, plan in plans.items() if not plan]
    if len(without) == len(plans):
        say("not audited: the package index does not answer, or has none of what brrrtop needs")
        return 0
    if without:
        say(f"no wheels of all that brrrtop needs for Python {', '.join(without)}")
    if not install(pip, [AUDITOR], "pip-audit", needed=False):
        say("not audited: pip-audit cannot be installed here")
        return 1 if without else 0
    faults = known_faults(str(folder / "bin" / "pip-audit"), {*plans.values()} - {frozenset()})
    return 1 if faults or without else 0


def resolved(pip: list[str], python: str) -> frozenset[str]:
    """`name==version` of all that pip would install for that Python, from wheels alone."""
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    needs = re.findall(r'"([^"]+)"', listed[1] if listed else "")
    only = ["--only-binary", ":all:", "--python-version", python, "--target", "unused"]
    answer = output([*pip, "install", "--quiet", "--dry-run", "--report", "-", *only, *needs])
    plan = json.loads(answer) if answer else {"install": []}
    result = (one["metadata"] for one in plan["install"])
    return frozenset(f"{one['name']}=={one['version']}" for one in result)


def known_faults(auditor: str, plans: set[frozenset[str]]) -> bool:
    """Says which of these versions have published faults, and which could not be asked about."""
    rows: dict[tuple[str, str], list[str] | None] = {}
    for plan in plans:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
            listed.write("\n".join(sorted(plan)))
            listed.flush()
            options = [
                "--format",
                "json",
                "--progress-spinner",
                "off",
                "--no-deps",
                "--disable-pip",
            ]
            answer = output([auditor, *options, "-r", listed.name])
        for one in json.loads(answer)["dependencies"] if answer else ():
            # What the database does not know has a reason in place of a version.
            faults = None if "skip_reason" in one else [fault["id"] for fault in one["vulns"]]
            rows[one["name"], one.get("version", "")] = faults
    if not answered(rows):
        say("not audited: the advisory database cannot be reached from here")
        return False
    for (name, version), faults in sorted(rows.items()):
        if faults is None:
            say(f"not audited: {name}, which the advisory database does not know")
        elif faults:
            say(f"known faults in {name} {version}: {', '.join(faults)}")
    say(f"{answered(rows)} versions audited")
    return any(rows.values())


def answered(rows: dict[tuple[str, str], list[str] | None]) -> int:
    return sum(faults is not None for faults in rows.values())


def output(command: list[str]) -> str:
    """What a command printed; nothing when it could not be run, failed early or took too long."""
    try:
        quiet = subprocess.DEVNULL
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=quiet, timeout=AUDIT_LIMIT_S, text=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.stdout.lstrip().startswith("{") else ""


def environment(name: str, extra: str, torch: bool = False) -> Path:
    """The folder of a ready environment; makes it, or brings it up to date, where needed."""
    folder = ENVIRONMENTS / name
    wanted = stamp(extra, torch)
    mark = folder / "brrrtop.stamp"
    if mark.is_file() and mark.read_text() == wanted:
        return folder
    began = time.monotonic()
    say(f"preparing {folder.relative_to(ROOT)} (once; a minute or two)")
    mark.unlink(missing_ok=True)
    make(folder)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    wanted_exactly = ["--constraint", str(CONSTRAINTS)]
    with ThreadPoolExecutor(1) as beside:
        placed = beside.submit(torch_alone, pip) if torch else None
        install(pip, ["-e", f".{extra}", *wanted_exactly], "brrrtop and what it needs")
    if placed is not None and not (placed.result() and complete_torch(pip)):
        say("no torch: the tests that train with it will be skipped")
    mark.write_text(wanted)
    say(f"ready after {time.monotonic() - began:.0f} s")
    return folder


def stamp(extra: str, torch: bool) -> str:
    """Changes when the environment must be made up to date: interpreter, requirements, native code."""
    digest = hashlib.sha256(f"{sys.version}{sys.executable}{ROOT}{extra}{torch}".encode())
    native = sorted((ROOT / "collectors" / "agent" / "native").glob("*.[ch]"))
    ours = (ROOT / "pyproject.toml", CONSTRAINTS, ROOT / "hatch_build.py", Path(__file__))
    for path in (*ours, *native):
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def make(folder: Path) -> None:
    """An environment with pip, by the first way that works here (Debian splits venv from Python)."""
    python = folder / "bin" / "python"
    ours = f"import pip, sys; sys.exit(sys.version != {sys.version!r})"
    if python.exists() and works([str(python), "-c", ours]):
        return
    shutil.rmtree(folder, ignore_errors=True)
    if works([sys.executable, "-m", "venv", str(folder)]):
        return
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv")
    if uv and works([uv, "venv", "--seed", "--python", sys.executable, str(folder)]):
        return
    if works([sys.executable, "-m", "virtualenv", str(folder)]):
        return
    if works([sys.executable, "-m", "venv", "--without-pip", str(folder)]):
        host_pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "pip"]
        if works(host_pip) or fetched_pip(python):
            return
    shutil.rmtree(folder, ignore_errors=True)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    fail(
        f"{sys.executable} cannot make an environment with pip, and none could be fetched",
        f"`apt-get install python{version}-venv` (Debian, Ubuntu), or install uv",
    )


def fetched_pip(python: Path) -> bool:
    """Installs pip with PyPA's zip application; False where that cannot be had."""
    from urllib.request import urlopen

    zipapp = python.parent.parent / "pip.pyz"
    say(f"no ensurepip in this Python: fetching pip from {PIP_ZIPAPP}")
    try:
        with urlopen(PIP_ZIPAPP, timeout=60) as answer:
            zipapp.write_bytes(answer.read())
    except OSError as fault:
        say(f"that failed: {fault}")
        return False
    return works([str(python), str(zipapp), "install", "pip"])


def torch_alone(pip: list[str]) -> bool:
    """Installs torch without what it needs, where it comes without gigabytes of CUDA.

    It shares no file with anything else, so it may come while all others do.
    """
    plan = subprocess.run(
        [*pip, "install", "--dry-run", "--quiet", "--report", "-", TORCH],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    light = plan.returncode == 0 and b"nvidia-" not in plan.stdout
    source = [TORCH] if light else [TORCH, "--index-url", TORCH_CPU_INDEX]
    only = ["--no-deps", "--no-compile", *source]
    return install(pip, only, "torch for the CPU, for tests only", needed=False)


def complete_torch(pip: list[str]) -> bool:
    """Installs what torch needs, and compiles the part of it that an import reads: a third."""
    if not install(pip, ["--no-compile", TORCH], "what torch needs", needed=False):
        return False
    compiles = [pip[0], "-c", "import torch, torch._dynamo"]
    return subprocess.call(compiles, env=unhindered()) == 0


def install(pip: list[str], arguments: list[str], what: str, needed: bool = True) -> bool:
    """Runs pip, showing what it downloads; on failure shows all it said.

    Returns:
        Whether it worked; when `needed`, failure ends the program instead.
    """
    say(f"installing {what}")
    command = [*pip, "install", "--no-input", "--progress-bar", "off", *arguments]
    texts: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        for line in running.stdout or ():
            texts.append(line)
            if line.lstrip().startswith(("Downloading", "Building", "Installing")):
                print(f"    {line.strip()[:110]}", file=sys.stderr, flush=True)
    if running.returncode and needed:
        sys.stderr.write("".join(texts[-40:]))
        fail(f"pip could not install {what}", "see above; is the package index reachable?")
    return running.returncode == 0


def works(command: list[str]) -> bool:
    quiet = subprocess.DEVNULL
    return subprocess.call(command, stdout=quiet, stderr=quiet, stdin=quiet) == 0


def say(sentence: str) -> None:
    print(f"dev: {sentence}", file=sys.stderr, flush=True)


def fail(message: str, action: str) -> NoReturn:
    sys.exit(f"dev: {message}\n  {action}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
