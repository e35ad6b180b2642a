"""A rule in one place: its id, what is published about it, and the function that finds it.

Every module of `brrrtop.advisories.rules` is read; a new rule is a function with one of these
decorators in one of them, or in a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from brrrtop.advisories.context import WORTH_SHARE, WORTH_STEP_NS

OVERHEAD, MEMORY, COMPUTE = "Overhead", "Memory bandwidth", "Compute"
RANKS, TRUST = "Several GPUs", "Trust and hardware"
GROUPS = (OVERHEAD, MEMORY, COMPUTE, RANKS, TRUST)
WORTH = f"wins {WORTH_SHARE:.0%} and {WORTH_STEP_NS / 1e6} ms a step or more".replace("%", " %")


class Finding(Struct, frozen=True):
    """What a rule says of one window."""

    says: str
    suggests: str
    confidence: float
    saves: float | None
    """Most it can win, share of the wall; None for advice that saves nothing itself."""
    waste: str | None
    """None: the edits that were simulated and win nothing."""
    evidence: dict[str, Any]


def finding(
    says: str,
    suggests: str,
    *,
    confidence: float = 0.0,
    saves: float | None = None,
    waste: str | None = None,
    **evidence: Any,
) -> Finding:
    """A finding, its evidence by name, units in the names. Of an edit the price tells confidence and gain."""
    return Finding(says, suggests, confidence, saves, waste, evidence)


Check = Callable[..., Any]
"""Returns a `Finding` or None; of a job, which prices its own advice, an `Advisory`."""


class Rule(Struct, frozen=True):
    """One piece of advice."""

    kind: str
    """The published id."""
    title: str
    group: str
    when: str
    """What triggers it, for the page."""
    unless: str
    """What looks the same and is not: the rule stays silent there."""
    check: Check
    """Of a context; of an edit's rule also the edit's price, None where it does not apply."""
    edits: tuple[str, ...] = ()
    """What-if edits whose price gives it."""
    without_price: bool = False
    """It is asked without a price too, where none of its edits applies."""
    is_gate: bool = False
    """Where it speaks, nothing else does."""
    of_job: bool = False
    """Asked of all ranks of a job, not of one window: `check` takes what they are judged from."""
    is_last: bool = False
    """Asked only where nothing else wins much."""
    any_program: bool = False
    """Said of programs without PyTorch, too, as all about trust and hardware is."""
    covers: tuple[str, ...] = ()
    """Advice that this one includes: shown once, as the larger."""


RULES: dict[str, Rule] = {}
"""By id; complete once `catalogue` is imported."""


def rule(
    kind: str, group: str, title: str, *, when: str, unless: str, **more: Any
) -> Callable[[Check], Check]:
    """Registers a function of a context as a rule; `more` are other fields of `Rule`.

    Raises:
        ValueError: Another rule has this id.
    """

    def register(check: Check) -> Check:
        if kind in RULES:
            raise ValueError(f"two rules are called {kind}")
        RULES[kind] = Rule(kind, title, group, when, unless, check, **more)
        return check

    return register


def edit(
    kind: str, group: str, title: str, of: str, *, when: str = "", unless: str, **more: Any
) -> Callable[[Check], Check]:
    """Registers a function of a context and an edit's price: advice where the edit is worth it.

    Args:
        of: Ids of the edits. Of the rules of one edit at most one speaks.
        when: What tells it from others of the same edit.
    """
    edits = tuple(of.split())
    named = " or ".join(f"`{name}`" for name in edits)
    when = f"simulated: {named} {WORTH}{when}"
    return rule(kind, group, title, when=when, unless=unless, edits=edits, **more)
