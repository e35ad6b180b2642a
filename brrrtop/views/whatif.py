"""What-if in words: the same on the screen and in a report. No colour."""

from collections.abc import Sequence

from brrrtop.model.advice import OFFER, Advisory, WhatIf
from brrrtop.model.run import Run
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases, units
from brrrtop.text.headline import OPEN

WORTH_A_LINE = 0.01
"""Of an edit that wins less nobody needs the line of code."""
MOST_QUIET = 4
"""Edits whose gain without the profiler is said, too."""
TERMS = (
    "Simulated; the range of a gain should contain the true one 80% of the time. "
    "double-batch: an offer, per sample; it changes the training."
)


def ordered(snapshot: Snapshot) -> tuple[WhatIf, ...]:
    """Edits in the order in which the advice stands, then those that nobody is advised to make."""
    place = {one.kind: at for at, one in enumerate(snapshot.advisories)}
    return tuple(sorted(snapshot.whatif, key=lambda row: place.get(row.advisory or "", len(place))))


def span(low: float, high: float) -> str:
    """What is saved at least and at most, 0.28 and 0.41, as speeds: `1.39–1.7×`, `≥ 3.1×`."""
    least, most = units.times_as_fast(low), units.times_as_fast(high)
    if low < OPEN <= high:
        return f"≥ {least}"
    return most if least == most else f"{least[:-1]}–{most}"


def speeds(row: WhatIf) -> tuple[str, str]:
    """How fast the run is with an edit, and between which bounds: `1.5×`, `1.39–1.7×`."""
    return units.times_as_fast(row.saves), span(row.saves_low, row.saves_high)


def hue(row: WhatIf) -> str:
    if row.saves_low > 0:
        return "good"
    if row.saves_high < 0:
        return "alarm"
    return "text" if row.saves >= WORTH_A_LINE else "muted"


def measure(run: Run | None) -> str:
    """What the times of edits are of: `a step`, or `the run` where it does more than its steps."""
    return "the run" if phrases.has_phases(run) else "a step"


def times(row: WhatIf, run: Run | None) -> str:
    """Now and with the edit: their ratio is the gain."""
    if run is not None and phrases.has_phases(run):
        return f"{units.clock(run.duration_ns)} → {units.clock((1 - row.saves) * run.duration_ns)}"
    return f"{units.duration(row.present_ns)} → {units.duration(row.step_ns)}"


def last(pair: WhatIf) -> str:
    return pair.edit.rsplit("+", maxsplit=1)[-1]


def first(pair: WhatIf) -> str:
    return pair.edit.split("+", maxsplit=1)[0]


def following(snapshot: Snapshot) -> tuple[str, str]:
    """The best edit, and those that add to it: `tf32`, `compile 1.9× with both`; empty where none does."""
    rows = {row.edit: row.saves for row in snapshot.whatif if row.saves > 0}
    pairs = [pair for pair in snapshot.whatif_after if first(pair) in rows]
    adding = [one for one in pairs if one.saves >= rows[first(one)] + WORTH_A_LINE]
    texts = [f"{last(one)} {units.times_as_fast(one.saves)} with both" for one in adding]
    return first(adding[0]) if adding else "", ", ".join(texts)


def is_offer(advisory: Advisory) -> bool:
    """Whether it changes the training: for the user to decide."""
    return advisory.evidence.get("edit") == OFFER


def gain(advisory: Advisory, most: str = "at most ") -> str | None:
    """`1.5× faster (1.39–1.7×)` where it was simulated, uncertain where it may lose, else `at most 1.7×
    faster`; None: no gain of its own. Of an edit that `brrrtop try` has measured `1.31× faster, tried`.

    Args:
        most: What stands before a bound.
    """
    if advisory.tried is not None and advisory.tried < 1:
        return f"{units.times_as_fast(advisory.tried)} faster, tried"
    if advisory.saves_at_most is None:
        return None
    if advisory.saves is None:
        return f"{most}{units.times_as_fast(advisory.saves_at_most)} faster"
    low = advisory.saves if advisory.saves_low is None else advisory.saves_low
    speed = units.times_as_fast(advisory.saves)
    sure = ", uncertain" if advisory.may_lose else ", offered" if is_offer(advisory) else ""
    return f"{speed} faster{sure} ({span(low, advisory.saves_at_most)})"


def terms(rows: Sequence[WhatIf]) -> str:
    """What the table's figures are, with what is simulated of a step without its profiler."""
    quiet = [(row.edit, row.unprofiled) for row in rows if row.unprofiled is not None]
    if not quiet:
        return TERMS
    speeds = (f"{edit} {units.times_as_fast(gain.saves)}" for edit, gain in quiet[:MOST_QUIET])
    return f"{TERMS} now: as recorded. Without the profiler, simulated: {', '.join(speeds)}."
