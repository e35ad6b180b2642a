"""The shapes of one step are evidence for the kernels of all others, and that step for nothing."""

from collections import Counter

import pytest

from brrrtop.analysis.estimate import Analysis, estimate
from brrrtop.cli.commands.replay import scenarios
from brrrtop.model.tables import Span, Window
from brrrtop.session.session import Session
from brrrtop.sources.recording import RecordingWriter
from brrrtop.sources.registry import open_source
from brrrtop.timeline.timeline import Timeline
from tests.memory_source import MemorySource
from tests.recorded import analyzed, timeline_of
from tests.timeline.shaped import ADD, DEEP, FORWARD, GRADIENT, STEP, STEP_NS, Trainer

SECOND = 1_000_000_000


def _read(trainer: Trainer) -> Timeline:
    timeline = Timeline()
    for frame in trainer.frames:
        timeline.add(frame)
    return timeline


def _judged(timeline: Timeline, span: Span | None = None) -> Analysis:
    return estimate(timeline.window(span or Span(timeline.first_ns or 0, timeline.last_ns or 0), 0))


def _window(timeline: Timeline) -> Window:
    """All that was traced, steps that were cut too."""
    return timeline.window(Span(timeline.first_ns or 0, timeline.last_ns or 0), 0)


def _dims(window: Window) -> list[object]:
    """Of each kernel in order of its start: the shapes of its op, None without one."""
    ops = dict(zip(window.links.correlations.tolist(), window.links.op_ids.tolist(), strict=True))
    result = [ops.get(c) for c in window.activities.correlations.tolist()]
    return [None if op is None else window.ops[op].dims for op in result]


def _of(*kernels: object) -> list[object]:
    return [one.dims for one in kernels]  # type: ignore[attr-defined]


def test_kernels_before_and_after_get_the_op_of_their_place():
    trainer = Trainer().steps(4).pause().steps(6, shapes=3).pause().steps(4)
    timeline = _read(trainer)
    dims = _dims(_window(timeline))
    assert dims == _of(*STEP) * (4 + 3 + 4), "the step recorded, and those behind, are out"
    judged = _judged(timeline)
    assert judged.estimate.evidence_shares["L2"] == pytest.approx(1.0)
    products = {g.inner for g in judged.facts.labels.groups if g.inner}
    assert products == {(4096, 4096, 4096), (4096, 4096, 16384), (4096, 4096, 512)}
    assert {g.precision for g in judged.facts.labels.groups} == {"bf16"}, "the kernel's name tells"


def test_without_the_recording_the_same_kernels_rest_on_their_names():
    judged = _judged(_read(Trainer().steps(4).pause().steps(6).pause().steps(4)))
    assert "L2" not in judged.estimate.evidence_shares


def test_the_step_that_was_recorded_is_in_no_statistic():
    plain = _judged(_read(Trainer().steps(6).pause().steps(3))).estimate
    slowed = _judged(_read(Trainer().steps(6).pause().steps(6, shapes=3, slow=40))).estimate
    assert slowed.steps.step_ns == STEP_NS
    assert {span.duration_ns for span in slowed.steps.spans} == {STEP_NS}
    steps = [one.account.duration_ns / STEP_NS for one in (plain, slowed)]
    assert steps == pytest.approx([round(count) for count in steps], rel=0.01), "whole steps"
    idle = [sum(one.account.idle_ns.values()) / one.account.duration_ns for one in (plain, slowed)]
    assert idle[0] == pytest.approx(idle[1], rel=0.03)
    kernels = [sum(row.count for row in one.kernels) for one in (plain, slowed)]
    assert kernels == [round(count) * len(STEP) for count in steps]


def test_a_step_of_another_length_lends_its_ops_only_where_the_count_agrees():
    other = (FORWARD, ADD, DEEP, FORWARD, GRADIENT, GRADIENT)
    trainer = Trainer().steps(5, shapes=2).pause().steps(3, step=other)
    judged = _judged(_read(trainer))
    late = _dims(judged.facts.window)[-3 * len(other) :]
    assert late == [None if one is ADD else one.dims for one in other] * 3


def test_a_kernel_that_was_not_in_the_recorded_step_has_no_op():
    larger = tuple(
        one if one is not FORWARD else type(one)(one.name, one.op, one.dims, 2_640) for one in STEP
    )
    judged = _judged(_read(Trainer().steps(5, shapes=2).pause().steps(2, step=larger)))
    late = _dims(judged.facts.window)[-2 * len(STEP) :]
    assert [one is None for one in late] == [one.blocks == 2_640 or one.blocks == 1_320
                                             for one in larger] * 2  # fmt: skip


