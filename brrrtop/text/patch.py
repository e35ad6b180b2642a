"""An edit as a patch of the user's own file: made from the syntax tree of the statement that it changes.

What cannot be told from the file alone is refused with the reason, never guessed.
"""

import ast
import difflib
import re
from collections.abc import Callable, Iterator

from msgspec import Struct

OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adagrad")
"""Of torch.optim, those that have `fused`."""
WORKERS_AT = 5
"""Place of `num_workers` among DataLoader's arguments; `pin_memory` comes later."""
MODELS = ("model", "net")
SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


class CannotEdit(Exception):
    """Why a file is not edited; its text ends a sentence."""


class Patch(Struct, frozen=True):
    line: int
    """The first changed line, of the old file."""
    diff: str
    """Unified, for `patch -p0`."""


class _File:
    def __init__(self, source: str, near: int) -> None:
        self.lines = source.splitlines(keepends=True)
        self.near = near
        """The line at which the time goes; 0: not known."""
        try:
            self.tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError) as fault:
            raise CannotEdit("this Python cannot parse the file") from fault
        self._changes: list[tuple[int, int, str]] = []

    def text(self, node: ast.AST) -> str:
        return ast.unparse(node)

    def offset(self, line: int, column: int) -> int:
        """Into the encoded source: columns count bytes."""
        return sum(len(one.encode()) for one in self.lines[: line - 1]) + column

    def replace(self, node: ast.expr, text: str) -> None:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin = self.offset(node.lineno, node.col_offset)
        end = self.offset(node.end_lineno, node.end_col_offset)
        self._changes.append((begin, end, text))

    def insert(self, line: int, text: str) -> None:
        at = self.offset(line + 1, 0)
        self._changes.append((at, at, text if self.lines[line - 1].endswith("\n") else f"\n{text}"))

    def calls(self, *names: str) -> list[ast.Call]:
        nodes = (one for one in ast.walk(self.tree) if isinstance(one, ast.Call))
        wanted = [one for one in nodes if self.text(one.func).rpartition(".")[2] in names]
        return sorted(wanted, key=lambda one: (one.lineno, one.col_offset))

    def set_keyword(self, call: ast.Call, name: str, value: str) -> None:
        given = {one.arg: one.value for one in call.keywords}
        if None in given:
            raise CannotEdit(
                f"arguments of `{self.text(call.func)}` come from a dictionary: write it there"
            )
        if name in given:
            if not isinstance(given[name], ast.Constant):
                raise CannotEdit(
                    f"`{name}={self.text(given[name])}` comes from elsewhere: set it there"
                )
            self.replace(given[name], value)
            return
        whole = [*call.args, *(one.value for one in call.keywords)]
        if not whole:
            raise CannotEdit(f"`{self.text(call)}` has no arguments")
        last = max(whole, key=lambda one: (one.end_lineno or 0, one.end_col_offset or 0))
        assert last.end_lineno is not None and last.end_col_offset is not None
        at = self.offset(last.end_lineno, last.end_col_offset)
        self._changes.append((at, at, f", {name}={value}"))

    def result(self) -> str:
        data = "".join(self.lines).encode()
        for begin, end, text in sorted(self._changes, key=lambda one: one[:2], reverse=True):
            data = data[:begin] + text.encode() + data[end:]
        return data.decode()


def patch(source: str, path: str, edit: str, line: str = "", near: int = 0) -> Patch:
    """The change that makes an edit in a file.

    Args:
        edit: Id of the what-if edit.
        line: The line of code that its advice names; holds the number of workers.
        near: The line of the file at which the time goes; 0: not known.

    Raises:
        CannotEdit: It cannot be made safely.
    """
    make = _EDITS.get(edit)
    if make is None:
        raise CannotEdit(_BY_HAND.get(edit, "it is more than a line"))
    file = _File(source, near)
    make(file, line)
    changed = file.result()
    if changed == source:
        raise CannotEdit("the file has it already")
    try:
        ast.parse(changed)
    except SyntaxError as fault:
        raise CannotEdit("the statement is written in a way that is not understood here") from fault
    old, new = source.splitlines(keepends=True), changed.splitlines(keepends=True)
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    first = next(one for one in blocks if one[0] != "equal")
    lines = difflib.unified_diff(old, new, path, path, n=2)
    diff = "".join(
        one if one.endswith("\n") else f"{one}\n\\ No newline at end of file\n" for one in lines
    )
    return Patch(first[1] + (first[0] != "insert"), diff)


