"""The governor keeps the budget, whatever the loop does, and says what it does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brrrtop.scheduling.burst import Act, Burst, Limits, Stage
from brrrtop.scheduling.governor import _NS_PER_RECORD, _PRIOR_STALL_NS, Governor
from brrrtop.scheduling.step_cost import BurstCost, StepCost
from brrrtop.scheduling.triggers import GaugeJump, step_moved
from collectors.vocabulary import Metric
from tests.live.loop import SECOND, START_NS, Loop, run

LAUNCH_BOUND = Loop(0.006, cost_share=0.1)
GPU_BOUND = Loop(0.05, cost_share=0.002, stall_s=0.01)


@settings(max_examples=15, deadline=None)
@given(
    step_s=st.floats(0.01, 0.4),
    noise=st.floats(0.005, 0.15),
    cost_share=st.floats(0.0, 0.3),
    stall_s=st.floats(0.0, 0.04),
    outlier_share=st.sampled_from([0.0, 0.01]),
    drift=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 1000),
)
def test_the_budget_holds_and_pauses_stay_between_two_seconds_and_a_minute(
    step_s, noise, cost_share, stall_s, outlier_share,
    drift, seed,
):  # fmt: skip
    loop = Loop(step_s, noise, cost_share, stall_s, outlier_share, drift, seed=seed)
    done = run(loop, Governor(), 240)
    dearest_s = max(done.extra_s)
    # One burst is always paid for afterwards: the last may still be owed.
    assert done.true_share() <= 0.01 + dearest_s / 240
    # A half may begin with one burst still owed and end with two.
    assert done.true_share(120) <= 0.01 + 3 * dearest_s / 120
    if step_s <= 0.3 and noise <= 0.1 and cost_share <= 0.2 and not (outlier_share or drift):
        assert min(done.gaps_s[1:]) >= 2.0, "but the second, where the first held no step"
        assert max(done.gaps_s) <= 60 * 1.2 + 5


GUSTS = Loop(0.03, cost_share=0.1, stall_s=0.02, workers=4, batch_s=0.5)


@settings(max_examples=15, deadline=None)
@given(
    step_s=st.floats(0.005, 0.2), cost_share=st.floats(0.0, 0.3), stall_s=st.floats(0.0, 0.04),
    workers=st.integers(1, 8), waits=st.floats(-0.5, 3.0), seed=st.integers(0, 1000),
)  # fmt: skip
def test_the_budget_holds_where_a_loader_is_waited_for(
    step_s, cost_share, stall_s, workers, waits, seed
):
    """From loaders that are just too quick to wait for to those that are waited for most of the time."""
    batch_s = step_s * workers * (1 + waits)
    loop = Loop(step_s, 0.03, cost_share, stall_s, workers=workers, batch_s=batch_s, seed=seed)
    done = run(loop, Governor(), 120)
    assert done.late_s <= 0.01 * 120 + max(done.extra_s)


def test_a_burst_holds_a_gust_where_waits_for_data_absorb_it():
    done = run(GUSTS, Governor(), 120)
    assert done.late_s / 120 < 0.003
    assert done.bursts_s[1] < 4.5, "as soon as the waits are known"
    late = [length for at, length in zip(done.bursts_s, done.traced_s, strict=True) if at > 10]
    assert float(np.median(late)) > 1.5, "60 ms of a loop that waits hold none of its waits"
    assert sum(late) / 110 > 0.15
    assert "absorb" in done.governor.describe()


def test_the_monitors_own_time_sets_the_pace_of_bursts_that_cost_nothing():
    class Busy(Governor):
        """What it makes of a burst takes the monitor a second of CPU."""

        def add_observed(self, start_ns: int, end_ns: int) -> None:
            super().add_observed(start_ns, end_ns)
            self.pace.add(1.0)

    gaps = [np.median(run(GUSTS, one, 240).gaps_s[5:]) for one in (Busy(), Governor())]
    assert gaps[0] >= 18 > 10 > gaps[1]


def test_waits_that_are_too_short_absorb_nothing():
    hardly = Loop(0.03, cost_share=0.2, stall_s=0.02, workers=4, batch_s=0.03 * 4 * 1.02)
    done = run(hardly, Governor(), 120)
    assert max(decision.steps for _, decision in done.orders) < 16
    assert "absorb" not in done.governor.describe()


@pytest.mark.parametrize("limit", [0.001, 0.003, 0.01, 0.03])
def test_bursts_leave_room_for_what_no_meter_of_ours_sees(limit):
    done = run(LAUNCH_BOUND, Governor(Limits(max_overhead=limit)), 800)
    assert done.true_share(100) <= 0.6 * limit + max(done.extra_s) / 700
    assert len(done.bursts_s) > 5


@pytest.mark.parametrize(("loop", "most_s"), [(LAUNCH_BOUND, 6), (GPU_BOUND, 3)])
def test_a_loop_is_looked_at_as_often_as_it_can_pay(loop, most_s):
    done = run(loop, Governor(), 120)
    assert float(np.median(done.gaps_s[3:])) < most_s
    assert done.true_share() < 0.006


@pytest.mark.parametrize(
    ("extra_ms", "free", "owed_ms"),
    [(100, False, 50), (60, False, 10), (45, False, 0), (0, False, 0),
     # Nothing was waited for that could absorb it: a stall of 15 ms and a tenth of a second.
     (0, True, 85), (160, True, 90)],
)  # fmt: skip
def test_what_a_burst_cost_beyond_its_charge_and_its_error_is_booked_as_debt(
    extra_ms, free, owed_ms, monkeypatch
):
    ms = 1_000_000
    governor = Governor()
    governor._last = Burst(START_NS, 3, SECOND, free=free, charged_ns=30.0 * ms)
    cost = BurstCost(START_NS, START_NS + SECOND, 3, extra_ms * ms, 20.0 * ms, 0)
    monkeypatch.setattr(governor.cost, "book_costs", lambda _: [cost])
    governor._settle(START_NS + SECOND)
    assert -governor._credit_ns == pytest.approx(owed_ms * ms)
    assert (governor._pause_ns > 0) is (owed_ms > 0)


def test_after_a_burst_that_waits_absorb_comes_a_rest_of_three_times_its_length():
    governor = Governor()
    governor._last = Burst(START_NS, 3, SECOND, free=True)
    governor._plan_pause()
    assert governor._pause_ns == governor.limits.pause_least_ns, "nothing of it was reported yet"
    governor._last.span = (START_NS, START_NS + 2 * SECOND)
    governor._plan_pause()
    assert governor._pause_ns == 6 * SECOND


def test_time_pays_debts_and_saves_nothing_up_nor_runs_backwards():
    governor = Governor()
    rate = governor.limits.credit_rate
    governor._earn(START_NS)
    governor._credit_ns = -rate * 10 * SECOND
    governor._earn(START_NS + 4 * SECOND)
    governor._earn(START_NS + 2 * SECOND)
    assert governor._credit_ns == pytest.approx(-rate * 6 * SECOND)
    governor._earn(START_NS + 60 * SECOND)
    assert governor._credit_ns == 0.0


def test_a_pause_that_is_no_longer_needed_shrinks_by_a_third_a_burst():
    governor = Governor()
    governor._pause_ns, governor._credit_ns = 60 * SECOND, 0.0
    pauses = []
    while not pauses or pauses[-1] > governor.limits.pause_least_ns:
        governor._plan_pause()
        pauses.append(governor._pause_ns)
    assert pauses[:2] == [pytest.approx(40.2 * SECOND), pytest.approx(26.9 * SECOND, rel=0.01)]
    assert len(pauses) == 9 and pauses[-1] == governor.limits.pause_least_ns
    governor._credit_ns = -60 * SECOND * governor.limits.credit_rate
    governor._plan_pause()
    assert governor._pause_ns == pytest.approx(60 * SECOND), "and grows at once"


@given(
    mean_ns=st.floats(16e6, 1e9), error_ns=st.floats(1e4, 1e9), count=st.integers(1, 40),
)  # fmt: skip
def test_a_burst_is_charged_more_than_it_is_believed_to_cost_the_more_the_less_is_known(
    mean_ns, error_ns, count
):
    """Where prior and measurement agree, so that nothing but the error is on top."""
    governor, steps = Governor(), 3
    governor.cost.add_steps(START_NS + np.arange(20) * 10_000_000)
    for count_of, length_ns in ((steps, 30_000_000), (0, governor.limits.stepless_burst_ns)):
        assert governor._charge(count_of) == pytest.approx(0.1 * length_ns + _PRIOR_STALL_NS)
    governor._records = (mean_ns - _PRIOR_STALL_NS) / (_NS_PER_RECORD * steps)
    charges = []
    for factor in (1.0, 2.0):
        governor.cost.measured = [BurstCost(0, 1, steps, mean_ns, factor * error_ns, 0)] * count
        charges.append(governor._charge(steps))
    assert mean_ns * (1 + 0.44 / count) < charges[0] <= charges[1] < 2 * mean_ns + 1.0


def test_a_budget_nothing_fits_into_means_counters_only():
    governor = Governor(Limits(max_overhead=0.0001))
    done = run(Loop(0.02), governor, 300)
    assert len(done.bursts_s) <= 2
    assert "counters only" in governor.describe()
    none = run(Loop(0.02), Governor(Limits(max_overhead=0)), 60)
    assert none.orders == []


def test_the_cost_shown_is_the_cost_paid():
    done = run(Loop(0.006, 0.02, cost_share=0.15, stall_s=0.02, seed=3), Governor(), 300)
    shown = done.governor.estimate(done.end_ns)
    assert abs(shown.share - done.true_share(240)) < shown.error_share + 0.002
    assert 0 < shown.error_share < 0.005
    assert shown.worst_step_ns > 10_000_000


def test_no_cost_is_shown_as_none_within_its_error():
    inside = 0
    for seed in range(10):
        loop = Loop(0.02, 0.05, cost_share=0.0, stall_s=0.0, seed=seed)
        done = run(loop, Governor(), 90)
        shown = done.governor.estimate(done.end_ns)
        inside += abs(shown.share) <= shown.error_share
    assert inside >= 8


def test_without_steps_bursts_go_by_time_and_no_cost_is_claimed():
    governor = Governor()
    done = run(Loop(0.05, has_steps=False), governor, 60)
    assert len(done.bursts_s) > 5
    assert {decision.steps for _, decision in done.orders} == {0}
    assert governor.estimate(done.end_ns) is None
    assert "cannot be measured" in governor.describe()


def test_an_agent_that_never_reports_is_asked_ever_less():
    governor = Governor()
    run(Loop(0.05, answers=False), governor, 200)
    assert "has not reported" in governor.describe()
    governor._credit_ns = 0.0
    for unanswered, pause_s in ((1, 4), (3, 16), (9, 60)):
        governor._pause_ns, governor._unanswered = 0, unanswered
        governor._plan_pause()
        assert governor._pause_ns == pause_s * SECOND


def test_bursts_are_whole_steps_of_about_the_wanted_length():
    def steps_of(step_s: float) -> int:
        done = run(Loop(step_s, cost_share=0.001, stall_s=0.001), Governor(), 60)
        return done.orders[-1][1].steps

    assert steps_of(0.006) == 10 or steps_of(0.006) == 11
    assert steps_of(0.05) == 3
    assert steps_of(2.0) == 1


def test_a_jump_in_a_gauge_starts_a_burst_now():
    governor = Governor(Limits(max_overhead=0.001))
    done = run(LAUNCH_BOUND, governor, 60)
    pause_s = governor._pause_ns / SECOND
    assert pause_s > 10
    now = done.end_ns
    decided = None
    for at in range(200):
        now += SECOND // 4
        governor.add_gauge(0, Metric.SM_ACTIVE, 0.9 if at < 100 else 0.3)
        governor.add_steps(np.arange(now - SECOND // 4, now, 6_000_000))
        decided = governor.decide(now)
        if decided is not None and "jump" in decided.message:
            break
        if decided is not None:
            governor.add_observed(now, now + 60_000_000)
    assert decided.message == "sm active jumped"
    assert 100 <= at <= 110


def test_continuous_mode_is_switched_once_each_way():
    governor = Governor()
    run(LAUNCH_BOUND, governor, 20)
    governor.want_continuous(True)
    now = START_NS + 20 * SECOND
    first = governor.decide(now)
    assert first is not None and first.act is Act.CONTINUOUS_ON
    assert governor.decide(now + SECOND) is None
    assert "does not apply" in governor.describe()
    governor.add_steps(np.arange(now, now + 20 * SECOND, 7_000_000))
    assert governor.estimate(now + 20 * SECOND) is None
    governor.want_continuous(False)
    last = governor.decide(now + 20 * SECOND)
    assert last is not None and last.act is Act.CONTINUOUS_OFF
    assert not len(governor.cost.untraced(10)), "steps of that time are no baseline"


def test_steps_may_arrive_in_any_batches():
    ends = START_NS + np.cumsum(np.full(400, 10_000_000))
    ends[200:] += 5_000_000
    shares = []
    for size in (1, 7, 400):
        cost = StepCost()
        for at in range(0, 400, size):
            cost.add_steps(ends[at : at + size])
        cost.add_burst(int(ends[199]) + 1, int(ends[201]))
        cost.book_costs(int(ends[-1]) + 10 * SECOND)
        shares.append(cost.measured[0].extra_ns)
    assert shares[0] == shares[1] == shares[2]
    assert shares[0] == pytest.approx(5_000_000)


def test_a_checkpoint_in_a_burst_is_not_taken_for_its_cost():
    durations = np.full(200, 20_000_000)
    durations[101] = 30 * SECOND
    ends = START_NS + np.cumsum(durations)
    cost = StepCost()
    cost.add_steps(ends)
    cost.add_burst(int(ends[100]), int(ends[102]))
    (measured,) = cost.book_costs(int(ends[-1]) + 10 * SECOND)
    assert measured.extra_ns < 0.4 * SECOND
    assert measured.worst_step_ns == 30 * SECOND


def test_a_gauge_that_only_trembles_does_not_jump():
    rng = np.random.default_rng(1)
    watch = GaugeJump()
    assert not any(watch.moved(float(v)) for v in rng.normal(0.6, 0.05, 2000).clip(0, 1))
    assert [watch.moved(0.05), watch.moved(0.05)] == [False, True]


def test_a_step_time_that_changed_for_good_is_noticed():
    steady = np.full(40, 10_000_000)
    assert not step_moved(steady)
    assert step_moved(np.concatenate([steady, np.full(6, 14_000_000)]))
    one_slow = np.concatenate([steady, [40_000_000], np.full(5, 10_000_000)])
    assert not step_moved(one_slow)


def first_look(governor: Governor, until_s: float, gauge: float | None = None) -> float | None:
    """Seconds until the first burst, with a decision every quarter of a second."""
    for quarter in range(int(4 * until_s)):
        if gauge is not None:
            governor.add_gauge(0, int(Metric.SM_ACTIVE), gauge)
        if governor.decide(START + quarter * SECOND // 4) is not None:
            return quarter / 4
    return None


START = 1_700_000_000 * SECOND


def just_begun() -> Governor:
    governor = Governor()
    governor.await_steps()
    return governor


def test_a_trainer_that_has_just_begun_is_traced_from_its_third_step_on():
    governor = just_begun()
    assert first_look(governor, 0.5) is None
    assert governor.waiting == governor.describe()
    ends = START + np.arange(2, 7) * SECOND // 4
    governor.add_steps(ends[:3])
    assert governor.decide(START + SECOND) is None, "two whole steps"
    governor.add_steps(ends[3:])
    decision = governor.decide(START + 7 * SECOND // 4)
    assert decision is not None and decision.steps > 0
    assert governor.waiting is None


def test_whatever_it_does_the_first_burst_comes_within_three_seconds():
    """No optimizer, a step of a minute, loading: nothing was said for a minute of it."""
    for gauge, after_s in ((None, 2), (0.0, 2), (0.5, 1)):
        assert first_look(just_begun(), 90, gauge=gauge) == after_s
    slow = just_begun()
    slow.add_steps(np.array([1]) * SECOND + START)
    assert first_look(slow, 90) == 2
    assert first_look(Governor(), 1) == 0
    without_torch = Governor()
    without_torch.await_steps(may_come=False)
    assert first_look(without_torch, 1) == 0


def test_what_comes_before_the_steps_is_named_and_ends():
    governor = just_begun()
    assert governor.stage(START) is None, "nobody knows what its GPU does"
    governor.add_gauge(0, int(Metric.SM_ACTIVE), 0.4)
    assert governor.stage(START + SECOND) is None, "at work"
    governor.add_gauge(0, int(Metric.SM_ACTIVE), 0.0)
    assert governor.stage(START + SECOND) is Stage.LOADING
    governor.add_compiling(True)
    assert governor.stage(START + SECOND) is Stage.COMPILING
    governor.add_compiling(False)
    governor.add_steps(START + np.array([2]) * SECOND)
    assert governor.stage(START + 3 * SECOND) is Stage.WARMING_UP
    assert governor.stage(START + 9 * SECOND) is None, "steps of several seconds are no warm-up"
    governor.add_steps(START + np.array([10, 11]) * SECOND)
    assert governor.stage(START + 11 * SECOND) is None


def test_without_steps_a_trainer_that_was_held_for_long_has_longer_pauses():
    def pause_ns(held_ns: int) -> int:
        governor = Governor()
        assert governor.decide(START) is not None
        governor.add_traced(held_ns)
        governor.decide(START + SECOND)
        return governor._pause_ns

    usual_ns = pause_ns(0)
    assert pause_ns(15_000_000) == usual_ns
    assert pause_ns(115_000_000) == pytest.approx(usual_ns + 0.1e9 / Limits().credit_rate)


def test_a_job_pays_for_the_rank_that_a_burst_held_longest():
    governor = Governor()
    assert governor.decide(START) is not None
    governor.add_traced(20_000_000)
    governor.decide(START + SECOND)
    usual_ns, held_ns = governor._pause_ns, 200_000_000
    governor.charge(held_ns)
    assert governor._pause_ns > usual_ns
    assert governor._pause_ns == pytest.approx(held_ns / Limits().credit_rate, rel=0.1)
    once_ns = governor._pause_ns
    governor.charge(held_ns)
    assert governor._pause_ns == once_ns, "a burst is paid for once"
    governor.want_burst()
    assert governor.held_ns == 20_000_000
    assert governor.decide(START + 2 * SECOND) is not None and governor.held_ns == 0


def test_what_was_traced_while_it_loaded_is_traced_again_once_it_works():
    governor = just_begun()
    assert first_look(governor, 5, gauge=0.0) == 2
    governor.add_traced()
    for quarter in range(12, 24):
        assert governor.decide(START + quarter * SECOND // 4) is None
    governor.add_gauge(0, int(Metric.SM_ACTIVE), 0.6)
    decision = governor.decide(START + 6 * SECOND)
    assert decision is not None and decision.message == "the trainer has begun its work"


def test_a_burst_too_dear_for_once_a_minute_is_told_by_what_bursts_may_take():
    governor = Governor(Limits(max_overhead=0.0003))
    assert governor.decide(START) is not None
    governor.add_observed(START, START + SECOND // 10)
    governor.add_traced()
    governor.decide(START + SECOND)
    assert "more than bursts may take once a minute under 0.03%" in governor.describe()


def looked_for_2_ms(governor: Governor, step_s: float = 0.12) -> None:
    """A first burst that went by time and caught the last kernels of a step that waits for data."""
    first = governor.decide(START)
    assert first is not None and first.steps == 0
    ends = START + np.arange(1, 4) * int(step_s * SECOND)
    governor.add_observed(int(ends[0]) - 2_000_000, int(ends[0]))
    governor.add_steps(ends)
    governor.add_traced()


def second_look(governor: Governor, until_s: float) -> tuple[float, str] | None:
    """When and why the next burst after `START` comes, with a decision every quarter of a second."""
    for quarter in range(2, int(4 * until_s)):
        decision = governor.decide(START + quarter * SECOND // 4)
        if decision is not None:
            assert decision.steps > 0
            return quarter / 4, decision.message
    return None


def test_a_first_look_without_a_whole_step_is_followed_at_once_by_one_with_some():
    """The pause after it was 7 s, and the verdict as late."""
    governor = Governor()
    looked_for_2_ms(governor)
    assert second_look(governor, 3) == (0.5, "the first look held no whole step")


def test_the_second_look_of_two_is_paid_for_like_the_first_and_none_follows_at_once():
    governor = Governor()
    looked_for_2_ms(governor)
    assert second_look(governor, 3) is not None
    at = START + SECOND // 2
    governor.add_observed(at, at + 1_000_000)
    governor.add_traced()
    assert governor.decide(START + SECOND) is None
    charged_ns = 0.10 * 200_000_000 + 2 * 15_000_000  # by time, and twice the worst stall
    assert governor._pause_ns >= charged_ns / Limits().credit_rate - 2 * SECOND
    assert governor.decide(START + 4 * SECOND) is None


def test_a_second_look_that_a_minute_does_not_pay_for_waits_its_turn():
    governor = Governor(Limits(max_overhead=0.001))
    looked_for_2_ms(governor)
    assert second_look(governor, 20) is None


def test_a_first_look_in_which_nothing_ran_is_followed_at_once_too():
    governor = Governor()
    assert governor.decide(START) is not None
    governor.add_traced()
    assert governor.decide(START + SECOND // 2) is None, "nobody knows how long a step is"
    governor.add_steps(START + np.arange(2, 4) * SECOND)
    decision = governor.decide(START + 3 * SECOND)
    assert decision is not None and decision.message == "the first look held no whole step"
