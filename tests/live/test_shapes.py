"""Shapes are asked for with a burst, once, and what they disturb is nobody's measure."""

import numpy as np
import pytest

from brrrtop.errors import BrrrtopError
from brrrtop.scheduling.governor import Governor
from collectors.protocol.frames import MARK, Frame, Kind
from collectors.protocol.requests import Op
from collectors.vocabulary import MarkClass
from tests.live.agents import SECOND, STEP_NS
from tests.live.bench import Bench, bench

__all__ = ["bench"]


def _quiet(bench: Bench) -> None:
    """Until no burst is under way."""
    bench.watch(3)
    while bench.controller.governor.tracing:
        bench.watch(0.25)


def _disturbed(start_ns: int, end_ns: int, at_ns: int) -> Frame:
    rows = np.zeros(1, MARK)
    rows["start_ns"], rows["end_ns"] = start_ns, end_ns
    rows["mark_class"] = MarkClass.PERTURBED
    return Frame(Kind.MARKS, rows, at_ns)


def _orders(bench: Bench) -> list[tuple[Op, int, int]]:
    return [one for one in bench.agent.orders if one[0] in (Op.BURST, Op.SHAPES)]


def test_shapes_are_ordered_right_behind_a_burst_with_steps_to_spare(bench):
    _quiet(bench)
    usual = _orders(bench)[-1]
    assert "recording the shapes" in bench.driver.shapes()
    burst, shapes = _orders(bench)[-2:]
    assert shapes[0] is Op.SHAPES and burst[0] is Op.BURST
    assert burst[1] >= usual[1] + 2 and burst[2] > usual[2]
    bench.watch(20)
    assert bench.agent is not None and bench.agent.count(Op.SHAPES) == 1


def test_the_burst_with_shapes_costs_nothing_on_the_meter_and_its_steps_are_no_baseline():
    plain, asked = Bench(), Bench()
    for one in (plain, asked):
        _quiet(one)
        one.watch(10)
        _quiet(one)
    measured = len(asked.controller.governor.cost.measured)
    asked.driver.shapes()
    began = asked.now_ns + STEP_NS
    asked.agent.say(_disturbed(began, began + 7 * STEP_NS, asked.now_ns))
    while asked.controller.governor.tracing:
        asked.watch(0.25)
    burst = asked.controller.governor.cost._touched[-1]
    assert len(asked.controller.governor.cost.measured) == measured
    ends = np.arange(began - STEP_NS, began + 12 * STEP_NS, STEP_NS)
    assert asked.controller.governor.cost._touched_by(ends).all()
    assert burst[1] > began
    asked.watch(30)
    assert len(asked.controller.governor.cost.measured) > measured, (
        "later bursts are measured again"
    )
    plain.source.close()
    asked.source.close()


def test_where_every_step_is_traced_shapes_are_ordered_alone(bench):
    _quiet(bench)
    bench.driver.continuous(True)
    bursts = bench.agent.count(Op.BURST)
    bench.driver.shapes()
    bench.watch(1)
    assert bench.agent.count(Op.SHAPES) == 1 and bench.agent.count(Op.BURST) == bursts


def test_why_there_are_no_shapes_is_in_the_log(bench):
    _quiet(bench)
    for _ in range(2):
        bench.driver.shapes()
        says = "no shapes: torch.profiler is at work"
        bench.agent.say(Frame(Kind.STATUS, {"shapes": "none", "says": says}, bench.now_ns))
        bench.watch(3)
        _quiet(bench)
    message = [event.says for event in bench.driver.advance().events if event.kind == "shapes"]
    assert message == [says] * 2


def test_without_an_agent_there_are_no_shapes():
    bench = Bench(agent=False)
    with pytest.raises(BrrrtopError, match="there is no agent in the trainer"):
        bench.driver.shapes()
    bench.source.close()


def test_a_step_of_seconds_gets_a_burst_of_whole_steps():
    governor = Governor()
    now_ns = 1_700_000_000 * SECOND
    for number in range(20):
        now_ns += 3 * SECOND
        governor.add_steps(np.array([now_ns], np.int64))
        if number == 10:
            governor.want_shapes()
        decision = governor.decide(now_ns)
        if decision is not None and decision.shapes:
            assert decision.steps >= 3 and decision.longest_ns >= 9 * SECOND
            return
    pytest.fail("no burst with shapes was ordered")
