"""What advice keeps to on every recording and trace of this repository."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from brrrtop.analysis.ceilings import ceilings_for
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.replay import Replay
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.widgets.advice import flow
from brrrtop.views import text, whatif
from brrrtop.views.json_report import to_json
from brrrtop.whatif.price import EDITS
from tests.analysis.test_rates import check
from tests.recorded import analyzed

POINT = 0.01
ROOT = Path(__file__).parents[2]
EVERY = [
    path
    for folder in ("tests/recordings", "tests/ranks/traces", "brrrtop/data/demos")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix == ".brrr" or ".json." in path.name
    if path.parent.name not in ("loops", "dlrm")  # of the host alone; read as one job
]
LIVE = sorted((ROOT / "benchmarks" / "gains").glob("h100*/*.brrr"))
read = cache(analyzed)


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def replayed(path: Path) -> Snapshot:
    """At the end."""
    played = Replay(Session(open_source(path)))
    for share in (0.5, 1.0):
        played.seek(share)
        shown = played.advance()
    played.close()
    return shown


def parts(shown: Snapshot) -> dict[str, float]:
    judged = shown.run or shown.estimate
    assert judged is not None
    account = judged.account
    return {bucket: ns / account.duration_ns for bucket, ns in phrases.buckets(account)}


@pytest.mark.parametrize("path", [*EVERY, *LIVE], ids=name)
def test_report_json_screen_and_replay_have_one_figure(path):
    shown = read(path)
    given = json.loads(to_json(shown))
    report = " ".join(text.to_text(shown).split())
    screen = " ".join(line.plain for line in flow(shown.advisories, Palette(), 400, 1000)[1])
    for one, row in zip(shown.advisories, given["advisories"], strict=True):
        assert one.says in report and one.says in " ".join(screen.split())
        if row["saves"] is not None:
            gain = f"{units.times_as_fast(row['saves'])} faster"
            assert gain in report and gain in screen
        cited = re.search(r"\d+(?=%)", one.says)
        if cited and one.saves is not None and 100 * one.saves > int(cited[0]) + 1:
            assert ", and " in one.says, "where the rest of its gain comes from"
    told = {row["edit"]: row for row in given["whatif"]}
    for edit in whatif.ordered(shown)[:5]:  # the table has no more rows of a long list
        recorded = told[edit.edit]["saves_recorded"]  # of a trace; `saves`: without its profiler
        saves = told[edit.edit]["saves"] if recorded is None else recorded
        assert units.times_as_fast(saves) in report
    if path.suffix == ".brrr":
        again = replayed(path)
        assert parts(again) == pytest.approx(parts(shown), abs=POINT)
        gains = {row.edit: row.saves for row in shown.whatif}
        assert {row.edit: row.saves for row in again.whatif} == pytest.approx(gains, abs=POINT)
        assert [one.kind for one in again.advisories] == [one.kind for one in shown.advisories]


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_what_may_lose_comes_last_a_bucket_in_use_is_no_waste_and_no_rate_beats_a_datasheet(path):
    shown = read(path)
    given = [one for one in shown.advisories if one.saves_low is not None]
    sure = [not one.may_lose for one in given]
    assert sure == sorted(sure, reverse=True)
    for one in given:
        assert one.may_lose is ("uncertain" in (whatif.gain(one) or ""))
    assert shown.estimate is not None
    for estimate in shown.devices:
        check(estimate, ceilings_for(estimate.device))
    account = (shown.run or shown.estimate).account
    waste = " ".join(one.waste for one in shown.advisories)
    for bucket, spent_ns in phrases.buckets(account):
        if spent_ns >= 0.05 * account.duration_ns:
            for row in shown.whatif:
                if bucket in EDITS.get(row.edit, EDITS["tf32"]).empties and row.saves_high >= 0:
                    assert f"{row.edit} (" not in waste, (bucket, row)
