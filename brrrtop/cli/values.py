"""Option values as people write them: `500ms`, `1%`, `2-4`. For argparse's `type=`."""

from __future__ import annotations

from argparse import ArgumentTypeError

TYPE_CHECKING = False  # typing itself would take a tenth of the start-up time
if TYPE_CHECKING:
    from typing import Any

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
