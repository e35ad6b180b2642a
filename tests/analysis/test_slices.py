"""Turns that another process took in the middle of recorded kernels: nothing is judged by them."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.advisories.advise import advise
from brrrtop.analysis.estimate import estimate
from brrrtop.model.estimate import Regime
from brrrtop.model.tables import Span, Window
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from brrrtop.text import phrases
from brrrtop.timeline.timeline import COUNT_HOLDS_NS, Timeline
from brrrtop.views.text import to_text
from collectors.gpu import devices
from collectors.process import proc
from collectors.protocol.frames import Decoder, Frame, Kind, encode
from collectors.vocabulary import MPS, Metric
from tests.analysis.build import K, window

FOLDER = Path(__file__).resolve().parents[1] / "recordings" / "neighbours"
"""The same GPT on an H200: `two` while another trainer computed there, `one` after it went."""


def recorded(name: str) -> Window:
    timeline = Timeline()
    for frame in open_source(FOLDER / f"{name}.brrr").frames():
        timeline.add(frame)
    return timeline.window(Span(timeline.first_ns or 0, timeline.last_ns or 0), 0)


def counted(beside: Window, others: float | None) -> Window:
    """The same with so many other processes on the GPU; None: nobody counted."""
    rows = beside.gauges.metrics == Metric.FOREIGN_PROCESS_COUNT
    if others is None:
        return replace(beside, gauges=beside.gauges.take(~rows))
    values = np.where(rows, others, beside.gauges.values)
    return replace(beside, gauges=replace(beside.gauges, values=values))


def test_beside_a_neighbour_that_computes_nothing_is_judged():
    judged = estimate(recorded("two"))
    result = judged.estimate
    assert result.shared
    assert (result.regime, result.cause) == (Regime.UNKNOWN, "other_process")
    (advice,) = advise(judged).given
    assert (advice.kind, advice.says, advice.saves) == ("shared-gpu", phrases.SHARED, None)
    report = to_text(analyze(open_source(FOLDER / "two.brrr")))
    assert f"UNKNOWN: {phrases.SHARED}" in " ".join(report.split())


def test_a_kernel_that_is_as_long_in_each_step_was_not_stopped():
    """A norm over larger images, beside a process that only holds memory there."""
    path = FOLDER.parents[2] / "benchmarks" / "gains" / "h100" / "tv_resnet50_bf16.brrr"
    assert analyze(open_source(path)).advisories[0].kind != "shared-gpu"


def test_a_neighbour_that_rests_changes_nothing():
    beside, alone = (estimate(counted(recorded("one"), others)) for others in (1, None))
    assert not beside.estimate.shared
    assert beside.estimate.regime is alone.estimate.regime is not Regime.UNKNOWN
    assert beside.estimate.kernels == alone.estimate.kernels


@pytest.mark.parametrize("others", [0, None])
def test_nobody_counted_or_none_there_is_no_neighbour(others):
    assert not estimate(counted(recorded("two"), others)).estimate.shared


@pytest.mark.parametrize(("longer_ms", "shared"), [(1.5, False), (2.5, True)])
def test_one_kernel_that_lasts_a_turn_longer_than_its_like_tells(longer_ms, shared):
    kernels = [K(i * 5_000_000, i * 5_000_000 + 300_000) for i in range(20)]
    kernels[7] = K(35_000_000, 35_300_000 + round(longer_ms * 1e6))
    assert estimate(window(kernels, others=[(0, 1)])).estimate.shared == shared


def test_under_mps_nobody_takes_turns():
    assert not estimate(replace(recorded("two"), mps=True)).estimate.shared


@pytest.mark.parametrize("with_facts", [True, False])
def test_that_a_gpu_is_shared_through_mps_reaches_the_window(monkeypatch, with_facts):
    """From a sampler, and from a recording of before there were facts beside the sentences."""
    monkeypatch.setattr(proc, "name_of", lambda pid: "nvidia-cuda-mps")
    here = devices.tenants([5], None)
    assert here.message is not None and here.mps
    body = {"gauges": [here.message], **({"facts": [MPS]} if with_facts else {})}
    if with_facts:
        body["gauges"] = ["another sentence"]
    (status,) = Decoder().feed(encode(Frame(Kind.STATUS, body, 1)))
    timeline = Timeline()
    for frame in open_source(FOLDER / "two.brrr").frames():
        timeline.add(frame)
    span = Span(timeline.first_ns or 0, timeline.last_ns or 0)
    assert not timeline.window(span, 0).mps
    timeline.add(replace(status, sent_ns=span.t1_ns))
    assert timeline.window(span, 0).mps
    (status,) = Decoder().feed(encode(Frame(Kind.STATUS, {"gauges": []}, 1)))
    timeline.add(replace(status, sent_ns=span.t1_ns))
    assert not timeline.window(span, 0).mps


def test_the_count_before_a_burst_holds_in_it_for_a_while():
    """They are counted every 5 s; a burst takes a few tenths of one."""
    timeline = Timeline()
    for frame in open_source(FOLDER / "two.brrr").frames():
        timeline.add(frame)
    last = timeline.newest_ns or 0
    counts = [
        timeline.window(Span(last + late, last + late + 1), 0).gauges
        for late in (0, COUNT_HOLDS_NS + 1)
    ]
    buffered, forgotten = ((one.metrics == Metric.FOREIGN_PROCESS_COUNT).sum() for one in counts)
    assert (buffered, forgotten) == (1, 0)
