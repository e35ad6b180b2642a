"""Gradients of embedding tables kept dense: a whole table of zeros for the few rows that were read.

Autograd fills the gradient of the table with zeros (`at::zeros`, a kernel and no memset), then adds
the rows of the batch into it: at most a sort and seven kernels later (ATen's Embedding.cu and
EmbeddingBackwardKernel.cu). The optimizer goes through all of it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from brrrtop.analysis.signals.joined import Joined

NEAR_KERNELS = 12
"""From the fill to the kernel that adds rows, at most; memsets of the sort not counted."""
_FILL = r"FillFunctor<"
_ADDS_ROWS = r"compute_grad_weight|embedding_backward|sum_and_scatter|EmbeddingBag_acc"


class DenseGradients(Struct, frozen=True):
    """Fills of whole tables in the window."""

    fill_ns: int
    name: str
    """Of the fill that takes the most time."""


def dense_gradients(joined: Joined) -> DenseGradients | None:
    """Tables filled with zeros right before an embedding's rows are added; None where none was."""
    kernels = np.flatnonzero(joined.kernels)
    at = np.flatnonzero(joined.named(_FILL)[kernels])
    rows = np.flatnonzero(joined.named(_ADDS_ROWS)[kernels])
    following = np.searchsorted(rows, at)
    near = np.append(rows, len(kernels) + NEAR_KERNELS)[following] - at <= NEAR_KERNELS
    # Of several fills before one embedding, the nearest is the table.
    near[:-1] &= following[1:] != following[:-1]
    fills = kernels[at[near]]
    if not len(fills):
        return None
    lengths, window = joined.durations_ns[fills], joined.window
    largest = int(fills[int(np.argmax(lengths))])
    return DenseGradients(int(lengths.sum()), window.names[window.activities.name_ids[largest]])
