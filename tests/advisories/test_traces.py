"""Recorded runs with a known plant: all of it found, nothing said that must not be said.

Each trace is also judged as a live monitor sees the same run: without shapes, ops or ranges.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.advisories.advise import advise
from brrrtop.analysis.estimate import estimate
from brrrtop.model.tables import Links, Marks, Span, Window
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from brrrtop.timeline.timeline import Timeline
from collectors.vocabulary import CallClass, MarkClass

PLANTED = [
    "gpt_bf16",
    "gpt_bf16_compiled",
    "resnet50_fp32",
    "misaligned_gemm",
    "naive_attention",
    "pointwise_chain",
    "tiny_mlp",
    "slow_loader",
    "item_sync",
    "unpinned_h2d",
]
MEASURED_SINCE = {"gpt_bf16": ["fuse-pointwise"]}
"""Was planted as healthy: compiled, its step takes 33.4 ms instead of 36.7."""
LAUNCHING = ("tiny_mlp", "item_sync")
"""Launches set the pace of these: a CUDA graph and twice the batch win more than what was planted."""
LIVE_CALLS = (CallClass.LAUNCH, CallClass.GRAPH_LAUNCH, CallClass.SYNC, CallClass.COPY)


def recorded(folder: Path, name: str) -> Window:
    source = open_source(folder / f"{name}.trace.json.gz")
    timeline = Timeline()
    for frame in source.frames():
        timeline.add(frame)
    source.close()
    assert timeline.first_ns is not None and timeline.last_ns is not None
    span = Span(timeline.first_ns, timeline.last_ns)
    return timeline.window(span, timeline.active_devices(span)[0])


def as_live(window: Window) -> Window:
    """Without what only a profiler records: ops, shapes, optimizer ranges; steps as points."""
    marks = window.marks
    ended = np.unique(marks.ends_ns[marks.classes == MarkClass.OPTIMIZER])
    tids = marks.tids[marks.classes == MarkClass.OPTIMIZER]
    inputs = marks.take(marks.classes == MarkClass.INPUT)
    none = np.zeros(len(ended), np.int64)
    joined = Marks(
        np.concatenate((inputs.starts_ns, ended)),
        np.concatenate((inputs.ends_ns, ended)),
        np.concatenate((inputs.values, none)),
        np.concatenate((inputs.tids, none + int(tids[0]))),
        np.concatenate((inputs.name_ids, none)),
        np.concatenate((inputs.classes, none + int(MarkClass.STEP))).astype(np.int32),
    )
    empty = np.empty(0, np.int64)
    return replace(
        window,
        marks=joined.take(np.argsort(joined.starts_ns, kind="stable")),
        calls=window.calls.take(np.isin(window.calls.classes, LIVE_CALLS)),
        links=Links(empty, empty),
        ops={},
    )


@pytest.mark.parametrize("live", [False, True], ids=["recorded", "live"])
@pytest.mark.parametrize("name", PLANTED)
def test_the_plant_is_found_and_nothing_forbidden_is_said(
    traces: Path, name: str, live: bool
) -> None:
    truth = json.loads((traces / f"{name}.meta.json").read_text())["truth"]
    window = recorded(traces, name)
    wanted = MEASURED_SINCE.get(name, truth["advice"])
    given = {a.kind: a for a in advise(estimate(as_live(window) if live else window)).given}
    assert set(wanted) <= given.keys()
    assert not set(truth["not_advice"]) & given.keys()
    if wanted == ["none-healthy"]:
        assert list(given) == wanted
    elif name not in LAUNCHING:
        assert next(iter(given)) in wanted


@pytest.mark.parametrize("name", ["kineto-v100-resnet50-workers0"])
def test_what_the_loader_won_in_public_pairs_is_predicted(traces: Path, name: str) -> None:
    """The same program with four workers: 176 ms a step became 128 in one recording, 122 in another."""
    source = open_source(traces / "peers" / f"{name}.json.gz")
    snapshot = analyze(source)
    source.close()
    row = next(row for row in snapshot.whatif if row.edit == "loader-ready")
    assert 0.25 <= row.saves <= 0.34
    assert row.saves_low <= 0.27 and row.saves_high >= 0.32
    assert "dataloader-stall" in [one.kind for one in snapshot.advisories][:2]
