"""What the agent costs between bursts is part of what watching costs, and is paid from the same budget."""

import numpy as np
import pytest

from brrrtop.scheduling.governor import Governor
from brrrtop.scheduling.step_cost import AgentOverhead

SECOND = 1_000_000_000


def test_the_share_is_what_was_spent_since_the_first_reading():
    upkeep = AgentOverhead()
    assert upkeep.share == 0.0
    assert upkeep.add(7_000_000, 100 * SECOND) == 0, "what was spent before is of another time"
    assert upkeep.add(9_000_000, 101 * SECOND) == 2_000_000
    assert upkeep.add(9_000_000, 102 * SECOND) == 0
    assert upkeep.share == pytest.approx(0.001)


def test_a_new_agent_begins_anew():
    upkeep = AgentOverhead()
    upkeep.add(9_000_000, 100 * SECOND)
    upkeep.add(19_000_000, 101 * SECOND)
    assert upkeep.add(1_000_000, 102 * SECOND) == 0 and upkeep.share == 0.0


def watched(upkeep_share: float) -> tuple[float, int]:
    """The meter's share and the number of bursts of two minutes with steps of 4 ms, the first one of a
    burst 50 ms longer."""
    governor = Governor()
    begin = now = 1_000 * SECOND
    bursts = stall = 0
    while now < begin + 120 * SECOND:
        governor.add_steps(np.arange(now + stall, now + SECOND, 4_000_000))
        governor.add_upkeep(int((now - begin) * upkeep_share), now)
        if stall:
            governor.add_observed(now, now + stall + 60_000_000)
            governor.add_traced()
        now += SECOND
        stall = 50_000_000 if governor.decide(now) is not None else 0
        bursts += bool(stall)
    estimate = governor.estimate(now)
    return estimate.share, bursts


def test_upkeep_is_in_the_meter_and_leaves_less_for_bursts():
    (without, many), (with_it, fewer) = watched(0.0), watched(0.006)
    assert fewer < 0.7 * many
    assert without < 0.0115 and with_it < 0.0115, "of 1 % in all"
    assert with_it > 0.006
