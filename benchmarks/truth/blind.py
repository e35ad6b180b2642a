"""The scripts written blind: what was predicted, said of them at first sight and since, and what
mending a plant won.

The first is in TRUTH, the second and the step times in benchmarks/results/h200-blind.json, by round
(`sets`), and what is said since comes from the recordings: with the estimator and the advisories that
those misses were mended in. Of the later rounds no fixes were written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.truth.runs import BLIND
from brrrtop.model import Snapshot
from brrrtop.session.opening import open_source
from brrrtop.session.whole import analyze

FIRST_SIGHT = Path(__file__).resolve().parents[1] / "results" / "h200-blind.json"
"""What was said of the scripts before anything of them was read, with their step times before and
after their fixes (the undisturbed loop)."""
HEAD = (
    "| script | predicted | said at first sight | said since | the plant's advice at first sight: at"
    " most | its fix won |",
    "|---|---|---|---|--:|--:|",
)


def first_sight() -> dict[str, dict[str, Any]]:
    """FIRST_SIGHT by round: `text`, sentences for the table, and by script what they rest on."""
    rounds: dict[str, dict[str, Any]] = json.loads(FIRST_SIGHT.read_text())["rounds"]
    return rounds


def said_since() -> dict[str, Snapshot]:
    """What is said of the recordings, by script."""
    found = {}
    for path in sorted(BLIND.glob("*.brrr")):
        source = open_source(path)
        found[path.stem] = analyze(source)
        source.close()
    return found


def won(one: dict[str, Any]) -> float | None:
    """Share of the step that mending the plant won; None for a healthy script."""
    return 1 - one["fixed"]["step_ms"] / one["step_ms"] if "fixed" in one else None


def promised(one: dict[str, Any]) -> float | None:
    """The most that the plant's advice (the first predicted) said it saves, at first sight; None where
    it was not given or promises nothing."""
    given = {a["id"]: a["saves_at_most"] for a in one["said"]["advice"]}
    return next((given.get(kind) or None for kind in one["truth"]["advice"][:1]), None)


def section() -> list[str]:
    """The tables of predictions, a round each, and their sums."""
    since = said_since()
    lines = ["## Predictions of the scripts written blind"]
    for title, seen in first_sight().items():
        lines += ["", f"{title.capitalize()}:", "", *HEAD, *_lines(seen["scripts"], since)]
        lines += ["", _sum(seen["scripts"], since)]
    return lines


def _lines(scripts: dict[str, Any], since: dict[str, Snapshot]) -> list[str]:
    lines = []
    for name, one in scripts.items():
        ids = [a["id"] for a in one["said"]["advice"]]
        now = since[name]
        cells = [
            name,
            _said(one["truth"]["regime"], one["truth"]["advice"], one["truth"]),
            _said(one["said"]["regime"], ids, one["truth"]),
            _said(now.estimate.regime.value, [a.kind for a in now.advisories], one["truth"]),
            _share(promised(one)),
            _share(won(one)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _said(regime: str, advice: Iterable[str], truth: dict[str, Any]) -> str:
    sign = "" if regime == truth["regime"] else " ✗"
    marked = [f"**{a}**" if a in truth["advice"] else a for a in advice]
    marked = [f"{a} ✗" if a in truth["not_advice"] else a for a in marked]
    return f"{regime}{sign}: {', '.join(marked) or '–'}"


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _sum(scripts: dict[str, Any], since: dict[str, Snapshot]) -> str:
    wanted = sum(len(one["truth"]["advice"]) for one in scripts.values())
    pairs = [(p, w) for one in scripts.values() if (p := promised(one)) and (w := won(one))]
    held = sum(w <= p + 0.01 for p, w in pairs)
    half = sum(w >= p / 2 for p, w in pairs)
    regimes = sum(
        since[name].estimate.regime.value == one["truth"]["regime"] for name, one in scripts.items()
    )
    kinds = {name: {a.kind for a in told.advisories} for name, told in since.items()}
    given = sum(len(kinds[name] & {*one["truth"]["advice"]}) for name, one in scripts.items())
    wrong = sum(len(kinds[name] & {*one["truth"]["not_advice"]}) for name, one in scripts.items())
    said = (
        f"Said since: regime as predicted {regimes} of {len(scripts)}, {given} of the {wanted} predicted"
        f" pieces of advice, {wrong} that must not be given."
    )
    if not pairs:
        return said
    return (
        f"{said} Of {len(pairs)} plants named at first sight whose advice has a bound, {held} won no more"
        f" than it, to a point, and {half} at least half of it."
    )
