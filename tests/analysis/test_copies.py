"""Copies of several sizes under one name."""

from __future__ import annotations

import pytest

from brrrtop.cli.commands import demo
from tests.recorded import analyzed


def test_a_row_of_copies_has_the_rate_of_their_table() -> None:
    """Images and labels go up in turn: the rate is of the bytes of both over the time of both."""
    snapshot = analyzed(demo.scenarios()["input-bound"])
    (row,) = (one for one in snapshot.estimate.kernels if one.name.startswith("Memcpy HtoD"))
    (copies,) = (one for one in snapshot.tables.copies if one.kind.startswith("Memcpy HtoD"))
    assert row.bytes_per_s == pytest.approx(copies.bytes_per_s, rel=0.01)
    assert row.bytes_per_s < 64e9, "no link of an H200's host is faster"
