"""The link that a collective's rate is held against, by the name NVML gives the GPU."""

import pytest
from msgspec.structs import replace

from brrrtop.analysis.ranks.matching import link_rate
from brrrtop.session.job import job_of
from tests.ranks.reads import views


@pytest.mark.parametrize(
    ("name", "capability", "rate"),
    [
        ("Tesla V100-SXM2-32GB", (7, 0), 150e9),
        ("Tesla V100-PCIE-16GB", (7, 0), 16e9),
        ("NVIDIA A100-SXM4-80GB", (8, 0), 300e9),
        ("NVIDIA A100 80GB PCIe", (8, 0), 32e9),
        ("NVIDIA A100-PCIE-40GB", (8, 0), 32e9),
        ("NVIDIA H100 80GB HBM3", (9, 0), 450e9),
        ("NVIDIA H100 PCIe", (9, 0), 64e9),
        ("NVIDIA H100 NVL", (9, 0), 64e9),
        ("NVIDIA H200 NVL", (9, 0), 64e9),
        ("NVIDIA H200", (9, 0), 450e9),
        ("NVIDIA H20", (9, 0), 450e9),
        ("NVIDIA GH200 480GB", (9, 0), 450e9),
        ("NVIDIA H800", (9, 0), 200e9),
        ("NVIDIA B200", (10, 0), 900e9),
        ("NVIDIA GB300", (10, 3), 900e9),
        ("NVIDIA L40S", (8, 9), 32e9),
        ("NVIDIA GeForce RTX 5090", (12, 0), 64e9),
        ("a GPU of tomorrow", None, None),
        (None, (9, 0), None),
    ],
)
def test_the_rate_of_a_link_is_that_of_its_generation_one_way(name, capability, rate):
    assert link_rate(name, capability) == rate


@pytest.mark.parametrize(("name", "least"), [("NVIDIA H200", True), ("NVIDIA V100-PCIE", False)])
def test_faster_than_the_link_is_over_another_link(name, least):
    """A pair of boards may be bridged, which no name tells."""
    changed = []
    for one in views("ddp"):
        device = replace(one.window.device, name=name, capability=(7, 0))
        changed.append(replace(one, window=replace(one.window, device=device)))
    rows = [row for row in job_of(changed).collectives if row.bus_bytes_per_s]
    assert max(row.bus_bytes_per_s or 0 for row in rows) > 16e9
    assert all((row.link_share is not None) == least for row in rows[:1])
