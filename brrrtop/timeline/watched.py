"""Which marks outside a judged span still speak of it: samples of the training thread's stack."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from brrrtop.model.tables import Bool, Marks, Span
from brrrtop.model.vocabulary import NAMED, MarkClass

WATCH_NS = 60_000_000_000
"""Long enough for a hundred samples of a thread that is looked at twice a second, short enough to
follow a change."""
LEAST_NEW = 5
"""A look or two more change no sentence."""
_KEPT = np.array([int(c) for c in (MarkClass.STACK, *NAMED)])


def watch_around(span: Span, traced: Sequence[Span], newest_ns: int) -> Span:
    """The latest minute of what lies between the first traced span and the next one after `span`.

    What came before the first is loading and warm-up; from the next on it is another span's.
    """
    later = [one.t0_ns for one in traced if one.t0_ns >= span.t1_ns]
    end = min(later, default=max(newest_ns, span.t1_ns) + 1)
    first = min([one.t0_ns for one in traced[:1]], default=span.t0_ns)
    return Span(max(end - WATCH_NS, min(first, span.t0_ns)), end)


def speaking(marks: Marks, around: Span) -> Bool:
    """Rows that are kept for a span: samples and what names a cause, as far as steps went on.

    After the last step a trainer may do anything: save, evaluate, end.
    """
    inside = (marks.ends_ns >= around.t0_ns) & (marks.starts_ns < around.t1_ns)
    steps = marks.ends_ns[inside & (marks.classes == MarkClass.STEP)]
    if len(steps):
        inside &= marks.starts_ns < steps.max()
    return np.asarray(inside & np.isin(marks.classes, _KEPT))


def is_due(taken: int, looked: int, ended: bool) -> bool:
    """Whether so many samples deserve a second verdict on a span, after one with `looked` of them.

    Half as many again: a watch without bursts is judged again a few times, not twice a second. At
    the end all of them count, however it was come to.
    """
    return taken > looked if ended else taken >= max(LEAST_NEW, looked + looked // 2)
