"""Turns that another process took in the middle of recorded kernels, found and booked as its."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from brrrtop.advisories.advise import advise
from brrrtop.analysis.estimate import Analysis, estimate
from brrrtop.analysis.signals.joined import gaps
from brrrtop.model import intervals
from brrrtop.model.estimate import Regime
from brrrtop.model.tables import Span, Window
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from brrrtop.text import phrases, units
from brrrtop.timeline.timeline import COUNT_HOLDS_NS, Timeline
from brrrtop.views.json_report import document
from brrrtop.views.text import to_text
from collectors.gpu.nvidia import devices
from collectors.process import proc
from collectors.protocol.frames import Decoder, Frame, Kind, encode
from collectors.protocol.status import MPS
from collectors.vocabulary import Metric
from tests.analysis.build import ADD, GEMM, NCCL, C, K, window
from tests.analysis.test_account import total

FOLDER = Path(__file__).resolve().parents[1] / "recordings" / "neighbours"
"""The same GPT on an H200: `two` while another trainer computed there, `one` after it went."""
TURN = 2_500_000
NORM = "void at::native::layer_norm_kernel<float>(int)"
REDUCE = "void at::native::reduce_kernel<512, 1, float>(int)"
SOFTMAX = "void at::native::softmax_kernel<float>(int)"
STEP = ((GEMM, 300_000), (ADD, 80_000), (NORM, 40_000), (GEMM, 900_000), (SOFTMAX, 200_000), (REDUCE, 80_000))  # fmt: skip
"""Names and durations; the two products share name and grid."""
Stretch = Callable[[int, int, int], int]


def recorded(name: str) -> Window:
    timeline = Timeline()
    for frame in open_source(FOLDER / f"{name}.brrr").frames():
        timeline.add(frame)
    return timeline.window(Span(timeline.first_ns or 0, timeline.last_ns or 0), 0)


def steps(stretch: Stretch, others: int | None = 1, count: int = 12) -> Window:
    """Steps of `STEP`, all launched long before.

    Args:
        stretch: Extra time of a launch, by step, place and own time.
    """
    kernels: list[K] = []
    calls: list[C] = []
    now = 1_000_000
    for step in range(count):
        for place, (name, length) in enumerate(STEP):
            end = now + length + stretch(step, place, length)
            corr = len(kernels) + 1
            kernels.append(K(now, end, name, corr))
            calls.append(C(corr * 1_000, corr * 1_000 + 500, corr))
            now = end + 1_000
    return window(kernels, calls, others=[] if others is None else [(0, others)])


def on(step: int, place: int) -> bool:
    """Now and then, at each place; not at the edges, where launches have no like."""
    return step % 11 > 0 and (step * 7 + place * 5) % 6 == 0


def stopped(step: int, place: int, length: int) -> int:
    """A turn now and then, whoever runs."""
    return TURN * on(step, place)


def any_length(step: int, place: int, length: int) -> int:
    """The same with turns that end early."""
    return (1_000_000 + TURN * (step * 37 % 101) // 100) * on(step, place)


def share(judged: Analysis) -> float:
    account = judged.estimate.account
    return account.idle_ns["other_process"] / account.duration_ns


def test_a_neighbour_that_computes_is_the_verdict_and_the_advice() -> None:
    judged = estimate(recorded("two"))
    given_ = {advice.kind: advice for advice in advise(judged).given}
    assert 0.35 < share(judged) < 0.6
    assert (judged.estimate.regime, judged.estimate.cause) == (Regime.OVERHEAD, "other_process")
    assert given_.keys() == {"shared-gpu"}
    assert given_["shared-gpu"].saves_at_most == pytest.approx(share(judged), abs=1e-3)
    assert "at least 55% of the time" in given_["shared-gpu"].says
    assert given_["shared-gpu"].evidence["turn_ns"] == pytest.approx(2.5e6, rel=0.05)


def test_a_neighbour_that_went_changes_nothing() -> None:
    alone, never = recorded("one"), recorded("one")
    counted = never.gauges.metrics == Metric.FOREIGN_PROCESS_COUNT
    assert counted.any()
    judged = estimate(alone)
    unasked = estimate(replace(never, gauges=never.gauges.take(~counted)))
    assert judged.window.time_slices is None
    assert judged.estimate.account == unasked.estimate.account
    assert judged.estimate.kernels == unasked.estimate.kernels
    assert "shared-gpu" not in {advice.kind for advice in advise(judged).given}


def test_stopped_kernels_show_their_own_pace() -> None:
    """Within a fifth of what they have alone: the clocks are higher where half the time is free."""
    beside, alone = (
        {(row.name, row.blocks_p50, row.count): row.mean_ns for row in one.estimate.kernels}
        for one in (estimate(recorded("two")), estimate(recorded("one")))
    )
    common = beside.keys() & alone.keys()
    dear = [key for key in common if alone[key] * key[2] > 1_000_000]
    assert len(dear) >= 8
    for key in dear:
        assert beside[key] == pytest.approx(alone[key], rel=0.2), key


@pytest.mark.parametrize("count", [0.0, None])
def test_nobody_counted_or_none_there_is_no_neighbour(count: float | None) -> None:
    result = recorded("two")
    counted = result.gauges.metrics == Metric.FOREIGN_PROCESS_COUNT
    values = np.where(counted, 0.0, result.gauges.values)
    gauges = (
        result.gauges.take(~counted) if count is None else replace(result.gauges, values=values)
    )
    judged = estimate(replace(result, gauges=gauges))
    assert judged.window.time_slices is None
    assert judged.estimate.account.idle_ns["other_process"] == 0


def test_under_mps_nobody_takes_turns() -> None:
    assert estimate(replace(recorded("two"), mps=True)).window.time_slices is None


@pytest.mark.parametrize("with_facts", [True, False])
def test_that_a_gpu_is_shared_through_mps_reaches_the_window(
    monkeypatch: pytest.MonkeyPatch, with_facts: bool
) -> None:
    """From a sampler, and from a recording of before there were facts beside the sentences."""
    monkeypatch.setattr(proc, "name_of", lambda pid: "nvidia-cuda-mps")
    here = devices.tenants([5], None)
    assert here.says is not None and here.mps
    body = {"gauges": [here.says], **({"facts": [MPS]} if with_facts else {})}
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


def test_the_count_before_a_burst_holds_in_it_for_a_while() -> None:
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


def test_every_turn_is_booked_and_nothing_else_is() -> None:
    made = steps(stopped)
    judged = estimate(made)
    hit = [(s, p) for s in range(12) for p in range(len(STEP)) if stopped(s, p, 0)]
    assert judged.window.time_slices is not None
    assert judged.window.time_slices.hit == len(hit)
    account = judged.estimate.account
    assert account.taken_ns == account.idle_ns["other_process"] == TURN * len(hit)
    assert total(account) == account.duration_ns
    assert sum(account.mechanical_ns.values()) == account.idle_total_ns
    assert account.busy_ns == intervals.total(
        *intervals.merge(made.activities.starts_ns, made.activities.ends_ns)
    )
    product = next(row for row in judged.estimate.kernels if row.name == GEMM)
    assert product.mean_ns == 600_000


def test_turns_that_end_early_are_found_in_kernels_of_many_names() -> None:
    judged = estimate(steps(any_length, count=24))
    hit = [any_length(s, p, 0) for s in range(24) for p in range(len(STEP))]
    assert judged.window.time_slices is not None
    assert judged.window.time_slices.alike < 0.6
    assert judged.estimate.account.taken_ns == pytest.approx(sum(hit), rel=0.1)
    advice = next(one for one in advise(judged).given if one.kind == "shared-gpu")
    assert advice.confidence < 0.8


def test_a_turn_within_a_kernel_is_no_gap() -> None:
    stopped_ones, none = estimate(steps(stopped)).window, estimate(steps(lambda *_: 0)).window
    assert stopped_ones.time_slices is not None
    lengths = [high - low for _, low, high in (gaps(stopped_ones), gaps(none))]
    assert lengths[0].tolist() == lengths[1].tolist()


@pytest.mark.parametrize(
    "stretch",
    [
        lambda step, place, length: 3_000_000 if place in (1, 3, 4) else 0,
        lambda step, place, length: 30 * length if step > 40 else 0,
        lambda step, place, length: 60 * length + length * (24 + 6 * (step % 7)) * on(step, place),
        lambda step, place, length: TURN if step == 7 * place + 6 else 0,
        lambda step, place, length: 3_000_000 if place == 3 and step % 3 == 0 else 0,
        lambda step, place, length: 700_000 if (step * 7 + place * 5) % 6 == 0 else 0,
        lambda step, place, length: any_length(step, place, length) if place % 2 == 0 else 0,
    ],
    ids=[
        "long at its place",
        "low clocks",
        "in proportion",
        "a handful",
        "one kernel",
        "less than a turn",
        "ruled by data",
    ],
)
def test_kernels_long_for_reasons_of_their_own_are_no_turns(stretch: Stretch) -> None:
    judged = estimate(steps(stretch, count=60))
    assert judged.window.time_slices is None
    assert judged.estimate.account.taken_ns == 0


EQUALS = ((GEMM, 8_000_000), (ADD, 80_000), (GEMM.replace("128", "64"), 8_300_000), (NORM, 40_000), (SOFTMAX, 7_600_000), (REDUCE, 200_000))  # fmt: skip
"""Long kernels of one length: whatever slows them in proportion costs each the same."""


@pytest.mark.parametrize("bound_by_memory", [False, True], ids=["all slow", "only the long ones"])
@pytest.mark.parametrize("slow", [lambda step: step > 40, lambda step: step % 5 == 0])
def test_low_clocks_beside_an_idle_process_are_no_turns(
    monkeypatch: pytest.MonkeyPatch, slow: Callable[[int], bool], bound_by_memory: bool
) -> None:
    monkeypatch.setattr("tests.analysis.test_slices.STEP", EQUALS)
    made = steps(
        lambda step, _, own: (
            int(0.4 * own) if slow(step) and (own > 1_000_000 or not bound_by_memory) else 0
        ),
        count=60,
    )
    assert len({made.names[i] for i in made.activities.name_ids.tolist()}) == len(EQUALS)
    assert estimate(made).window.time_slices is None


def test_a_collective_that_waits_is_not_stopped() -> None:
    made = steps(stopped)
    names = tuple(NCCL if name in (ADD, NORM, REDUCE) else name for name in made.names)
    assert estimate(replace(made, names=names)).window.time_slices is None  # two names are left


@given(st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=72, max_size=72), st.integers(0, 9))
@settings(deadline=None, max_examples=40)
def test_whatever_turns_there_were_the_account_adds_up(turns: list[int], cut: int) -> None:
    made = steps(lambda step, place, _: TURN * turns[step * len(STEP) + place])
    span = Span(made.span.t0_ns + cut * 100_000, made.span.t1_ns - cut * 300_000)
    account = estimate(replace(made, span=span)).estimate.account
    assert total(account) == account.duration_ns
    assert sum(account.mechanical_ns.values()) == account.idle_total_ns
    assert account.duration_ns == account.worked_ns + account.idle_total_ns
    assert 0 <= account.taken_ns <= TURN * sum(turns)


def test_the_report_says_what_the_neighbour_had() -> None:
    two, one = (analyze(open_source(FOLDER / f"{name}.brrr")) for name in ("two", "one"))
    assert two.estimate is not None
    account = two.estimate.account
    taken = units.share(account.taken_ns / account.duration_ns)
    assert f"in {taken} another process had its turn" in " ".join(to_text(two).split())
    assert two.estimate.steps.step_ns == pytest.approx(77_103_083)
    assert one.estimate is not None and one.estimate.steps.step_ns is not None
    assert one.estimate.steps.step_ns == pytest.approx(37_100_000, rel=0.01)  # not its host's 14.6
    assert phrases.because(two.estimate) == "another process has the GPU at least 52% of the time"
    assert document(two)["taken_ns"] == account.taken_ns > 0
    assert "had its turn" not in to_text(one)
    assert document(one)["taken_ns"] == 0
