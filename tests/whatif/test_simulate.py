"""The replay of a step, held to the recurrence that its page states, one node after another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from brrrtop.whatif.simulate import PASSES, period_ns
from brrrtop.whatif.step import Step
from tests.whatif.test_edits import mixed, stepped

STEP = stepped(mixed())


def replayed(step: Step) -> float:
    """Host and device, node by node: `end = max(end before, launch + latency) + gap + device time`."""
    host = device = 0.0
    ends = [(0.0, 0.0)]
    for _ in range(PASSES):
        for node in range(len(step)):
            host += step.before_ns[node]
            begun = max(device, host + step.latency_ns[node])
            host += step.call_ns[node]
            device = begun + step.gap_ns[node] + step.device_ns[node]
            if step.waits[node]:
                host = max(host, device)
        ends.append((host, device))
    (host_before, device_before), (host, device) = ends[-2:]
    return max(host - host_before, device - device_before, step.batch_ns * step.count) / step.count


@given(seed=st.integers(0, 10_000), wait_share=st.sampled_from([0.0, 0.05, 0.5]))
def test_a_period_is_what_the_recurrence_gives(seed, wait_share):
    rng = np.random.default_rng(seed)
    size = len(STEP)
    step = replace(
        STEP,
        before_ns=rng.exponential(10_000, size), call_ns=rng.exponential(5_000, size),
        gap_ns=np.where(rng.random(size) < 0.2, rng.exponential(100_000, size), 0.0),
        latency_ns=rng.exponential(6_000, size), device_ns=rng.exponential(20_000, size),
        waits=rng.random(size) < wait_share,
    )  # fmt: skip
    assert period_ns(step) == pytest.approx(replayed(step), rel=1e-9)
