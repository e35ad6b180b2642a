"""Ceilings move with clocks; a part has its own row or none."""

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.analysis.ceilings import ceilings_for
from brrrtop.analysis.estimate import estimate
from brrrtop.model.estimate import Side
from brrrtop.model.tables import Device, Gauges, Links, OpSignature, Window
from collectors.vocabulary import Metric
from tests.analysis.build import H200, K, window

US = 1_000


def at_clock(w: Window, clock_hz: float) -> Window:
    rows = np.array([w.span.t0_ns + 1], np.int64)
    clock = np.array([Metric.SM_CLOCK_HZ], np.int32)
    return replace(w, gauges=Gauges(rows, np.zeros(1, np.int32), clock, np.array([clock_hz])))


def test_a_throttled_clock_moves_the_decision_and_not_what_is_shown():
    op = OpSignature("aten::mm", ((8192, 128), (128, 8192)), ("c10::BFloat16",) * 2)
    w = window([K(i * 51 * US, (i * 51 + 50) * US, corr=i + 1, blocks=4000) for i in range(20)])
    w = replace(w, ops={1: op}, links=Links(np.arange(1, 21), np.ones(20, np.int64)))
    fast, slow = (estimate(at_clock(w, hz)).facts.labels.groups[0] for hz in (1.83e9, 0.9e9))
    assert slow.compute_share_of_roof == fast.compute_share_of_roof
    assert (fast.side, slow.side) == (Side.MEMORY, Side.COMPUTE)  # 124 FLOP per byte


def test_a_clock_read_while_idle_is_no_denominator():
    ceilings = ceilings_for(H200)
    assert ceilings.clock_ratio(210e6) == 0.3
    assert ceilings.clock_ratio(None) == 1.0


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "GeForce RTX 4090 Laptop"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3050 Ti Laptop GPU", None),
        ("NVIDIA GeForce RTX 2070 with Max-Q Design", None),
        ("NVIDIA RTX A2000 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3070 Ti", "GeForce RTX 3070 Ti"),
    ],
)
def test_a_laptop_part_has_a_row_of_its_own_or_none(name, part):
    found = ceilings_for(Device(0, name=name))
    assert (found.part if found else None) == part
