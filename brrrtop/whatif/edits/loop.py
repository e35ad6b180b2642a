"""What the loop does otherwise: waits of the host taken away, copies and collectives beside kernels, twice
the batch."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.facts.table import READ_BACK_BYTES
from brrrtop.kernel_names.traits import Role, Trait
from brrrtop.model.tables import Bool
from brrrtop.whatif.assumptions import Assumptions, Roofs
from brrrtop.whatif.step import Step, stretches

QUIET = ("gc", "logging", "checkpoint", "evaluation")
"""Causes of the host's own work between steps."""
MANY, APART = 16, 64
"""A model that sends values to the device and reads others back, more often than that in a step and at most
so many nodes apart, goes through its batch by the sample: a detector of four pictures does either 48 times,
no other of 94 recordings of public models does both more than 7 times."""


def loader_ready(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    edited = _without(step, ("input",))
    return None if edited is None else replace(edited, batch_ns=0.0)


def quiet_host(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step without collections, logging, saves and evaluation."""
    return _without(step, QUIET)


def no_sync(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step without waits for the device, values that are read back among them; None without any.

    Waits of uploads stay: pinned memory is their fix; and those for more than a few values: the host wants
    these at once.
    """
    kernels = step.kernels
    data = kernels.is_role(Role.COPY) & (kernels.size_bytes > READ_BACK_BYTES) | kernels.uploads
    waits = step.waits & ~data & (step.launches | ~np.roll(data, 1))
    # A lone wait is gone; a copy that was waited for still runs.
    gone = waits & ~step.launches
    if not waits.any() or gone.all():
        return None
    return replace(step, waits=step.waits & ~waits).without(gone)


def _without(step: Step, causes: Sequence[str]) -> Step | None:
    """The step without named parts of the host's time; None where nobody saw any."""
    gone = sum((step.named_ns[cause] for cause in causes), np.zeros(len(step)))
    if not gone.any():
        return None
    named = {c: np.zeros(len(step)) if c in causes else part for c, part in step.named_ns.items()}
    return replace(step, before_ns=np.maximum(step.before_ns - gone, 0.0), named_ns=named)


def pinned_copies(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with host copies from pinned memory, beside kernels; None without any to the device."""
    copies = step.kernels.uploads & step.launches
    if not copies.any() or step.device_ns[copies].sum() <= 0:
        return None
    faster = step.kernels.size_bytes / guess.pinned_bytes_per_s * 1e9
    slow = step.kernels.pageable & (faster < step.device_ns)
    faster = np.where(slow, faster, step.device_ns)
    edited = replace(step, waits=step.waits & ~copies)
    return _hide(edited, copies, np.where(copies, faster, 0.0).sum(), 1.0)


def overlap_communication(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step with collectives behind the backward pass, as far as that is long enough."""
    collectives = step.kernels.is_role(Role.COMM) & step.launches
    alone = step.device_ns[collectives].sum()
    if alone <= 0:
        return None
    return _hide(step, collectives, alone, guess.hidden_communication)


def _hide(step: Step, rows: Bool, needs_ns: float, part: float) -> Step:
    """The step with these nodes beside all kernels: what does not fit is left on them."""
    beside = step.device_ns[~rows & step.launches & ~step.kernels.is_role(Role.COPY)].sum()
    left = max(needs_ns - part * beside, (1 - part) * needs_ns, 0.0)
    had = step.device_ns[rows].sum()
    device = np.where(rows, step.device_ns * (left / had if had else 0.0), step.device_ns)
    return replace(step, device_ns=device)


def double_batch(step: Step, roofs: Roofs, guess: Assumptions) -> Step | None:
    """The step on twice the batch, whose time is of two steps' work: the host does the same but where it goes
    through samples, small kernels take the same time, large ones twice as much."""
    kernels = step.kernels
    if not step.launches.any():
        return None
    by_waves = np.clip(2 * kernels.waves, 1.0, 2.0)
    by_time = np.clip(
        1 + (step.device_ns - guess.small_ns) / (guess.large_ns - guess.small_ns), 1.0, 2.0
    )
    # A norm or a softmax has a block for some rows, so that blocks become more and no larger.
    rows = kernels.is_role(Role.NORM, Role.SOFTMAX) & ~kernels.batch_norm & ~kernels.backward
    by_blocks = np.where(rows, by_waves, np.maximum(by_waves, by_time))
    grows = np.where(np.isfinite(kernels.waves), by_blocks, by_time)
    grows = np.where(kernels.is_role(Role.COPY, Role.SET), 2.0, grows)
    # Updates, weights' conversions and gradients on their way to other ranks are as large as the model.
    weights = kernels.optimizer | kernels.is_role(Role.COMM) | kernels.has(Trait.FOREACH)
    grows = np.where(weights, 1.0, grows)
    grows = 1 + (grows - 1) * guess.twice
    sent = int(kernels.pageable.sum())
    many = min(sent, int(step.waits.sum()) - sent) > MANY * step.count
    by_sample = np.where(many & stretches(step.waits, APART), guess.by_sample, 1.0)
    loading = step.named_ns["input"]
    return replace(
        step,
        device_ns=step.device_ns * np.maximum(grows, by_sample),
        before_ns=step.before_ns * by_sample + loading,
        call_ns=step.call_ns * by_sample,
        batch_ns=2 * step.batch_ns,
        named_ns={**step.named_ns, "input": 2 * loading},
    )
