"""The line of its code that delays a late rank.

What every rank does takes the same part of everybody's stack samples; a line that the late one is often at,
and the others hardly ever, is what only it does. That finds a sleep whose wait shows further on: a host
that comes back late launches late for the rest of the step.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from brrrtop.analysis.facts.stack_samples import bounds, by_line, reading
from brrrtop.model.run import Line
from brrrtop.model.tables import Window
from collectors.vocabulary import MarkClass

LEAST_OF_EACH = 5
"""Samples of the late rank, of its peers, and at a line that only it is at."""
PART_OF_LATENESS = 0.5
"""That the time at that line must explain."""
PEERS_PART = 0.2
"""Of the late rank's own share, that its peers may be at the line."""
_Place = tuple[str, str]


def own_line(windows: Sequence[Window], place: int, late_ns: float, step_ns: float) -> Line | None:
    """The line that rank `place` alone spends the time at by which it is late; None where none stands out."""
    late, others = Counter[_Place](), Counter[_Place]()
    names: dict[_Place, str] = {}
    for at, window in enumerate(windows):
        marks = window.marks if window.watched is None else window.watched
        rows = np.flatnonzero(marks.classes == MarkClass.STACK)
        counts, shares = by_line(window.names, marks.name_ids[rows])
        (late if at == place else others).update(counts)
        names |= shares if at == place else {}
    total, beside = sum(late.values()), sum(others.values())
    if min(total, beside) < LEAST_OF_EACH:
        return None
    for line, count in late.most_common():
        share, peers = count / total, others[line] / beside
        is_own = peers <= PEERS_PART * share and count >= LEAST_OF_EACH
        low, high = bounds(share, total)[0], bounds(peers, beside)[1]
        if is_own and low > high and share * step_ns >= PART_OF_LATENESS * late_ns:
            return Line(*line, count, *reading(names[line]))
    return None
