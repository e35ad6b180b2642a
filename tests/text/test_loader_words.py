"""What is said of a loader's waits agrees with itself."""

from __future__ import annotations

import pytest

from brrrtop.model.host_tables import LoaderRow
from brrrtop.text.loader import wait_for_each


@pytest.mark.parametrize(
    ("total_ns", "text"),
    [
        (1_110_000_000, "111 ms for each"),
        (2_730_000_000, "273 ms for each on average (median 111 ms, longest 1.94 s)"),
        (0, ""),
    ],
)
def test_a_median_far_from_the_mean_does_not_speak_alone(total_ns: int, text: str) -> None:
    row = LoaderRow("DataLoader", 10, 10_000_000_000, total_ns, 111_000_000, 0, 1_940_000_000)
    assert wait_for_each(row) == text
