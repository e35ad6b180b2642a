"""The line of the trainer's code that holds a late rank up: its stack samples beside its peers'.

What every rank does takes the same part of everybody's samples; a line that the late one is often at, and the
others hardly ever, is what only it does. That finds a sleep whose wait shows further on: a host
that comes back late launches late for the rest of the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from brrrtop.analysis.signals import stack_samples
from brrrtop.analysis.signals.stack_samples import bounds
from brrrtop.model.stack_samples import Line
from brrrtop.model.tables import Window
from brrrtop.model.vocabulary import MarkClass

_Place = tuple[str, str]
LEAST_SAMPLES = 5
PART_OF_LATENESS = 0.5
"""That the time at the line must explain."""
PEERS_PART = 0.2
"""Of the late rank's own share, that its peers may be at the line."""


def own_line(
    windows: Sequence[Window | None], place: int, late_ns: float, step_ns: float
) -> Line | None:
    """The line that rank `place` alone spends the time at by which it is late; None where none stands out."""
    mine, others = Counter[_Place](), Counter[_Place]()
    names: dict[_Place, str] = {}
    for at, window in enumerate(windows):
        if window is None:
            continue
        marks = window.marks if window.watched is None else window.watched
        rows = np.flatnonzero(marks.classes == MarkClass.STACK)
        counts, shares = stack_samples.by_line(window.names, marks.name_ids[rows])
        (mine if at == place else others).update(counts)
        names |= shares if at == place else {}
    total, beside = sum(mine.values()), sum(others.values())
    if min(total, beside) < LEAST_SAMPLES:
        return None
    for line, count in mine.most_common():
        share, peers = count / total, others[line] / beside
        is_own = peers <= PEERS_PART * share and count >= LEAST_SAMPLES
        low, high = bounds(share, total)[0], bounds(peers, beside)[1]
        if is_own and low > high and share * step_ns >= PART_OF_LATENESS * late_ns:
            return Line(*line, count, *stack_samples.reading(names[line]))
    return None
