"""`--fail-if`: small conditions over a snapshot, for CI and job scripts.

    EXPR       = CONDITION { "and" CONDITION }
    CONDITION  = FIELD ( ">" | ">=" | "<" | "<=" ) NUMBER[%] | WORD ( "==" | "!=" ) VALUE

Shares are written `30%` or `0.3`. A field nobody measured makes a condition neither true nor false.
"""

import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from brrrtop.errors import BrrrtopError, GateTripped, UsageError
from brrrtop.model.account import IDLE_CAUSES
from brrrtop.model.estimate import Regime
from brrrtop.model.snapshot import Snapshot

_ORDER = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_SHARES = ("compute", "memory", "overhead", "unknown", "busy", "idle", "underfilled")
_MORE = ("exposed_comm", "exposed_copy", "rho")
_IDLE = tuple(f"idle.{cause}" for cause in IDLE_CAUSES)
NUMBERS = (*_SHARES, *_MORE, *_IDLE, "step_ms", "lost")
WORDS = ("regime", "cause", "advisory")
CAUSES = (*IDLE_CAUSES, "underfilled", "exposed_comm", "exposed_copy")
"""What the cause of a verdict can be."""
_RANGE = {True: "a share, from 0 to 100%", False: "a number from 0 on"}
_AND = re.compile(r"\s+and\s+|\s*,\s*")
_PATTERN = re.compile(r"\s*([a-z_.]+)\s*(>=|<=|==|!=|=|>|<)\s*([^\s]+)\s*")


@dataclass(frozen=True)
class Condition:
    """`name sign value`; `value` is a number for `NUMBERS`, a word for `WORDS`."""

    name: str
    sign: str
    value: float | str

    def holds(self, snapshot: Snapshot) -> bool | None:
        """None: not measured."""
        if isinstance(self.value, str):
            words = _words(snapshot, self.name)
            return None if words is None else (self.value in words) == (self.sign == "==")
        measured = _number(snapshot, self.name)
        return None if measured is None else bool(_ORDER[self.sign](measured, self.value))


@dataclass
class Gate:
    text: str
    conditions: tuple[Condition, ...]
    hold_s: float = 0.0
    since_ns: int | None = field(default=None, init=False)
    measured: bool = field(default=False, init=False)
    """At least one snapshot could be judged."""

    def trips(self, snapshot: Snapshot) -> bool:
        """Whether it has held for long enough by this snapshot, one of a sequence."""
        answers = [condition.holds(snapshot) for condition in self.conditions]
        self.measured = self.measured or None not in answers
        if not all(answers):
            self.since_ns = None
            return False
        if self.since_ns is None:
            self.since_ns = snapshot.now_ns
        return snapshot.now_ns - self.since_ns >= self.hold_s * 1e9


def parse_all(texts: Sequence[str], hold_s: float = 0.0) -> tuple[Gate, ...]:
    """The gates of a command line.

    Raises:
        UsageError: One of them is not understood, or would never trip or never fail to; or there
            is a time to hold for and nothing that is to hold.
    """
    if hold_s and not texts:
        raise UsageError(
            "--for needs a --fail-if to hold for so long", "e.g. --fail-if 'idle > 30%'"
        )
    return tuple(
        Gate(text, tuple(_condition(part, text) for part in _AND.split(text.strip())), hold_s)
        for text in texts
    )


def check(gates: Sequence[Gate], snapshot: Snapshot) -> None:
    """Judges one final snapshot.

    Raises:
        GateTripped: A gate's condition holds.
        BrrrtopError: A gate asks for something that was not measured: that is no pass.
    """
    for gate in gates:
        if gate.trips(snapshot):
            raise trip_error(gate)
    finish(gates)


def finish(gates: Sequence[Gate]) -> None:
    """Refuses to call a gate passed that no snapshot could answer."""
    for gate in gates:
        if not gate.measured:
            raise BrrrtopError(
                f"the gate `{gate.text}` could not be judged: what it asks for was not measured",
                "see `--json` for what this source has",
            )


