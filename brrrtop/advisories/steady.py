"""Advice that does not flicker: appears when it stays, disappears when it stays away. And what `brrrtop try`
measured of a program, which takes the place of what is predicted for it.

A pure state machine: `update` takes what one window says, `shown` is what a screen shows.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from brrrtop.advisories.advise import Advice, rank, worth
from brrrtop.advisories.context import A_LOSS, NAMES_LINES
from brrrtop.analysis.facts.stack_samples import place
from brrrtop.errors import BrrrtopError
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.text import units
from collectors.own_files import own_folder, replace_file

APPEARS_AFTER = 2
"""Windows in a row; windows overlap, so one odd step fills one or two."""
SURE = 0.8
"""Confidence from which one window is enough."""
DISAPPEARS_AFTER = 3
ALONE = frozenset({"warming-up", "records-lost"})
"""These silence everything else at once: what was advised before no longer stands on facts."""
HEALTHY = "none-healthy"
OVERTAKES = 1.08
"""So much more must it be worth than what is before it: two of like gain do not swap places often."""
LINES = "lines"
"""Evidence that comes with a sample now and then: it stays, with its age."""


class _Seen(Struct, frozen=True):
    advisory: Advisory
    positives: int = 0
    negatives: int = 0
    shown: bool = False
    lines: tuple[str, ...] = ()
    """The newest that were known."""
    lines_ns: int = 0
    """When that was."""


class Steady:
    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._before: dict[str, _Seen] = {}
        """Before the newest window."""
        self._order: list[str] = []
        self._windows = 0

    def forget(self) -> None:
        """Drop all history, as after a seek or a restart of the trainer."""
        self._seen.clear()
        self._before.clear()
        self._order = []
        self._windows = 0

    def update(self, given: Iterable[Advisory], again: bool = False, t_ns: int = 0) -> None:
        """What one more window says, best first.

        All that the first one says is shown: there is nothing that it could flicker against, and the
        next burst may be far away.

        Args:
            again: It is the newest window once more, judged anew: counted once, by this verdict.
            t_ns: Its end.
        """
        latest = {advisory.kind: advisory for advisory in given}
        alone = bool(ALONE & latest.keys())
        if again:
            self._take_back()
        else:
            self._before = self._seen
        if not alone and (not again or not self._windows):
            self._windows += 1
        every = {kind: s for kind, s in self._seen.items() if (kind in ALONE) == alone}
        for kind, advisory in latest.items():
            seen = _with_lines(every.get(kind, _Seen(advisory)), advisory, t_ns)
            sure = advisory.confidence >= SURE or self._windows == 1
            every[kind] = replace(
                seen,
                positives=seen.positives + 1,
                negatives=0,
                shown=seen.shown or sure or seen.positives + 1 >= APPEARS_AFTER,
            )
        for kind in every.keys() - latest.keys():
            every[kind] = replace(every[kind], positives=0, negatives=every[kind].negatives + 1)
        self._seen = {kind: s for kind, s in every.items() if s.negatives < DISAPPEARS_AFTER}
        self._put_in_order()

    def _put_in_order(self) -> None:
        """What is shown, best first; what was before another stays there at about the same worth."""
        shown = [kind for kind, seen in self._seen.items() if seen.shown]
        order = [kind for kind in self._order if kind in shown]
        order += sorted(set(shown) - set(order), key=lambda kind: rank(self._seen[kind].advisory))
        fresh = set(order) - set(self._order)
        for end in range(1, len(order)):
            for at in range(end, 0, -1):
                before, own = self._worth(order[at - 1]), self._worth(order[at])
                if own <= before * (1.0 if order[at] in fresh else OVERTAKES):
                    break
                order[at - 1], order[at] = order[at], order[at - 1]
        # At once, however much it was worth in the windows before.
        self._order = sorted(order, key=self._class)

    def _class(self, kind: str) -> int:
        """What may lose comes after what wins, and what wins nothing itself last."""
        advisory = self._seen[kind].advisory
        return 2 if advisory.saves_at_most is None else int(advisory.may_lose)

    def _worth(self, kind: str) -> float:
        return worth(self._seen[kind].advisory)

    def _take_back(self) -> None:
        """Uncounts the newest window; what is shown since is shown, or it would flicker. What this window
        alone said goes when it denies that often enough: the next may be minutes away."""
        now = {kind: seen for kind, seen in self._seen.items() if seen.shown}
        self._seen = {kind: replace(s, shown=kind in now) for kind, s in self._before.items()}
        for kind, one in now.items():
            seen = self._seen.get(kind) or _Seen(one.advisory, negatives=one.negatives, shown=True)
            self._seen[kind] = replace(seen, advisory=one.advisory)

    @property
    def shown(self) -> list[Advisory]:
        """What to show now: largest bound times confidence first; healthy only when alone."""
        shown = [self._seen[kind].advisory for kind in self._order]
        if any(a.saves_at_most for a in shown):
            shown = [a for a in shown if a.kind != HEALTHY]
        return shown


def _with_lines(seen: _Seen, advisory: Advisory, t_ns: int) -> _Seen:
    """With this advisory, and the lines of an earlier window where it happens to name none."""
    lines = advisory.evidence.get(LINES)
    if lines:
        return replace(seen, advisory=advisory, lines=tuple(lines), lines_ns=t_ns)
    if lines is None or not seen.lines:
        return replace(seen, advisory=advisory)
    age = units.duration(max(0, t_ns - seen.lines_ns))
    most = f"most at {place(seen.lines[0])}"
    known = replace(
        advisory,
        suggests=advisory.suggests.replace(A_LOSS, "").replace(NAMES_LINES, most),
        evidence={**advisory.evidence, LINES: list(seen.lines), "lines_seen": f"{age} ago"},
    )
    return replace(seen, advisory=known)


MOST_PROGRAMS = 200
SAME_STEP = 0.15
"""A step that differs by more from the one that was tried is of a program that has been changed since."""


class TriedProgram(Struct, frozen=True):
    cwd: str
    command: tuple[str, ...]
    """Without the interpreter."""
    gpu: str
    step_ms: float
    edits: Mapping[str, tuple[float, float, float]]
    """What-if edit, or two joined by `+` → share of the time saved, and its bounds."""


class _File(Struct, frozen=True):
    schema: Literal["brrrtop.tried/1"]
    programs: tuple[TriedProgram, ...]


def path() -> Path:
    """Need not exist."""
    import platformdirs

    folder = Path(platformdirs.user_data_dir("brrrtop"))
    return own_folder(folder, ".local/share/brrrtop") / "tried.json"


def _kept() -> tuple[TriedProgram, ...]:
    with suppress(OSError, MsgspecError):
        return json.decode(path().read_bytes(), type=_File).programs
    return ()


def keep(tried: TriedProgram) -> Path:
    """Adds what was measured in place of what was measured before of the same program on such a GPU.

    Raises:
        BrrrtopError: The file cannot be written.
    """
    key = (tried.cwd, tried.command, tried.gpu)
    others = [one for one in _kept() if (one.cwd, one.command, one.gpu) != key]
    where = path()
    document = json.encode(_File("brrrtop.tried/1", (*others[1 - MOST_PROGRAMS :], tried)))
    try:
        replace_file(where, document + b"\n")
    except OSError as fault:
        raise BrrrtopError(f"{where} cannot be written: {fault.strerror}") from fault
    return where


def tried_of(cwd: str, words: Sequence[str]) -> tuple[TriedProgram, ...]:
    """What was tried of the program of a process, on each kind of GPU.

    Args:
        words: Its command line, the interpreter first.
    """
    command = tuple(words[1:])
    return tuple(one for one in _kept() if (one.cwd, one.command) == (cwd, command))


def with_tried(advice: Advice, programs: Sequence[TriedProgram], gpu: str | None) -> Advice:
    """Advice with the measured gains of edits that were tried, where the step is still the same."""
    tried = next((one for one in programs if one.gpu == gpu), None)
    if tried is None or not advice.whatif:
        return advice
    now_ms = advice.whatif[0].present_ns / 1e6
    if not abs(now_ms / tried.step_ms - 1) <= SAME_STEP:
        return advice

    def row_with(row: WhatIf) -> WhatIf:
        if row.edit not in tried.edits:
            return row
        saves, low, high = tried.edits[row.edit]
        return replace(
            row, step_ns=row.present_ns * (1 - saves), saves=saves, saves_low=low, saves_high=high,
            saves_of_step=None, unprofiled=None,
        )  # fmt: skip

    def advisory_with(advisory: Advisory) -> Advisory:
        gains = tried.edits.get(str(advisory.evidence.get("edit")))
        if gains is None:
            return advisory
        saves, low, high = gains
        return replace(advisory, saves=saves, saves_low=low, saves_at_most=high, tried=saves)

    return Advice(
        tuple(sorted(map(advisory_with, advice.given), key=rank)),
        tuple(sorted(map(row_with, advice.whatif), key=lambda row: row.place)),
        tuple(map(row_with, advice.after)),
        advice.loaders,
    )
