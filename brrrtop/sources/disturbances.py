"""What recording a step with shapes slowed down, as far as marks tell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from brrrtop.model.tables import Span
from brrrtop.model.vocabulary import MarkClass
from brrrtop.protocol import columns

RECOVERY_NS = 1_000_000_000
"""After a recorded step the host has to get ahead of the GPU again: not judged for so long."""


def disturbances(rows: npt.NDArray[np.void]) -> list[tuple[Span, int]]:
    """What recordings disturbed, recovery included, from mark records of the wire; with each how
    long the step was that it tells the end of, in ns, 0 where it tells of none."""
    spans = []
    for row in columns.plausible(rows[rows["mark_class"] == MarkClass.PERTURBED], sent_ns=0):
        span = Span(int(row["start_ns"]), int(row["end_ns"]))
        spans.append((with_recovery(span), span.duration_ns if row["value"] > 0 else 0))
    return spans


def with_recovery(span: Span) -> Span:
    return Span(span.t0_ns, span.t1_ns + max(RECOVERY_NS, span.duration_ns))