def trip_error(gate: Gate) -> GateTripped:
    duration = f" for {gate.hold_s:g} s" if gate.hold_s else ""
    return GateTripped(f"the gate tripped: {gate.text}{duration}")


def _condition(part: str, whole: str) -> Condition:
    match = _PATTERN.fullmatch(part)
    if match is None:
        raise UsageError(f"--fail-if {whole!r} is not a condition", "write e.g. 'idle > 30%'")
    name, sign, value = match[1], "==" if match[2] == "=" else match[2], match[3]
    if name in WORDS and sign not in _ORDER:
        return Condition(name, sign, _word(name, value.strip("'\""), whole))
    if name in NUMBERS and sign in _ORDER:
        return Condition(name, sign, _threshold(name, sign, value, whole))
    if name in (*WORDS, *NUMBERS):
        fitting = "== or !=" if name in WORDS else "<, <=, > or >="
        raise UsageError(f"--fail-if {whole!r}: compare {name} with {fitting}")
    raise _no_such(name, (*WORDS, *NUMBERS), whole)


def _word(name: str, value: str, whole: str) -> str:
    """A value that `name` can have: any other would never hold, and the gate never trip."""
    known: tuple[str, ...] = CAUSES
    if name == "regime":
        known = tuple(regime.value for regime in Regime)
    elif name == "advisory":
        from brrrtop.advisories.registry import all_rules

        known = tuple(rule.kind for rule in all_rules())
    if value not in known:
        raise _no_such(value, known, whole, f" of {name}")
    return value


def _no_such(word: str, known: Sequence[str], whole: str, of: str = "") -> UsageError:
    """The nearest that there is, or all of them where there are few and none is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=3, cutoff=0.6)
    near = near or [one for one in known if word in one][:3]
    everything = f"one of {', '.join(known)}" if len(known) < 40 else "ADVISORIES.md lists them"
    hint = f"did you mean {' or '.join(near)}?" if near else everything
    return UsageError(f"--fail-if {whole!r}: there is no {word!r}{of}", hint)


def _threshold(name: str, sign: str, text: str, whole: str) -> float:
    """A number that `name` can be on either side of.

    Raises:
        UsageError: It cannot: a share above 100 %, or below nothing.
    """
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        raise UsageError(f"--fail-if {whole!r}: {text!r} is not a number or a share") from None
    is_share = name not in ("step_ms", "lost")
    if text.endswith("%"):
        if not is_share:
            raise UsageError(
                f"--fail-if {whole!r}: {name} is no share", f"write '{name} {sign} 30'"
            )
        number /= 100
    most = 1.0 if is_share else math.inf
    never = (sign == ">" and number >= most) or (sign == "<" and number <= 0)
    if never or not 0 <= number <= most or math.isinf(number):
        percent = is_share and not text.endswith("%") and 1 <= number <= 100
        hint = f"did you mean '{name} {sign} {text}%'?" if percent else ""
        raise UsageError(
            f"--fail-if {whole!r} can never change: {name} is {_RANGE[is_share]}", hint
        )
    return number


def _words(snapshot: Snapshot, name: str) -> tuple[str, ...] | None:
    if name == "advisory":
        return tuple(advisory.kind for advisory in snapshot.advisories)
    if snapshot.estimate is None:
        return None
    if name == "regime":
        return (snapshot.estimate.regime.value,)
    return (snapshot.estimate.cause,) if snapshot.estimate.cause else ()


def _number(snapshot: Snapshot, name: str) -> float | None:
    if name == "lost":
        return float(snapshot.lost_records)
    estimate = snapshot.estimate
    if estimate is None:
        return None
    if name == "step_ms":
        return None if estimate.steps.step_ns is None else estimate.steps.step_ns / 1e6
    if name == "rho":
        return estimate.launch.rho
    if name in ("compute", "memory", "overhead", "unknown"):
        return float(getattr(estimate.split, name))
    account = estimate.account
    if name == "idle":
        time_ns = account.idle_total_ns
    elif name in _IDLE:
        time_ns = account.idle_ns.get(name.removeprefix("idle."), 0)
    else:
        time_ns = getattr(account, f"{name}_ns")
    return time_ns / account.duration_ns if account.duration_ns else None
