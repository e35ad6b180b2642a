"""What other tools, and sweeps apart from this code, say of public traces, against the report.

HolisticTraceAnalysis rounds starts up and ends down to microseconds: of each activity it may lose
one, so that its idle time is that much longer and its compute time that much shorter.
"""

from pathlib import Path

import numpy as np
import pytest

from brrrtop.cli.files import read
from brrrtop.cli.options import Options
from brrrtop.model.estimate import Estimate
from brrrtop.sources.importers.kineto import source
from brrrtop.sources.registry import open_source
from collectors.vocabulary import MarkClass
from tests.session.handmade import Received


def _file(traces: Path, name: str) -> Path:
    path = traces / "peers" / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"{name} is not there")
    return path


def _judged(traces: Path, name: str) -> Estimate:
    return read(str(_file(traces, name)), Options()).estimate


def _lead_ns(estimate: Estimate, received: Received) -> int:
    """Time of steps' marks before the first activity and after the last: others count from activity on."""
    tables = [table for table in (received.kernels, received.copies) if len(table)]
    first = min(int(table["start_ns"].min()) for table in tables)
    last = max(int(table["end_ns"].max()) for table in tables)
    return max(0, first - estimate.span.t0_ns) + max(0, estimate.span.t1_ns - last)


def _compute_ns(received: Received) -> int:
    """Union of the kernels that are no collectives."""
    nccl = np.array(["nccl" in received.names[int(i)] for i in received.kernels["name_id"]])
    rows = np.sort(received.kernels[~nccl], order="start_ns")
    ends = np.maximum.accumulate(rows["end_ns"])
    reach = np.concatenate([rows["start_ns"][:1], ends[:-1]])
    return int(np.maximum(ends - np.maximum(rows["start_ns"], reach), 0).sum())


@pytest.mark.parametrize(
    ("name", "idle_us", "compute_us", "rounded"),
    [
        ("hta-v100-large", 732_352, 620_516, False),  # written in whole microseconds
        ("hta-a100-resnet-ddp", 506_512, 113_012, True),
        ("hta-v100-resnet-ns", 12_143, 464_915, True),
    ],
)
def test_idle_and_compute_time_are_those_of_hta(traces, name, idle_us, compute_us, rounded):
    received = Received(open_source(_file(traces, name)))
    lost_us = len(received.kernels) + len(received.copies) if rounded else 0
    estimate = _judged(traces, name)
    idle = (estimate.account.idle_total_ns - _lead_ns(estimate, received)) / 1000
    assert -0.5 <= idle_us - idle <= lost_us
    assert -0.5 <= _compute_ns(received) / 1000 - compute_us <= lost_us


@pytest.mark.parametrize(
    ("name", "share"), [("hta-a100-resnet-ddp", 0.0599), ("hta-v100-large", 0.2062)]
)
def test_exposed_communication_is_that_of_a_sweep(traces, name, share):
    """Within 0.1 %: copies on the device count as work here, and hide what runs beside them."""
    estimate, received = _judged(traces, name), Received(open_source(_file(traces, name)))
    duration_ns = estimate.account.duration_ns - _lead_ns(estimate, received)
    assert estimate.account.exposed_comm_ns / duration_ns == pytest.approx(share, abs=1e-3)


def test_every_event_of_a_large_trace_is_read(traces):
    collected, _, _ = source.read(_file(traces, "hta-v100-large"))
    assert collected.event_count == 216_092


def test_pageable_uploads_take_most_of_the_gpus_time(traces):
    dearest = _judged(traces, "hta-a100-alexnet").kernels[0]
    assert dearest.name == "Memcpy HtoD (Pageable -> Device)" and dearest.count == 16
    assert dearest.share == pytest.approx(0.838, abs=1e-3)


def test_steps_have_the_numbers_they_were_given(traces):
    received = Received(open_source(_file(traces, "hta-v100-resnet-ns")))
    steps = received.marks[received.marks["mark_class"] == int(MarkClass.STEP)]
    assert steps["value"].tolist() == [101, 102, 103, 104, 105]


def test_the_loader_takes_what_the_tensorboard_plugin_says(traces):
    """33.37 % of a step of 177,592 us, in which neither kernel nor copy runs; kernels 55.51 %.

    The plugin counts the first step's wait, which ends before the first kernel and so the account.
    """
    name = "kineto-v100-resnet50-workers0"
    estimate, text = _judged(traces, name), Received(open_source(_file(traces, name)))
    waits = text.marks[text.marks["mark_class"] == int(MarkClass.INPUT)]
    early = waits[waits["end_ns"] < text.kernels["start_ns"].min()]
    before = early[early["end_ns"] <= estimate.span.t0_ns]  # else it is in the account
    waited_ns = int((before["end_ns"] - before["start_ns"]).sum())
    steps_ns = 6 * 177_592_000
    assert estimate.steps.count == 6
    assert len(early) == 1 and len(waits) == 6
    waited_ns += estimate.account.idle_ns["input"]
    assert waited_ns / steps_ns == pytest.approx(0.3337, abs=5e-3)
    assert _compute_ns(text) / steps_ns == pytest.approx(0.5551, abs=5e-4)
