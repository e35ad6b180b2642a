"""A figure has one value: all screens of a demo are read, and numbers of one name are compared."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from brrrtop.cli.commands.replay import scenarios
from tests.recorded import analyzed
from tests.tui.shown import shown

SCREENS = ("1", "C", "w", "a", "L", "i", "r", "T")
NAMES = {
    "run": r"^run +\S+(?: s)? +(\S+ ?\D+?\d+%)",
    "time a step": r"^(?:.* · )?([\d.,]+ [mµn]?s)/step ·",
    "idle": r"GPU idle (\d+%)",
    "gain of the first edit": r"^ +about ([\d.]+×) faster",
    "how sure": r"(?:sure|a guess) (\d+%)$",
    "ghost": r"the ghost is ([\d,]+) steps? ahead",
    "recoverable": r"([\d.:]+ ?m?s? of [\d.:]+ ?m?s?) recoverable",
}


@pytest.mark.parametrize("name", [name for name, path in scenarios().items() if path.is_file()])
async def test_numbers_of_one_name_are_the_same_on_every_screen(name: str) -> None:
    snapshot = analyzed(scenarios()[name])
    seen: dict[str, set[str]] = defaultdict(set)
    async with shown(snapshot, size=(120, 40)) as screen:
        for key in SCREENS:
            text = await screen.press("1", key)
            for what, pattern in NAMES.items():
                seen[what] |= set(re.findall(pattern, text.replace("│", " "), re.MULTILINE))
    if name == "input-bound":
        assert all(seen[what] for what in NAMES), "every name is read somewhere"
    assert len(seen["run"]) == len(seen["how sure"]) == 1
    assert {what: values for what, values in seen.items() if len(values) > 1} == {}
    first = next(iter(snapshot.advisories), None)
    if first is not None and first.saves and seen["gain of the first edit"]:
        row = next((one for one in snapshot.whatif if one.advisory == first.kind), None)
        assert row is None or row.saves == pytest.approx(first.saves, abs=0.005)
