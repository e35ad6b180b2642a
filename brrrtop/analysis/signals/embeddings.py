"""Gradients of embedding tables kept dense: a whole table of zeros for the few rows that were read.

Autograd allocates the gradient of the table with zeros (`at::zeros`, a fill kernel and no memset),
then adds the rows of the batch into it; the optimizer goes through all of it. ATen's
EmbeddingBackwardKernel.cu and Embedding.cu: the fill comes at most a sort and seven kernels before
the rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from brrrtop.analysis.kernels.traits import used
from brrrtop.analysis.signals.joined import Joined
from brrrtop.model.tables import Bool

NEAR_KERNELS = 12
"""From the fill to the kernel that adds rows, at most; memsets of the sort not counted."""
_FILL = re.compile(r"FillFunctor<")
_ADDS_ROWS = re.compile(r"compute_grad_weight|embedding_backward|sum_and_scatter|EmbeddingBag_acc")


@dataclass(frozen=True, slots=True)
class DenseGradients:
    """Fills of whole tables in the window."""

    count: int
    fill_ns: int
    name: str
    """Of the fill that takes the most time."""


def dense_gradients(joined: Joined) -> DenseGradients | None:
    """Tables filled with zeros right before an embedding's rows are added; None where none was."""
    window = joined.window
    kernels = np.flatnonzero(joined.kernels)
    ids = window.activities.name_ids[kernels]
    fills, adds = _named(joined, ids, _FILL), _named(joined, ids, _ADDS_ROWS)
    if not fills.any() or not adds.any():
        return None
    at, rows = np.flatnonzero(fills), np.flatnonzero(adds)
    following = np.searchsorted(rows, at)
    known = following < len(rows)
    near = known & (rows[np.minimum(following, len(rows) - 1)] - at <= NEAR_KERNELS)
    # Of several fills before one embedding, the nearest is the table.
    near[:-1] &= following[1:] != following[:-1]
    found = kernels[at[near]]
    if not len(found):
        return None
    lengths = joined.durations_ns[found]
    dearest = int(found[int(np.argmax(lengths))])
    return DenseGradients(
        count=len(found),
        fill_ns=int(lengths.sum()),
        name=window.names[window.activities.name_ids[dearest]],
    )


def _named(joined: Joined, ids: np.ndarray, pattern: re.Pattern[str]) -> Bool:
    names = joined.window.names
    wanted = np.zeros(len(names), np.bool_)
    for name_id in used(ids):
        wanted[name_id] = bool(pattern.search(names[name_id]))
    return np.asarray(wanted[ids])
