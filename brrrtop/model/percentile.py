"""Percentiles of what was measured: always a value that really occurred."""

from __future__ import annotations

import math
from collections.abc import Sequence

from brrrtop.model.tables import I8


def percentile(ordered: Sequence[int] | I8, share: float) -> int:
    """The value that `share` of them do not exceed (nearest rank).

    Args:
        ordered: At least one value, ascending.
        share: Above 0, up to 1.
    """
    return int(ordered[max(0, math.ceil(share * len(ordered)) - 1)])
