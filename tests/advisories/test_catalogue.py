"""The catalogue names every advisory there is, and the page is what it generates."""

from __future__ import annotations

import re
from pathlib import Path

from brrrtop.advisories import catalogue
from brrrtop.advisories.advise import COVERED, GATES, RULES
from brrrtop.advisories.thresholds import DEFAULT
from brrrtop.whatif.price import EDITS, LINES

from . import (
    test_compute,
    test_edits_device,
    test_edits_host,
    test_host,
    test_memory,
    test_trust,
)

ROOT = Path(__file__).resolve().parents[2]
GIVEN = re.compile(r'(?:advisory\(\s*context,\s*|Words\(\s*|    if [^"]*\n\s+else )"([a-z0-9-]+)"')
OF_JOBS = {"straggler"}
"""Given of several ranks: its scenes are jobs, in `tests/ranks`."""
TOPICS = (test_edits_host, test_edits_device, test_host, test_memory, test_compute, test_trust)


def kinds_in_code() -> set[str]:
    texts = (path.read_text() for path in (ROOT / "brrrtop" / "advisories").glob("*.py"))
    return {kind for text in texts for kind in GIVEN.findall(text)}


def test_every_advisory_is_catalogued_once() -> None:
    kinds = [entry.kind for entry in catalogue.ENTRIES]
    assert len(kinds) == len(set(kinds))
    assert kinds_in_code() <= set(kinds)


def test_every_advisory_of_one_rank_is_given_in_a_scene_and_silent_in_another() -> None:
    kinds = {entry.kind for entry in catalogue.ENTRIES} - OF_JOBS
    assert {kind for topic in TOPICS for kind, _ in topic.CASES.calling} == kinds
    assert {kind for topic in TOPICS for kind, _ in topic.CASES.quiet} == kinds


def test_every_edit_is_priced_and_worded() -> None:
    documented = {edit for entry in catalogue.ENTRIES for edit in entry.edits}
    assert documented | {"quiet-host"} == EDITS.keys() == LINES.keys()


def test_the_page_tells_the_limits_that_apply() -> None:
    assert f"{DEFAULT.worth_share:.0%}".replace("%", " %") in catalogue.WORTH
    assert f"{DEFAULT.worth_step_ns / 1e6} ms" in catalogue.WORTH


def test_every_rule_is_a_function_of_its_own() -> None:
    assert len({*RULES, *GATES}) == len(RULES) + len(GATES)


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
