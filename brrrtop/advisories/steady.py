"""Advice that does not flicker: appears when it stays, disappears when it stays away.

A pure state machine: `look` takes what one window says, `current` is what a screen shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from brrrtop.model.advice import Advisory

APPEARS_AFTER = 2
"""Windows in a row; windows overlap, so one odd step fills one or two."""
SURE = 0.8
"""Confidence from which one window is enough."""
DISAPPEARS_AFTER = 3
ALONE = frozenset({"warming-up", "records-lost"})
"""These silence everything else at once: what was advised before no longer stands on facts."""
HEALTHY = "none-healthy"


@dataclass(slots=True)
class _Seen:
    advisory: Advisory
    positives: int = 0
    negatives: int = 0
    shown: bool = False


class Steady:
    """Hysteresis over the advice of consecutive windows, and what the user has silenced."""

    def __init__(self, silenced: Iterable[str] = ()) -> None:
        self._silenced = set(silenced)
        self._seen: dict[str, _Seen] = {}
        self._before: dict[str, _Seen] = {}
        """Before the newest window."""
        self._windows = 0

    @property
    def silenced(self) -> frozenset[str]:
        """Kinds the user does not want to see."""
        return frozenset(self._silenced)

    def silence(self, kind: str) -> None:
        """Never show `kind` again, until `hear`."""
        self._silenced.add(kind)

    def hear(self, kind: str) -> None:
        """Show `kind` again when it is given."""
        self._silenced.discard(kind)

    def forget(self) -> None:
        """Drop all history, as after a seek or a restart of the trainer; silence stays."""
        self._seen.clear()
        self._before.clear()
        self._windows = 0

    def look(self, given: Iterable[Advisory], again: bool = False) -> None:
        """What one more window says, best first.

        All that the first one says is shown: there is nothing that it could flicker against, and the
        next burst may be far away.

        Args:
            again: It is the newest window once more, judged anew: counted once, by this verdict.
        """
        if again:
            self._take_back()
        else:
            self._before = _copied(self._seen)
            self._windows += 1
        latest = {advisory.kind: advisory for advisory in given}
        if ALONE & latest.keys():
            self._seen = {kind: s for kind, s in self._seen.items() if kind in ALONE}
        for kind, advisory in latest.items():
            seen = self._seen.setdefault(kind, _Seen(advisory))
            seen.advisory = advisory
            seen.positives += 1
            seen.negatives = 0
            sure = advisory.confidence >= SURE or self._windows == 1
            seen.shown = seen.shown or sure or seen.positives >= APPEARS_AFTER
        for kind in self._seen.keys() - latest.keys():
            seen = self._seen[kind]
            seen.positives = 0
            seen.negatives += 1
        self._seen = {kind: s for kind, s in self._seen.items() if s.negatives < DISAPPEARS_AFTER}

    def _take_back(self) -> None:
        """Uncounts the newest window; what is shown since is shown, or it would flicker."""
        shown = {kind: seen.advisory for kind, seen in self._seen.items() if seen.shown}
        self._seen = _copied(self._before)
        for kind, seen in self._seen.items():
            seen.shown = kind in shown
        for kind, advisory in shown.items():
            seen = self._seen.setdefault(kind, _Seen(advisory, shown=True))
            seen.advisory = advisory

    @property
    def current(self) -> tuple[Advisory, ...]:
        """What to show now: largest bound times confidence first; healthy only when alone."""
        return parted(self._shown(), self._silenced)[0]

    @property
    def quiet(self) -> tuple[Advisory, ...]:
        """What would be shown, had nobody silenced it."""
        return parted(self._shown(), self._silenced)[1]

    def _shown(self) -> list[Advisory]:
        shown = [seen.advisory for seen in self._seen.values() if seen.shown]
        if any(a.saves_at_most for a in shown):
            shown = [a for a in shown if a.kind != HEALTHY]
        return shown


def _copied(seen: dict[str, _Seen]) -> dict[str, _Seen]:
    return {kind: replace(one) for kind, one in seen.items()}


def parted(
    given: Iterable[Advisory], silenced: Collection[str]
) -> tuple[tuple[Advisory, ...], tuple[Advisory, ...]]:
    """Advice to give and advice that was silenced, each best first."""
    ranked = sorted(given, key=rank)
    heard = tuple(one for one in ranked if one.kind not in silenced)
    return heard, tuple(one for one in ranked if one.kind in silenced)


def rank(advisory: Advisory) -> tuple[float, float, str]:
    """Order of advice: largest predicted gain first, else bound times confidence; what saves nothing last."""
    bound = (advisory.saves_at_most or 0.0) * advisory.confidence
    won = bound if advisory.saves is None else advisory.saves
    return (-won, -advisory.confidence, advisory.kind)
