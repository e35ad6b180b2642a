"""How many samples a step has, by the shapes of what its kernels read."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from brrrtop.analysis.facts.table import Facts, figures_of_ops
from brrrtop.model.tables import OpSignature, edges

_OF_SAMPLES = re.compile(r"conv|(?<!vector_)norm|attention|softmax|pool|gelu|relu|silu|addmm")
"""Ops over activations, samples first: weights go through none of them as the first tensor."""
SEEN, ALIKE = 0.1, 0.9
"""Of these ops: so many lead with the samples, and so many with a multiple: windows, heads, tokens."""


def samples_of_step(facts: Facts) -> int | None:
    """The leading dimension that a step's activations share, times how often a step reads one of them; None
    where shapes or whole steps are not known, or do not agree."""
    if not len(facts.window.links) or not facts.steps.spans:
        return None
    leads = np.where(facts.in_optimizer, np.nan, figures_of_ops(facts, _leading))
    own = np.isfinite(figures_of_ops(facts, _of_samples)) & np.isfinite(leads)
    sizes, counts = np.unique(leads[own], return_counts=True)
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        inside = counts[sizes % size == 0].sum()
        if count >= SEEN * own.sum() and inside >= ALIKE * own.sum():
            return int(size) * _passes(facts, np.flatnonzero(leads % size == 0)) or None
    return None


def _passes(facts: Facts, rows: np.ndarray) -> int:
    """How often a step launches the kernel that it launches least often, of those in most steps."""
    acts = facts.window.activities.take(rows)
    begins, ends = edges(facts.steps.spans)
    step = np.searchsorted(begins, acts.starts_ns, "right") - 1
    inside = (step >= 0) & (acts.starts_ns < ends[step])
    pair = np.stack((facts.window.links.ops_of(acts.correlations), acts.name_ids))
    _, kind = np.unique(pair, axis=1, return_inverse=True)
    times = np.zeros((kind.max() + 1, len(begins)), np.int64)
    np.add.at(times, (kind[inside], step[inside]), 1)
    usual = np.median(times, axis=1)
    return int(usual[usual >= 1].min(initial=np.inf)) if (usual >= 1).any() else 0


def _leading(op: OpSignature) -> float | None:
    """First dimension of the first tensor that is no bias."""
    first: Any = next(iter(op.dims[op.name == "aten::addmm" :]), ())
    known = isinstance(first, tuple) and len(first) > 1 and isinstance(first[0], int)
    return float(first[0]) if known and first[0] else None


def _of_samples(op: OpSignature) -> float | None:
    if not _OF_SAMPLES.search(op.name):
        return None
    lead = _leading(op)
    weight = "norm" in op.name and lead == 1  # weights are normed as one sample
    flat = op.name != "aten::addmm" and (not op.dims or len(op.dims[0]) < 3)
    return None if weight or flat else lead
