"""Two ranks in one file, whose calls and threads have the same numbers."""

import gzip
import json
from pathlib import Path

import pytest

from brrrtop.model.snapshot import Snapshot
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from tests.analysis.test_steady_part import Trace


def _rank(device: int, begin: int, waits: bool) -> Trace:
    trace = Trace()
    for number in range(4):
        start = begin + number * 20_000
        trace.step(number, start + 10_000 * waits, 10_000 if waits else 20_000)
        trace.events[-17]["ts"], trace.events[-17]["dur"] = start, 20_000
        if waits:
            trace.host("user_annotation", "enumerate(DataLoader)#_It.__next__", start, 9_900)
    for event in trace.events:
        if event["cat"] == "kernel":
            event["args"]["device"] = event["pid"] = device
        else:
            event["pid"] = 100 + device
    return trace


def _judged(folder: Path, traces: list[Trace], device: int | None = None) -> Snapshot:
    events = [event for trace in traces for event in trace.events]
    document = {"distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": events}
    path = folder / "m.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return analyze(open_source(path), device=device)


@pytest.mark.parametrize("device", [0, 7])
def test_each_gpu_of_a_merged_file_is_as_if_it_were_alone(tmp_path, device):
    both = [_rank(0, 0, waits=False), _rank(7, 3_000, waits=True)]
    merged = _judged(tmp_path, both, device).estimate
    alone = _judged(tmp_path, both[1:] if device else both[:1]).estimate
    assert merged.account == alone.account
    assert (merged.account.idle_ns["input"] > 0) is (device == 7)
    assert merged.steps.count == alone.steps.count == 4


def test_a_merged_file_says_so_and_names_no_rank(tmp_path):
    shown = _judged(tmp_path, [_rank(0, 0, waits=False), _rank(7, 3_000, waits=True)])
    assert shown.source.rank is None
    assert any("Several processes in one file: GPU 0, 7" in note for note in shown.source.notes)
