"""The JSON of recorded traces: whole, and adding up to the nanosecond."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from brrrtop.cli.files import read
from brrrtop.cli.options import Options
from brrrtop.errors import BadInput
from brrrtop.views.json_report import to_json
from brrrtop.views.text import to_text

NO_GPU_WORK = {"hta-cpu-only"}


def test_every_trace_adds_up_and_fits(traces: Path) -> None:
    files = sorted(traces.rglob("*.json.gz"))
    assert files
    for path in files:
        if path.name.removesuffix(".json.gz") in NO_GPU_WORK:
            with pytest.raises(BadInput):
                read(str(path), Options())
            continue
        snapshot = read(str(path), Options())
        report = json.loads(to_json(snapshot))
        for one in (report, *report.get("devices", [])):
            account = one["account"]
            booked = sum(value for key, value in account.items() if key != "idle_ns")
            booked += sum(account["idle_ns"].values())
            assert booked == one["window"]["duration_ns"], path.name
            assert sum(one["split"].values()) == pytest.approx(1, abs=1e-9), path.name
            assert 0 <= one["busy_ns"] <= one["window"]["duration_ns"]
            assert sum(row["total_ns"] for row in one["kernels"]) > 0
        text = to_text(snapshot)
        assert max(map(len, text.splitlines())) <= 80, path.name