def _is_true(keyword: ast.keyword) -> bool:
    """Is it `shuffle=True`?"""
    value = keyword.value
    return keyword.arg == "shuffle" and isinstance(value, ast.Constant) and value.value is True


def _loader(file: _File) -> ast.Call:
    """The DataLoader that is waited for: the only one, the one that the line draws from, or that shuffles."""
    made = file.calls("DataLoader")
    if not made:
        raise CannotEdit("no DataLoader is made in this file")
    if len(made) == 1:
        return made[0]
    names = {
        target: call
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Assign)
        and (call := node.value) in made
        and isinstance(call, ast.Call)
        for target in map(file.text, node.targets)
    }
    drawn = (
        re.findall(r"[\w.]+", file.lines[file.near - 1]) if 0 < file.near <= len(file.lines) else []
    )
    train = [name for name in names if "train" in name]
    for name in (*(word for word in drawn if word in names), *(train if len(train) == 1 else ())):
        return names[name]
    shuffles = [call for call in made if any(_is_true(one) for one in call.keywords)]
    if len(shuffles) == 1:  # what is trained on
        return shuffles[0]
    raise CannotEdit(f"{len(made)} DataLoaders are made in this file: which one waits is not known")


def _workers(file: _File, line: str) -> None:
    call, count = _loader(file), re.search(r"num_workers=(\d+)", line)
    if len(call.args) > WORKERS_AT:
        raise CannotEdit("num_workers is given by its place")
    file.set_keyword(call, "num_workers", count[1] if count else "4")
    file.set_keyword(call, "persistent_workers", "True")


def _pinned(file: _File, _: str) -> None:
    file.set_keyword(_loader(file), "pin_memory", "True")
    drawn = {
        file.text(name)
        for node in ast.walk(file.tree)
        if isinstance(node, ast.For)
        for name in ast.walk(node.target)
        if isinstance(name, ast.Name)
    }
    for call in file.calls("to", "cuda"):
        if (
            isinstance(call.func, ast.Attribute)
            and file.text(call.func.value) in drawn
            and call.args
        ):
            file.set_keyword(call, "non_blocking", "True")


def _optimizer(file: _File) -> tuple[ast.stmt, str, Scope]:
    """The statement that makes it, the model whose parameters it takes, and what it stands in."""
    for scope in _scopes(file.tree):
        for statement in _statements(scope.body):
            for call in ast.walk(statement):
                if not isinstance(call, ast.Call) or "optim" not in file.text(call.func):
                    continue
                given = file.text(call.args[0]) if call.args else ""
                if match := re.fullmatch(r"([\w.]+)\.parameters\(\)", given):
                    return statement, match[1], scope
    raise CannotEdit("no optimizer takes `model.parameters()` in this file")


