"""What holds for any run: pricing never fails, and every figure is one."""

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brrrtop.analysis.estimate import estimate
from brrrtop.model.tables import Device
from brrrtop.whatif.price import EDITS, simulate_edits
from tests.advisories.scenarios import A100, GEFORCE, H200
from tests.advisories.test_properties import action, played

many = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(
    st.lists(action, max_size=60),
    st.sampled_from([H200, A100, GEFORCE, Device(0)]),
    st.booleans(),
)
def test_every_price_is_a_number_within_its_range(
    actions,  # type: ignore[type-arg]
    device,
    with_calls,
):
    window = played(actions, device, with_calls)
    if window.span.duration_ns <= 0:
        return
    result = simulate_edits(estimate(window))
    if result is None:
        return
    assert math.isfinite(result.present_ns) and result.present_ns >= 0
    for row in result.rows:
        assert row.edit in EDITS
        assert all(map(math.isfinite, (row.step_ns, row.saves, row.saves_low, row.saves_high)))
        assert row.saves_low <= row.saves <= row.saves_high <= 1
        assert row.step_ns > 0