def test_steps_that_tracing_cut_are_read_from_the_end_that_was_seen():
    trainer = Trainer().steps(5, shapes=2).pause().steps(4, skip_first=3, keep_last=4)
    late = _dims(_window(_read(trainer)))[-(2 * len(STEP) + 8) :]
    assert late == _of(*STEP[3:], *STEP, *STEP, *STEP[:4])


def test_a_host_far_ahead_of_its_device_changes_nothing():
    trainer = Trainer(lead_ns=15 * STEP_NS).steps(6).pause().steps(6, shapes=3).pause().steps(6)
    result = Counter(_dims(_window(_read(trainer))))
    assert None not in result and result[DEEP.dims] == 12


def test_the_backward_thread_is_known_by_its_launches():
    judged = _judged(_read(Trainer().steps(5, shapes=2).pause().steps(3)))
    assert Counter(_dims(judged.facts.window)[-3 * len(STEP) :])[GRADIENT.dims] == 6


@pytest.mark.parametrize(
    ("trainer", "says"),
    [
        (Trainer().steps(5, shapes=2, lose=1), "a part of the recorded ops was lost"),
        (
            Trainer().steps(4).steps(3, shapes=1, traced=False).pause(1_000).steps(2),
            "no kernels were traced in the step that was recorded",
        ),
        (
            Trainer().pause(9).steps(3, shapes=0).pause(),
            "tracing began only after the step that was recorded",
        ),
    ],
)
def test_a_recording_that_cannot_be_joined_says_so(trainer, says):
    session = Session(MemorySource(trainer.frames))
    snapshot = session.advance(trainer.now_ns + SECOND)
    message = [event.says for event in snapshot.events if event.kind == "shapes"]
    assert message == [f"no shapes: {says}"]
    assert not snapshot.estimate or "L2" not in snapshot.estimate.evidence_shares


def test_ops_that_come_after_the_burst_are_used_at_once_and_told_once():
    trainer = Trainer().steps(4).pause(60).steps(6, shapes=3, late_ns=SECOND // 2)
    session = Session(MemorySource(trainer.frames))
    before = session.advance(trainer.now_ns - SECOND // 4)
    assert before.estimate is not None and "L2" not in before.estimate.evidence_shares
    after = session.advance(trainer.now_ns)
    assert after.estimate.evidence_shares["L2"] == pytest.approx(1.0)
    again = session.advance(trainer.now_ns + SECOND)
    message = [event.says for event in again.events if event.kind == "shapes"]
    assert message == ["shapes of one step recorded: 7 ops, 100% of kernel time now L2"]


def test_a_second_recording_replaces_the_first():
    longer = (*STEP, ADD)
    trainer = Trainer().steps(5, shapes=2).pause().steps(5, shapes=2, step=longer).pause()
    trainer.steps(3, step=longer)
    judged = _judged(_read(trainer))
    assert _dims(judged.facts.window)[-3 * len(longer) :] == _of(*longer) * 3


def test_a_recording_of_it_replays_to_the_same(tmp_path):
    trainer = Trainer().steps(4).pause(60).steps(6, shapes=3).pause(60).steps(4)
    file = tmp_path / "run.brrr"
    with RecordingWriter(file) as writer:
        for frame in trainer.frames:
            writer.write(frame)
    assert _dims(_window(timeline_of(file))) == _dims(_window(_read(trainer)))
    snapshot = Session(open_source(file)).advance(trainer.now_ns)
    assert snapshot.estimate.evidence_shares["L2"] == pytest.approx(1.0)


def test_shapes_of_one_live_step_place_the_products_of_all_steps_under_the_roof():
    estimate = analyzed(scenarios()["healthy"]).estimate
    placed = [one for one in estimate.kernels if one.flop_per_s and one.bytes_per_s]
    assert sum(one.share for one in placed) > 0.6
    for one in placed:
        assert one.evidence == "L2"
        assert one.flop_per_s <= estimate.roofs.flop_per_s["bf16"]
    fastest = max(placed, key=lambda one: one.share)
    assert fastest.family == "gemm" and (fastest.flop_per_s or 0) > 500e12