def _scopes(tree: ast.Module) -> Iterator[Scope]:
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Simple statements of a scope, in blocks too."""
    for one in body:
        if isinstance(one, SIMPLE):
            yield one
        elif not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(one, name, []))


def _behind_optimizer(text: str, has: str) -> Callable[[_File, str], None]:
    """Makes the model another one where its optimizer is made."""

    def make(file: _File, _: str) -> None:
        if any(has in line for line in file.lines):
            raise CannotEdit(f"the file has `{has}` already")
        statement, model, scope = _optimizer(file)
        assert statement.end_lineno is not None
        calls = (one for one in ast.walk(scope) if isinstance(one, ast.Call))
        later = (one for one in calls if one.lineno > statement.end_lineno)
        used = {file.text(part) for call in later for part in (call.func, *call.args)}
        if model == "self" or model not in used:
            raise CannotEdit(f"`{model}` is used elsewhere: write it where the model is made")
        lead = file.lines[statement.lineno - 1][: statement.col_offset]
        file.insert(statement.end_lineno, f"{lead}{text.format(model=model)}\n")

    return make


def _fused(file: _File, _: str) -> None:
    made = [one for one in file.calls(*OPTIMIZERS) if "optim" in file.text(one.func)]
    if len(made) != 1:
        raise CannotEdit(f"{len(made) or 'no'} optimizers of torch are made in this file")
    file.set_keyword(made[0], "fused", "True")


def _tf32(file: _File, _: str) -> None:
    imports = [one for one in file.tree.body if isinstance(one, ast.Import | ast.ImportFrom)]
    if not any(
        alias.name == "torch" and not alias.asname for one in imports for alias in one.names
    ):
        raise CannotEdit("the file has no `import torch`")
    if given := file.calls("set_float32_matmul_precision"):
        file.replace(given[0].args[0], '"high"')
        return
    file.insert(imports[-1].end_lineno or 1, '\ntorch.set_float32_matmul_precision("high")\n')


def _autocast(file: _File, _: str) -> None:
    """Around what stands between the call of the model and `backward()`."""
    if file.calls("autocast", "amp"):
        raise CannotEdit("the file has autocast already")
    for node in ast.walk(file.tree):
        body = getattr(node, "body", [])
        if not isinstance(body, list):  # of a lambda
            continue
        for at, last in enumerate(body):
            if not (isinstance(last, ast.Expr) and file.text(last).endswith(".backward()")):
                continue
            calls = [i for i, one in enumerate(body[:at]) if _calls_model(file, one)]
            if not calls:
                continue
            block = body[calls[0] : at]
            begin, end = block[0].lineno, block[-1].end_lineno
            strings = (
                one for stmt in block for one in ast.walk(stmt) if isinstance(one, ast.Constant)
            )
            if not all(isinstance(one, SIMPLE) for one in block) or any(
                one.lineno != one.end_lineno for one in strings
            ):
                raise CannotEdit("the forward pass is more than plain statements")
            lead = file.lines[begin - 1][: block[0].col_offset]
            for number in range(begin, end + 1):
                file.insert(number - 1, "\t" if "\t" in lead else "    ")
            file.insert(begin - 1, f'{lead}with torch.autocast("cuda", torch.bfloat16):\n')
            return
    raise CannotEdit("no call of the model before `backward()` stands in this file")


def _calls_model(file: _File, statement: ast.stmt) -> bool:
    calls = (one for one in ast.walk(statement) if isinstance(one, ast.Call))
    return any(file.text(one.func).removeprefix("self.") in MODELS for one in calls)


def _unread(file: _File, _: str) -> None:
    """`total += loss.item()` → `total += loss.detach()`."""
    sums = [
        one.value
        for one in ast.walk(file.tree)
        if isinstance(one, ast.AugAssign) and isinstance(one.value, ast.Call)
    ]
    found = [one for one in sums if file.text(one.func).endswith(".item") and not one.args]
    if not found:
        raise CannotEdit("what is read back is used as a number: read it every N steps only")
    for one in found:
        file.replace(one, file.text(one.func).removesuffix("item") + "detach()")


def _buckets(file: _File, _: str) -> None:
    made = file.calls("DistributedDataParallel", "DDP")
    if len(made) != 1:
        raise CannotEdit("no single DDP is made in this file")
    file.set_keyword(made[0], "bucket_cap_mb", "100")
    file.set_keyword(made[0], "gradient_as_bucket_view", "True")


_EDITS: dict[str, Callable[[_File, str], None]] = {
    "loader-ready": _workers,
    "pinned-copies": _pinned,
    "compile": _behind_optimizer("{model} = torch.compile({model})", "torch.compile("),
    "compile-reduce-overhead": _behind_optimizer(
        '{model} = torch.compile({model}, mode="reduce-overhead")', "torch.compile("
    ),
    "channels-last": _behind_optimizer(
        "{model} = {model}.to(memory_format=torch.channels_last)", "channels_last"
    ),
    "fused-optimizer": _fused,
    "tf32": _tf32,
    "bf16": _autocast,
    "no-sync": _unread,
    "overlap-communication": _buckets,
}
"""By the id of the what-if edit."""
_BY_HAND = {
    "double-batch": "a larger batch changes the training: that is for you to decide",
    "fp16": "fp16 needs a GradScaler around `backward()` and `step()` too",
    "sdpa": "attention that is written out has many shapes",
}
