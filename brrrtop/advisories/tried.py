"""What `brrrtop try` measured of a program takes the place of what is predicted for it, from then on."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from brrrtop.advisories.advise import Advice, rank
from brrrtop.errors import BrrrtopError
from brrrtop.model.advice import Advisory, WhatIf
from collectors.own_files import own_folder, replace_file

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
