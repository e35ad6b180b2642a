"""Changes the code that protects, one place at a time, and asks the tests beside it whether they notice.

    python3 dev.py mutate [--each N] [--only PART-OF-A-PATH] [--workers N] [--seed N]

Works in a copy of the checkout. A change that no test notices is written out and fails the command, but for
those of `SURVIVORS`, each with the reason why it may live.
"""

import argparse
import ast
import copy
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 180.0
"""For the tests of one change; what hangs is noticed too."""
GUARDS = {
    "collectors/printable.py": "tests/protocol/test_printable.py",
    "collectors/process/process.py": "tests/cli/test_serve.py -k known_while_it_is_open",
    "collectors/own_files.py": "tests/attach/test_own_files.py tests/attach/test_acting.py tests/attach/test_attach_files.py",
    "collectors/attach/run_folders.py": "tests/attach/test_run_folders.py",
    "collectors/attach/access.py": "tests/attach/test_attach.py tests/attach/test_facts.py",
    "collectors/attach/files.py": "tests/attach/test_attach_files.py",
    "collectors/attach/client.py": "tests/attach/test_client.py",
    "collectors/attach/ptrace/calls.py": "tests/attach/test_threads.py tests/attach/test_injection.py "
    "tests/attach/test_waits.py tests/attach/test_ptrace.py",
    "collectors/attach/ptrace/injection.py": "tests/attach/test_injection.py tests/attach/test_waits.py "
    "tests/attach/test_harmless.py::test_a_trainer_whose_filter_ends_it_at_a_call_without_a_number_lives "
    "tests/attach/test_ptrace.py",
    "collectors/agent/probes/steps.py": "tests/probes/test_steps.py tests/probes/test_loader.py "
    "-k 'hooks_change or scaler or forked or middle'",
    "collectors/agent/probes/neighbours.py": "tests/probes/test_graphs.py",
    "brrrtop/cli/fail_if.py": "tests/cli/test_gate.py",
    "brrrtop/cli/commands/attach.py": "tests/attach/test_facts.py -k successor",
    "brrrtop/cli/in_browser.py": "tests/cli/test_serve.py",
    "brrrtop/scheduling/governor.py": "tests/live/test_governor.py",
}
"""Modules that protect the trainer, root or a reader → the tests that hold them."""
ONLY = {
    "collectors/agent/probes/neighbours.py": tuple(
        "__init__ place clear wake present _capturing _on_capture _on_enter _on_leave _drop _settle".split()
    ),
    "collectors/attach/access.py": (
        "check",
        "_python",
        "debugged",
        "refusal",
        "_other_user",
        "_is_confined",
    ),
    "brrrtop/cli/commands/attach.py": (
        "__init__",
        "find",
        "_fits",
        "_is_trainer",
        "enter",
        "close",
        "_cwd",
        "_rank",
    ),
    "collectors/agent/probes/steps.py": ("_between_steps", "place", "clear"),
    "brrrtop/scheduling/governor.py": ("_earn", "_charge", "_settle", "_plan_pause"),
    "collectors/process/process.py": ("is_loopback", "uid_of_client", "_plain", "_as_listed"),
}
"""Of these modules the functions that refuse, find who follows, change torch's hooks, keep the budget, or know who
asks; of all others every one."""
REHEARSAL = "rehearse"
"""Of which only its warmth is wanted."""
SURVIVORS = {
    "collectors/own_files.py run_as: True → False": "the thread is joined in any case",
    "collectors/own_files.py replace_file: file.flush() → pass": "closing writes it too; a power cut alone tells",
    "collectors/attach/client.py _connect_by_path: os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC → "
    "(os.O_PATH | os.O_DIRECTORY) & os.O_CLOEXEC": "root may list any folder; one that our user may only enter is rare",
    "collectors/attach/run_folders.py sweep: True → False": "a folder that goes at that moment: a race alone tells",
    "collectors/attach/run_folders.py make: True → False": "as above",
    "collectors/attach/ptrace/injection.py write_code: self._memory < 0 → self._memory >= 0": "it is opened again then, by a process that ends soon",
    "collectors/attach/ptrace/injection.py syscall: self._aim(x86_64.aim_return(self._state, self._frame)) "
    "→ pass": "the call returns to the way back by itself",
    "collectors/attach/ptrace/injection.py call: self._to_syscall(deadline) → pass": "of three those of the loop: the one that is left makes both steps",
    "collectors/attach/ptrace/calls.py wait: signal.sigtimedwait({signal.SIGCHLD}, min(left_s, _SLEEP_S)) "
    "→ pass": "it waits without sleeping then, as long and no longer",
    "collectors/attach/ptrace/calls.py block_signals: signal.pthread_sigmask(signal.SIG_SETMASK, "
    "signal.valid_signals()) → pass": "a wait is 10 ms late then at worst; a ^C has a test of its own",
    "collectors/attach/client.py _connect: connection.close() → pass": "the next try drops it, which closes it",
    "collectors/attach/client.py _connect_by_path: os.O_PATH | os.O_DIRECTORY → os.O_PATH & os.O_DIRECTORY": "as the other change of these flags",
    "collectors/attach/ptrace/injection.py write_code: os.O_WRONLY | os.O_CLOEXEC → "
    "os.O_WRONLY & os.O_CLOEXEC": "the first handle is kept, but where none is to be had; nothing is started meanwhile",
    "collectors/attach/ptrace/injection.py _takes_the_way_back: self._where == 'entry' → "
    "self._where != 'entry'": "it is put back all the same, with a stop more",
    "collectors/attach/ptrace/injection.py _release: self._memory >= 0 → self._memory < 0": "its process ends soon",
    "collectors/attach/ptrace/injection.py _release: os.close(self._memory) → pass": "as above",
    "collectors/attach/ptrace/calls.py _driver_owned: True → False": "of a thread that is gone",
    "collectors/agent/probes/steps.py clear: self._names.clear() → pass": "an id of a table that is gone is no name, never another",
    "collectors/agent/probes/neighbours.py place: bool(find_imported(*_RECORDING)) and (not self._open) → "
    "bool(find_imported(*_RECORDING)) or not self._open": "what is open records, and both end at once",
}
"""A change as it is written out → why no test need notice it."""

_OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in place of a node: another operator, a truth turned round, a call or refusal left out."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OTHER:
        yield _with(node, "ops", [_OTHER[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, (ast.BoolOp, ast.BinOp)) and type(node.op) in _OTHER:
        if not any(
            isinstance(one, (ast.JoinedStr, ast.Constant)) and _is_text(one)
            for one in ast.walk(node)
        ):
            yield _with(node, "op", _OTHER[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield ast.Pass()
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)) and not isinstance(
        node.test, ast.Compare
    ):
        yield _with(node, "test", ast.UnaryOp(ast.Not(), node.test))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def _with(node: ast.AST, name: str, value: object) -> ast.AST:
    other = copy.copy(node)
    setattr(other, name, value)
    return other


def mutants(path: str) -> Iterator[tuple[str, str]]:
    """Each change of a module in words, and the module's text with it."""
    text = (ROOT / path).read_text()
    lines = text.splitlines(keepends=True)
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if (path in ONLY and function.name not in ONLY[path]) or function.name == REHEARSAL:
            continue
        inside = [node for part in function.body for node in ast.walk(part)]
        typed = [node.annotation for node in inside if isinstance(node, ast.AnnAssign)]
        types = {id(node) for annotation in typed for node in ast.walk(annotation)}
        for node in inside:
            for other in changes(node) if id(node) not in types else ():
                before, after = ast.unparse(node), ast.unparse(ast.fix_missing_locations(other))
                first = before.splitlines()[0], after.splitlines()[0]
                named = f"{path} {function.name}: {first[0][:90]} → {first[1][:90]}"
                yield named, _replaced(lines, node, after)


def _replaced(lines: list[str], node: ast.AST, after: str) -> str:
    """The text with the node's place taken by `after`; columns count bytes."""
    start, end = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
    low, high = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
    head, tail = lines[start].encode()[:low].decode(), lines[end].encode()[high:].decode()
    indented = after.replace(
        "\n", "\n" + " " * (len(head) - len(head.lstrip()) if isinstance(node, ast.stmt) else 0)
    )
    inner = indented if isinstance(node, ast.stmt) else f"({indented})"
    return "".join([*lines[:start], head + inner + tail, *lines[end + 1 :]])


def passed(folder: Path, path: str, text: str) -> int:
    """How many tests of the module pass with this text in its place; -1: one failed, or it took too long."""
    original = (folder / path).read_text()
    (folder / path).write_text(text)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environ = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        with subprocess.Popen(
            [*command, *shlex.split(GUARDS[path])], cwd=folder, env=environ, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        ) as running:  # fmt: skip
            try:
                output, _ = running.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, 9)
                return -1
        count = re.search(r"(\d+) passed", output)
        return int(count[1]) if count is not None and running.returncode == 0 else -1
    finally:
        (folder / path).write_text(original)


def copied(to: Path) -> Path:
    """A checkout to change: the files that tests read, and what was compiled."""
    away = shutil.ignore_patterns("__pycache__", ".*", "pictures")
    for name in ("brrrtop", "collectors", "tests", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, to / name, ignore=away)
    for path in (
        *ROOT.glob("*.toml"),
        *ROOT.glob("*.md"),
        *ROOT.glob("*.py"),
        ROOT / "constraints.txt",
    ):
        shutil.copy2(path, to)
    return to


def main() -> int:
    """Returns 1 where a change was not noticed and is not among the survivors."""
    parser = argparse.ArgumentParser(prog="dev.py mutate")
    parser.add_argument("--each", type=int, default=12, help="changes of a module; 0: all")
    parser.add_argument("--only", default="", help="modules with this in their path")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = []
    for path in GUARDS:
        if options.only in path:
            every = list(mutants(path))
            count = min(options.each or len(every), len(every))
            chosen += [(path, *one) for one in random.Random(options.seed).sample(every, count)]
    alive, began = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folders = SimpleQueue[Path]()
        for number in range(options.workers):
            folders.put(copied(Path(name, str(number))))

        def tried(path: str, text: str) -> int:
            folder = folders.get()
            try:
                return passed(folder, path, text)
            finally:
                folders.put(folder)

        with ThreadPoolExecutor(options.workers) as pool:
            paths = list(dict.fromkeys(path for path, _, _ in chosen))
            counts = pool.map(lambda path: tried(path, (ROOT / path).read_text()), paths)
            usual = dict(zip(paths, counts, strict=True))
            if broken := [path for path in paths if usual[path] < 1]:
                sys.exit(
                    f"tests fail before anything is changed, or take too long: {', '.join(broken)}"
                )

            def judge(path: str, named: str, text: str) -> None:
                # What breaks so that tests are skipped is noticed too.
                if tried(path, text) >= usual[path]:
                    alive.append(named)
                    print(
                        ("known: " if named in SURVIVORS else "NOT NOTICED: ") + named, flush=True
                    )

            list(pool.map(lambda one: judge(*one), chosen))
    unknown = [named for named in alive if named not in SURVIVORS]
    took = time.monotonic() - began
    print(
        f"{len(chosen)} changes, {len(alive)} not noticed, {len(unknown)} of them without a reason, {took:.0f} s"
    )
    return int(bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
