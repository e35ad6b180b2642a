"""What advice keeps to on every recording and trace of this repository."""

from pathlib import Path

import pytest

from brrrtop.text import phrases
from brrrtop.views import whatif
from brrrtop.whatif.price import EDITS
from tests.recorded import analyzed

ROOT = Path(__file__).parents[2]
EVERY = [
    path
    for folder in ("tests/recordings", "tests/ranks/traces", "brrrtop/data/demos")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix == ".brrr" or ".json." in path.name
    if path.parent.name not in ("loops", "dlrm")  # of the host alone; read as one job
]


@pytest.mark.parametrize("path", EVERY, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_what_may_lose_comes_last_and_a_bucket_in_use_is_no_waste(path: Path) -> None:
    shown = analyzed(path)
    given = [one for one in shown.advisories if one.saves_low is not None]
    sure = [not one.may_lose for one in given]
    assert sure == sorted(sure, reverse=True)
    for one in given:
        assert one.may_lose is ("uncertain" in (whatif.gain(one) or ""))
    assert shown.estimate is not None
    account = (shown.run or shown.estimate).account
    waste = " ".join(one.waste for one in shown.advisories)
    for bucket, spent_ns in phrases.buckets(account):
        if spent_ns >= 0.05 * account.duration_ns:
            for row in shown.whatif:
                if bucket in EDITS.get(row.edit, EDITS["tf32"]).empties and row.saves_high >= 0:
                    assert f"{row.edit} (" not in waste, (bucket, row)
