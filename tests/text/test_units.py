"""Figures as people write them."""

import pytest

from brrrtop.text import units


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (2940.7, "2,940"), (1040.2, "1,040"), (1234567, "1,230,000"), (999.9, "1,000"), (184.2, "184"),
        (41.23, "41.2"), (0.833, "0.833"), (0.00002, "<0.001"), (0, "0"), (-2940.7, "-2,940"),
    ],
)  # fmt: skip
def test_figures_are_never_powers_of_ten(value, says):
    assert units.figure(value) == says


def test_a_cost_that_rounds_to_nought_has_no_sign():
    assert units.share(-0.0001, 1) == "0.0%"
    assert units.share(-0.012, 1) == "-1.2%"
