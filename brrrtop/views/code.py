"""The user's own files with the time of each line, and the edits that can be made in them. No colour."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

import brrrtop
from brrrtop.model.advice import Advisory
from brrrtop.model.run import CodeLine
from brrrtop.model.snapshot import Snapshot
from brrrtop.text.patch import CannotEdit, Patch, patch
from brrrtop.views import whatif

AROUND = 2
"""Lines shown before and after one at which samples were."""
MOST_BYTES = 1 << 20
"""Nobody writes a longer file of code by hand."""
DEMOS = Path(brrrtop.__file__).parent / "data" / "demos"
"""The programs of the demos lie beside their recordings."""
_PLACE = re.compile(r"(?P<path>.+\.py):(?P<line>\d+)$")
_DOES = (
    (r"\.(item|cpu|tolist|numpy)\(|synchronize\(", "syncs", ("idle_sync",)),
    (r"\bsave\w*\(", "saves", ("idle_checkpoint",)),
    (r"\.(to|cuda)\(", "copies", ("copy",)),
    (r"opt\w*\.step\(", "optimizer", ("optimizer",)),
    (r"\.backward\(", "backward", ()),
)
"""What a line is by its text: a word, and the kinds of the step picture that are its own."""


_WORDS = {"pin-memory": "copies", "overlap-copies": "copies", "checkpoint-stall": "saves"}
"""What the line does that advice is about."""
_SCORES = "softmax"
"""In the name of an op of attention that is written out."""


class CodeFile(Struct, frozen=True):
    path: str
    """The last parts of its path, as samples name it."""
    name: str
    """For a patch: from the trainer's working folder, else as samples name it."""
    source: str
    """All of it; empty where it cannot be read, or differs from the trainer's."""
    hot: dict[int, CodeLine]

    @property
    def share(self) -> float:
        return sum(one.share for one in self.hot.values())

    @property
    def blocks(self) -> list[list[tuple[int, str, CodeLine | None]]]:
        """The lines around those with time, in stretches; those with most time first."""
        lines = self.source.splitlines()
        numbers = sorted({n for at in self.hot for n in _around(at, len(lines))})
        rows = [
            (n, lines[n - 1] if lines else self.hot[n].source, self.hot.get(n)) for n in numbers
        ]
        stretches = [
            [row for _, row in group]
            for _, group in groupby(enumerate(rows), key=lambda pair: pair[1][0] - pair[0])
        ]
        return sorted(stretches, key=lambda rows: -sum(one.share for _, _, one in rows if one))


class Change(Struct, frozen=True):
    """An edit of a file, or why it cannot be made here."""

    edit: str
    speed: str
    """`1.5×`."""
    line: str
    """Of code, to write by hand."""
    path: str = ""
    patch: Patch | None = None
    reason: str = ""


def files(snapshot: Snapshot) -> list[CodeFile]:
    hot: dict[str, dict[int, CodeLine]] = {}
    for one in snapshot.run.lines if snapshot.run is not None else ():
        if match := _PLACE.match(one.place):
            hot.setdefault(match["path"], {})[int(match["line"])] = one
    return [
        CodeFile(path, *_source_of(path, lines, snapshot), lines) for path, lines in hot.items()
    ]


def does(line: CodeLine) -> tuple[str, tuple[str, ...]]:
    """What a line's time is, in a word, and the kinds of the step picture that are its own."""
    if line.waits > line.share / 2:
        return "data", ("idle_input",)
    for pattern, word, kinds in _DOES:
        if re.search(pattern, line.source):
            return word, kinds
    return "", ()


def with_places(snapshot: Snapshot) -> tuple[Advisory, ...]:
    """Advice with the line of the program that it is about: of the samples, of the recorded op, else of the
    edit."""
    run, among = snapshot.run, files(snapshot)
    known: dict[str, str] = {}
    for line in run.lines if run is not None else ():
        known.setdefault(does(line)[0], line.place)
    places = {kind: known[word] for kind, word in _WORDS.items() if word in known}
    if at := next(
        (op.place for op in snapshot.tables.ops if op.place and _SCORES in op.name), None
    ):
        places["flash-attention"] = at
    return tuple(
        _at(one, places.get(one.kind) or _edited(one, snapshot, among))
        for one in snapshot.advisories
    )


def _at(advisory: Advisory, place: str) -> Advisory:
    if not place or not advisory.suggests or ".py:" in advisory.suggests:
        return advisory
    return replace(advisory, suggests=f"{place}: {advisory.suggests}")


def _edited(advisory: Advisory, snapshot: Snapshot, among: list[CodeFile]) -> str:
    """The line that the edit of advice changes; empty where it is not known."""
    for row in snapshot.whatif:
        if row.advisory == advisory.kind:
            change = _change(row.edit, "", row.line, among)
            file = "/".join(change.path.rsplit("/", 2)[-2:])
            return f"{file}:{change.patch.line}" if change.patch is not None else ""
    return ""


def changes(snapshot: Snapshot, among: list[CodeFile]) -> list[Change]:
    return [
        _change(row.edit, whatif.speeds(row)[0], row.line, among)
        for row in whatif.ordered(snapshot)
        if row.saves >= whatif.WORTH_A_LINE
    ]


def _change(edit: str, speed: str, line: str, among: list[CodeFile]) -> Change:
    reason = ""
    for file in among:
        if file.source:
            near = max(file.hot, key=lambda number: file.hot[number].share)
            made = _patch(file.source, file.name, edit, line, near)
            if isinstance(made, Patch):
                return Change(edit, speed, line, file.name, made)
            reason = reason or made
    return Change(edit, speed, line, reason=reason or "the program's file is not to be read here")


@lru_cache(64)
def _patch(source: str, name: str, edit: str, line: str, near: int) -> Patch | str:
    """The patch, or why there is none."""
    try:
        return patch(source, name, edit, line, near)
    except CannotEdit as fault:
        return str(fault)


def _around(number: int, count: int) -> range:
    """Numbers of the lines shown for one; of a file that cannot be read that one alone."""
    if not count:
        return range(number, number + 1)
    return range(max(1, number - AROUND), min(count, number + AROUND) + 1)


def _source_of(path: str, hot: dict[int, CodeLine], snapshot: Snapshot) -> tuple[str, str]:
    """Name and text of the file that the end of a path names; no text where a line differs from the
    sampled one."""
    known = [(number, one.source.strip()) for number, one in hot.items() if one.source]
    base, *folders = _folders(snapshot)
    for folder in (base, *folders):
        for tail in (path, path.rpartition("/")[2]):
            text = _read(folder / tail)
            lines = text.splitlines()
            if known and all(
                number <= len(lines) and lines[number - 1].strip() == source
                for number, source in known
            ):
                file = folder / tail
                inside = file.is_relative_to(base)
                return str(file.relative_to(base)) if inside else tail, text
    return path, ""


def _folders(snapshot: Snapshot) -> Iterator[Path]:
    """Where the trainer's own files may lie: its working folder, its script's, this one, and the demos'."""
    here = Path.cwd()
    pid = snapshot.source.pid if snapshot.source.kind == "live" else None
    base = Path(f"/proc/{pid}/cwd") if pid is not None else here
    scripts = [word for word in (snapshot.source.cmdline or "").split() if word.endswith(".py")]
    near = [base / Path(word).parent for word in scripts]
    yield from (base, *near, *(one.parent for one in near), here, DEMOS)


def _read(path: Path) -> str:
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return ""
        return path.read_text("utf-8", "replace")
    except (OSError, ValueError):
        return ""
