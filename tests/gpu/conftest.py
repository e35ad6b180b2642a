"""Where the monitor's packages are, if this Python, which is the trainers', has not all of them."""

import os

import pytest

SITE = os.environ.get("BRRRTOP_SITE")


@pytest.fixture(autouse=True)
def site(monkeypatch) -> None:
    """For the benchmarks that the tests start; they keep it from their trainers."""
    if SITE:
        monkeypatch.setenv("PYTHONPATH", SITE)
