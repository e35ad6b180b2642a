"""The catalogue names every advisory there is, and the page is what it generates."""

from __future__ import annotations

import re
from pathlib import Path

from brrrtop.advisories import catalogue
from brrrtop.advisories.advise import COVERED, GATES, RULES

ROOT = Path(__file__).resolve().parents[2]
GIVEN = re.compile(r'(?:advisory\(\s*context,\s*|kind=)"([a-z0-9-]+)"')


def kinds_in_code() -> set[str]:
    texts = (path.read_text() for path in (ROOT / "brrrtop" / "advisories").glob("*.py"))
    return {kind for text in texts for kind in GIVEN.findall(text)}


def test_every_advisory_is_catalogued_once() -> None:
    kinds = [entry.kind for entry in catalogue.ENTRIES]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) == kinds_in_code()


def test_every_rule_is_asked() -> None:
    """All kinds but the healthy verdict and the straggler, which other callers ask for."""
    assert len(RULES) + len(GATES) + 2 == len(catalogue.ENTRIES)


def test_what_is_published_as_given_has_somebody_who_asks_it() -> None:
    """A rule that only tests call is listed as not given yet."""
    texts = [path.read_text() for path in (ROOT / "brrrtop").rglob("*.py")]
    asked = any(re.search(r"(?<!def )\bstraggler\(", text) for text in texts)
    (straggler,) = [entry for entry in catalogue.ENTRIES if entry.kind == "straggler"]
    assert straggler.is_given is asked
    assert all(entry.is_given for entry in catalogue.ENTRIES if entry is not straggler)


def test_advice_that_covers_another_is_catalogued() -> None:
    known = {entry.kind for entry in catalogue.ENTRIES}
    assert {*COVERED, *(kind for kinds in COVERED.values() for kind in kinds)} <= known


def test_the_page_is_current() -> None:
    page = (ROOT / catalogue.PAGE).read_text(encoding="utf-8")
    assert page == catalogue.page(), "run: python -m brrrtop.advisories.catalogue"


def test_every_threshold_says_why() -> None:
    text = (ROOT / "brrrtop" / "advisories" / "thresholds.py").read_text()
    fields = re.findall(r"^    (\w+): (?:float|int) = .*\n    \"\"\"(.*)", text, re.MULTILINE)
    assert len(fields) == len(re.findall(r"^    \w+: (?:float|int) = ", text, re.MULTILINE))
    assert all(reason.strip() for _, reason in fields)
