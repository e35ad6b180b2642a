"""What advice needs beyond the estimate: facts about one window, each extracted on its own.

Nothing is judged here, and nothing here knows an advisory.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from brrrtop.analysis.account.idle_causes import DISPATCH_NS
from brrrtop.analysis.counters.readings import Readings, readings
from brrrtop.analysis.kernels.traits import used
from brrrtop.analysis.kernels.written_attention import WrittenAttention, written_attention
from brrrtop.analysis.signals.chains import Chains, chains
from brrrtop.analysis.signals.checkpoints import Checkpoints, saves
from brrrtop.analysis.signals.collectives import Collectives, collectives
from brrrtop.analysis.signals.embeddings import DenseGradients, dense_gradients
from brrrtop.analysis.signals.host_activity import (
    CpuWork,
    Hosts,
    Pauses,
    cpu_work,
    hosts,
    pauses,
)
from brrrtop.analysis.signals.joined import joined
from brrrtop.analysis.signals.optimizers import Optimizer, optimizer
from brrrtop.analysis.signals.precision import Precision, precision
from brrrtop.analysis.signals.recomputation import recomputed_ns
from brrrtop.analysis.signals.syncs import Syncs, syncs
from brrrtop.analysis.signals.transfers import Transfers, transfers
from brrrtop.kernel_names.architecture import least_capability
from brrrtop.model.estimate import Estimate
from brrrtop.model.tables import I8, TimeSlices, Window
from brrrtop.model.vocabulary import MarkClass


class Facts(Struct, frozen=True):
    """Numbers about one window; None is "not seen", a zero was looked for and not there."""

    steps: float | None
    """Steps that the account covers: what per-step figures divide by."""
    kernels: int
    kernel_p50_ns: int | None
    dispatch_idle_ns: int
    """Idle in gaps no longer than Python needs between two launches, whatever their cause."""
    chains: Chains | None
    attention: WrittenAttention | None
    attention_ns: int
    """Of its products and everything between them."""
    precision: Precision
    transfers: Transfers
    """Less the copies of `saves`."""
    saves: Checkpoints | None
    dense_gradients: DenseGradients | None
    syncs: Syncs | None
    cpu_work: CpuWork | None
    optimizer: Optimizer | None
    hosts: Hosts
    saves_between: Pauses | None
    """Saves around the window, its own among them."""
    collectives: Collectives
    readings: Readings
    recomputed_ns: int | None
    graph_kernels: int
    architecture: tuple[int, int] | None
    """Newest compute capability that kernel names say they were built for."""
    lost_share: float
    """Records lost over records there were."""
    turns: TimeSlices | None
    """What another process had of the time in which kernels were recorded; None: none is known."""


def facts(window: Window, estimate: Estimate, call_rows: I8) -> Facts:
    """The facts of a window.

    Args:
        window: Of one device, as the estimate was made from.
        estimate: Of that window; only its steps are used.
        call_rows: Row of each activity's launching call, -1 where unknown.
    """
    seen = joined(window, call_rows)
    guessed = estimate.steps.source == "period"
    saved = saves(seen, None if guessed else estimate.steps_covered)
    attention = written_attention(window)
    excluded = seen.in_optimizer.copy()
    if attention is not None:
        excluded[attention.rows] = True
    kernels = seen.kernels
    lengths = seen.durations_ns[kernels]
    gaps = seen.gap_ends_ns - seen.gap_starts_ns
    records = len(window.activities) + window.lost_records
    return Facts(
        steps=estimate.steps_covered,
        kernels=int(kernels.sum()),
        kernel_p50_ns=int(np.median(lengths)) if len(lengths) else None,
        dispatch_idle_ns=int(gaps[gaps <= DISPATCH_NS].sum()),
        chains=chains(seen, excluded),
        attention=attention,
        attention_ns=0 if attention is None else int(seen.durations_ns[attention.rows].sum()),
        precision=precision(seen, None if attention is None else attention.rows),
        transfers=transfers(seen, saved),
        saves=saved,
        dense_gradients=dense_gradients(seen),
        syncs=syncs(seen, saved),
        cpu_work=cpu_work(seen),
        optimizer=optimizer(seen),
        hosts=hosts(seen),
        saves_between=pauses(window, MarkClass.CHECKPOINT),
        collectives=collectives(seen),
        readings=readings(window),
        recomputed_ns=recomputed_ns(seen, estimate.steps_covered),
        graph_kernels=int((window.activities.graph_ids[kernels] != 0).sum()),
        architecture=least_capability(window.names[i] for i in used(window.activities.name_ids)),
        lost_share=window.lost_records / records if records else 0.0,
        turns=window.turns,
    )
