"""The published table of live runs says what the published findings say."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import live_table

RESULTS = Path(live_table.__file__).parent / "results"


def test_the_table_of_live_runs_is_that_of_its_findings() -> None:
    rows = json.loads((RESULTS / "h200-live.json").read_text("utf-8"))
    assert {one["script"] for one in rows} == live_table.PLANTED.keys()
    text = (RESULTS / "h200-live.md").read_text("utf-8")
    assert text.endswith(live_table.markdown(rows, note=""))


def test_advice_counts_as_given_when_all_that_is_planted_stands() -> None:
    early = {"script": "resnet50_fp32", "first_advice_s": {"enable-tf32-or-amp": 1.9}}
    assert live_table.advised_s(early) is None
    both = {"enable-tf32-or-amp": 1.9, "channels-last": 5.9, "underfilled-kernels": 7.0}
    assert live_table.advised_s(early | {"first_advice_s": both}) == 5.9
