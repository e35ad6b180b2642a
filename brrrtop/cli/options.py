"""Everything a command line can ask for, as one value; and option values as people write them: `500ms`, `1%`,
`2-4`, for argparse's `type=`.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from functools import cached_property

TYPE_CHECKING = False  # typing itself would take a tenth of the start-up time
if TYPE_CHECKING:
    from typing import Any

    from brrrtop.cli.fail_if import Gate


class Options:
    """What was typed; a field the verb has no option for keeps its default.

    No dataclass: importing those takes half as long as the bare interpreter's start.
    """

    verb: str | None = None
    version: bool = False
    once: bool = False
    json: bool = False
    interval: float = 0.5
    """Seconds between two looks."""
    gpu: int | None = None
    no_color: bool = False
    ascii: bool = False
    theme: str | None = None
    """Of the screen; None: the one chosen before."""
    yes: bool = False
    max_overhead: float = 0.01
    """Share of step time."""
    counters: bool = False
    trace_graphs: bool | None = None
    """Programs whose threads nobody can tell apart. None: those without torch; True: all; False: none."""
    shapes: bool | None = None
    """Of one step. None: once the run is steady; True: as soon as can be; False: not unasked."""
    record: str | None = None
    record_most: int | None = None
    """Bytes of a recording; None: as long as one watches."""
    export: tuple[list[str], ...] | list[list[str]] = ()
    """A format and where to, as often as the option was given."""
    exporter: str = ""
    pids: tuple[int, ...] | list[int] = ()
    """Whom `export` watches; none: all trainers of the host."""
    brief: bool = False
    svg: bool = False
    html: bool = False
    serve: bool = False
    listen: str | None = None
    """`HOST:PORT` of what is served; None: its default, on loopback."""
    fail_if: tuple[str, ...] | list[str] = ()
    hold_s: float = 0.0
    pid: int | None = None
    command: tuple[str, ...] = ()
    edits: tuple[str, ...] | None = None
    """What `try` makes; None: all that apply."""
    seconds: float = 8.0
    """Of steady steps, for each edit."""
    budget_s: float = 600.0
    scratch: str | None = None
    files: tuple[str, ...] | list[str] = ()
    """Recordings, traces, or folders of them: one a rank."""
    baseline: str | None = None
    silence: tuple[tuple[str, ...], ...] | list[tuple[str, ...]] = ()
    """Ids of advice, as often as the option was given."""
    before: str = ""
    after: str = ""
    scenario: str | None = None
    list: bool = False
    speed: float | None = None
    force: bool = False
    """Files are read however large they are."""
    steps: tuple[int, int] | None = None

    @cached_property
    def gates(self) -> tuple[Gate, ...]:
        from brrrtop.cli.fail_if import parse_all

        return parse_all(self.fail_if, self.hold_s)

    @property
    def silenced(self) -> frozenset[str]:
        return frozenset(kind for kinds in self.silence for kind in kinds)

    def __init__(self, **given: object) -> None:
        unknown = [name for name in given if name not in type(self).__annotations__]
        assert not unknown, f"options without a default: {unknown}"
        self.__dict__.update(given)


_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
THEMES = ("dark", "light", "high-contrast", "colour-blind")
"""As in `tui.palette`, which takes too long to import for a `--help`."""
SHORTEST_INTERVAL_S = 0.1
LONGEST_INTERVAL_S = 3600.0


def seconds(text: str) -> float:
    """`0.5`, `500ms`, `60s`, `5m` → seconds."""
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text.strip()[len(number) :]
    try:
        value = float(number) * _SECONDS[unit or "s"]
    except (ValueError, KeyError):
        raise ArgumentTypeError(f"{text!r} is not a time: write 0.5, 500ms, 60s or 5m") from None
    if not 0 <= value < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a time that can be waited for")
    return value


def _number(kind: type[Any], text: str, what: str, unit: str = "") -> Any:
    """The number before its unit; `what` ends the sentence about a text that is none."""
    try:
        return kind(text.strip().removesuffix(unit))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not {what}") from None


def interval(text: str) -> float:
    """Seconds between two looks, within what is sensible."""
    value = seconds(text)
    if not SHORTEST_INTERVAL_S <= value <= LONGEST_INTERVAL_S:
        raise ArgumentTypeError(
            f"{text!r} is outside {SHORTEST_INTERVAL_S:g} s to {LONGEST_INTERVAL_S:g} s"
        )
    return value


def share(text: str) -> float:
    """`1%` or `0.01` → 0.01."""
    value: float = _number(float, text, "a share: write 1% or 0.01", "%")
    if text.strip().endswith("%"):
        value /= 100
    if not 0 <= value <= 1:
        raise ArgumentTypeError(f"{text!r} is not between 0% and 100%")
    return value


def speed(text: str) -> float:
    """`2`, `0.5` or `2x` → how often as fast as it happened."""
    value: float = _number(float, text, "a speed: write 2 or 0.5", "x")
    if not 0 < value < 1e6:
        raise ArgumentTypeError(f"{text!r} is not above 0: 1 is the original pace")
    return value


def size(text: str) -> int:
    """`500MB`, `2G`, `1GiB` or `4096` → bytes; K, M and G are powers of 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(?:([KMGT])?i?B?)", text.strip(), re.IGNORECASE)
    value = float(match[1]) * 1024 ** " KMGT".index((match[2] or " ").upper()) if match else 0.0
    if not 1 <= value < 1 << 50:
        raise ArgumentTypeError(f"{text!r} is not a size: write 500MB or 2GB")
    return int(value)


def steps(text: str) -> tuple[int, int]:
    """`2-4` or `3` → first and last step, counted from 1."""
    first, dash, last = text.strip().partition("-")
    try:
        chosen = (int(first), int(last) if dash else int(first))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a range of steps: write 2-4 or 3") from None
    if not 1 <= chosen[0] <= chosen[1]:
        raise ArgumentTypeError(
            f"{text!r} is not a valid range: steps count from 1, the smaller one first"
        )
    return chosen


def advisories(text: str) -> tuple[str, ...]:
    """`pin-memory,gc-pause` → both, each an id that exists."""
    from difflib import get_close_matches

    from brrrtop.advisories.registry import all_rules

    known = [rule.kind for rule in all_rules()]
    chosen = tuple(word for piece in text.split(",") if (word := piece.strip()))
    for word in chosen:
        if word not in known:
            near = [kind for kind in known if word in kind][:4]
            near = near or get_close_matches(word, known, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "ADVISORIES.md lists them"
            raise ArgumentTypeError(f"there is no advice {word!r}: {hint}")
    if not chosen:
        raise ArgumentTypeError("name the advice to silence: ADVISORIES.md lists its ids")
    return chosen


def edits(text: str) -> tuple[str, ...]:
    """`bf16,compile` → both, each an edit that can be tried."""
    from brrrtop.trials.edits import EDITS

    chosen = tuple(word for piece in text.split(",") if (word := piece.strip()))
    unknown = [word for word in chosen if word not in EDITS]
    if unknown or not chosen:
        raise ArgumentTypeError(f"{text!r} is no list of edits: choose of {', '.join(EDITS)}")
    return tuple(dict.fromkeys(chosen))


def gpu(text: str) -> int:
    value: int = _number(int, text, "a GPU number")
    if value < 0:
        raise ArgumentTypeError("GPUs are numbered from 0")
    return value


def pid(text: str) -> int:
    listed = "`brrrtop` alone lists the trainers of this host"
    value: int = _number(int, text, f"a process id; {listed}")
    if not 0 < value < 1 << 31:
        raise ArgumentTypeError(f"{text} is not a process id")
    return value
