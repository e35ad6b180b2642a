"""Evidence L3: groups whose own tensor and DRAM activity counter samples could tell are judged by it.

Of contractions the busier of the two tells the side; so it does of kernels that nobody knows, where one
of the two is busy. What moves elements is memory whatever is counted: there samples tell how near the
roof it runs. The CUDA cores are not sampled, so what multiplies on them keeps what its name or its
shapes say.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.ceilings import Ceilings
from brrrtop.analysis.counters import rates as samples
from brrrtop.analysis.counters.rates import Rates
from brrrtop.analysis.counters.readings import mean_reading
from brrrtop.analysis.kernels import roofline
from brrrtop.analysis.kernels.amounts import COUNTERS
from brrrtop.analysis.kernels.classifier import Group
from brrrtop.kernel_names import families
from brrrtop.model.estimate import Side
from brrrtop.model.tables import I8, Window
from brrrtop.model.vocabulary import Metric

MOST_ERROR = 0.08
"""Standard error of both activities together up to which a group counts as measured."""
USES_TENSOR = 0.10
"""Kernels without tensor instructions were counted with up to 6 %: some of their integer work is
booked there."""
BUSY_DRAM = 0.30
"""From here on an unknown kernel moves elements; with less, what it does nobody sampled."""
MOST_CERTAIN = 0.98
_LABEL_DOUBT = 0.15
"""What a label lets expect of a group is never taken for surer than this: groups are measured."""


def refined(
    window: Window, groups: Sequence[Group], group_of: I8, ceilings: Ceilings | None
) -> tuple[Group, ...]:
    """The groups, those that could be measured with evidence L3; unchanged without samples of use."""
    plain = tuple(groups)
    # Counters are the device's: where others had turns they would be read as the trainer's.
    if not plain or ceilings is None or window.samples is None or window.turns is not None:
        return plain
    clock = ceilings.clock_ratio(mean_reading(window, Metric.SM_CLOCK_HZ))
    expected = {
        "tensor": Rates(*np.array([_tensor(group, clock) for group in plain]).T),
        "dram": Rates(*np.array([_dram(group) for group in plain]).T),
    }
    measured = samples.measured(window, group_of, expected)
    if measured is None or len(measured) < 2:
        return plain
    tensor, dram = measured["tensor"], measured["dram"]
    errors = np.hypot(tensor.errors, dram.errors)
    columns = (column.tolist() for column in (tensor.rates, dram.rates, errors))
    rows = zip(plain, *columns, strict=True)
    return tuple(_judge(group, one, other, error, clock) for group, one, other, error in rows)


def _tensor(group: Group, clock: float) -> tuple[float, float]:
    """Tensor activity that a label lets expect, and its standard error."""
    if group.side in (Side.COMM, Side.COPY) or group.blocks == 0:
        return 0.0, 0.01
    if group.side is Side.UNKNOWN:
        return 0.2, 0.3
    if not roofline.is_contraction(group.family) or group.facts.tensor_cores is False:
        return 0.02, 0.05
    if group.compute_share_of_roof is not None:
        return min(1.0, group.compute_share_of_roof / clock), _LABEL_DOUBT
    return 0.4, 0.3


def _dram(group: Group) -> tuple[float, float]:
    """DRAM activity that a label lets expect, and its standard error."""
    if group.side in (Side.COMM, Side.COPY):
        return 0.1, 0.2
    if group.memory_share_of_roof is not None:
        return min(1.0, group.memory_share_of_roof), _LABEL_DOUBT
    return (0.25, 0.25) if roofline.is_contraction(group.family) else (0.4, 0.3)


def _judge(group: Group, tensor: float, dram: float, error: float, clock: float) -> Group:
    """A group with what was measured of it; unchanged where the samples could not tell it apart."""
    spin = group.family.kind == families.SPIN
    if error > MOST_ERROR or spin or group.side in (Side.COMM, Side.COPY):
        return group
    if group.side is Side.UNDERFILLED:
        if max(tensor, dram) - error < roofline.BUSY:
            return group
        group = replace(group, side=Side.MEMORY, certainty=roofline.BY_FAMILY)
    unknown = group.side is Side.UNKNOWN
    multiplies = roofline.is_contraction(group.family)
    on_tensor = (unknown or multiplies) and tensor > USES_TENSOR
    on_tensor |= multiplies and group.facts.tensor_cores is True
    if on_tensor:
        side = Side.COMPUTE if tensor > dram else Side.MEMORY
        gap = abs(tensor - dram) / (2 * max(error, 0.01))
        certainty = 0.5 + (MOST_CERTAIN - 0.5) * min(1.0, gap)
        group = replace(group, side=side, certainty=certainty, level=COUNTERS)
    elif unknown and dram > BUSY_DRAM:
        group = replace(group, side=Side.MEMORY, certainty=roofline.BY_NAME, level=COUNTERS)
    elif unknown or dram <= 0.0:
        return group
    return _with_roofs(group, tensor * clock if on_tensor else None, dram)


def _with_roofs(group: Group, compute: float | None, memory: float) -> Group:
    """The group with the measured shares of the roofs where nothing else told them."""
    if group.side is Side.MEMORY and group.memory_share_of_roof is None:
        return replace(group, memory_share_of_roof=memory, level=COUNTERS)
    if group.side is Side.COMPUTE and group.compute_share_of_roof is None:
        return replace(group, compute_share_of_roof=compute, level=COUNTERS)
    return group
