"""`brrrtop receipt`: where the GPU time went, and what could be won, in a slip of 60 columns."""

from __future__ import annotations

import json
import re

from msgspec.structs import replace

from brrrtop.cli.commands import demo
from brrrtop.views import receipt
from tests.cli.conftest import Run
from tests.tui import snapshots


def test_causes_add_up_to_the_time_and_the_gain_names_its_line(brrrtop: Run) -> None:
    done = brrrtop("receipt", str(demo.scenarios()["sync-bound"]))
    rows = done.stdout.splitlines()
    assert max(map(len, rows)) <= receipt.WIDTH and done.returncode == 0
    shares = [int(one) for one in re.findall(r"^  .*?(\d+)%", done.stdout, re.MULTILINE)]
    assert 95 <= sum(shares) <= 105
    assert "could be won" in done.stdout and re.search(r"\.py:\d+", done.stdout)
    whole = json.loads(brrrtop("receipt", str(demo.scenarios()["sync-bound"]), "--json").stdout)
    assert whole == {"schema": "brrrtop.receipt/1", "lines": rows}


def test_all_gpus_count_and_what_nobody_judged_has_no_figures() -> None:
    one = snapshots.snapshot()
    assert one.estimate is not None
    single, _ = receipt.totals(receipt.estimates(one))
    both = replace(one, devices=(one.estimate, one.estimate))
    assert receipt.totals(receipt.estimates(both))[0] == 2 * single
    assert "2 × NVIDIA H200" in "\n".join(receipt.lines(both))
    assert not any("%" in line for line in receipt.lines(snapshots.waiting()))
    healthy = "\n".join(receipt.lines(snapshots.healthy()))
    assert "nothing known here wins 5%" in healthy
