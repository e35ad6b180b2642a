"""What edits start from: what no record tells of an edited step, as numbers with a range; its forward and
backward (their nodes, where they begin, the pace of launches, what they move); what the device can do.

Each assumption is a property of PyTorch, a compiler or a bus and not of a model. The values were set by hand,
with the half of `benchmarks/gains` that tunes in view where its models speak of them (generated kernels,
norms, layouts, launches), else as guesses. What comes of them, and how often the range holds, is in
`docs/gains.md`.
"""

from typing import TypeVar

import numpy as np
from msgspec import Struct

from brrrtop.analysis.ceilings import Ceilings
from brrrtop.kernel_names.traits import Role, Trait
from brrrtop.model.tables import F8, Bool
from brrrtop.whatif.step import Step

T = TypeVar("T", float, bool)
_GUESSES: list[tuple[float, ...]] = []


def _guess(middle: T, cautious: T, hopeful: T) -> T:
    """A field's value of each of the three."""
    _GUESSES.append((middle, cautious, hopeful))
    return middle


class Assumptions(Struct, frozen=True):
    """One guess at everything unknown: by field a likely one, a cautious one and a hopeful one."""

    fused_roof: float = _guess(0.60, 0.45, 0.8)
    """Share of the bandwidth that generated kernels reach."""
    norm_roof: float = _guess(0.46, 0.35, 0.6)
    """The same of library norms over channels-last images, by one reading and one writing."""
    norm_roof_16_bit: float = _guess(0.31, 0.22, 0.45)
    first_norm: float = _guess(0.5, 1.0, 0.25)
    """Bytes of a library norm over batches of channels-first images, over those that others of its time and
    grid move; where they are unknown."""
    norm_16_bit: float = _guess(1.4, 1.8, 0.9)
    """Time of a channels-first norm in 16 bits, where cuDNN's of 32 bits is replaced by ATen's own."""
    extra_operands: float = _guess(0.15, 0.35, 0.0)
    """Part of the bytes of a run's other kernels that stay: masks, residuals, what backward needs."""
    batch_norm_passes: float = _guess(1.55, 1.7, 1.3)
    """Traffic of a generated norm over batches, over one reading and one writing of the images."""
    keeps_layout: bool = _guess(False, True, False)
    """Whether a compiler leaves images as they lie, where no shapes of convolutions tell."""
    compiled_launch: float = _guess(1.3, 2.2, 0.7)
    """Host time of a launch from generated code, over that of an eager one of the same model."""
    compiled_entry_ns: float = _guess(300_000.0, 600_000.0, 80_000.0)
    """Guards and the autograd function of a compiled graph, or the replay of a CUDA graph: once forward and
    once backward."""
    graph_node_ns: float = _guess(900.0, 1_300.0, 600.0)
    """From one node of a CUDA graph to the next on the device."""
    kernel_floor_ns: float = _guess(1_800.0, 2_500.0, 1_300.0)
    """The shortest kernel."""
    layout_conv: float = _guess(0.85, 1.0, 0.7)
    """Time of a channels-last convolution over that of a channels-first one on tensor cores."""
    layout_measured: float = _guess(1.0, 1.35, 0.75)
    """Time of a kernel over channels-last images over `Kernels.last_over_first`."""
    products_roof: float = _guess(0.55, 0.4, 0.7)
    """Share of a tensor core's peak that products reach where units change."""
    added_op: float = _guess(0.5, 1.0, 0.2)
    """Host time of a conversion that an edit adds, over the mean one from launch to launch."""
    narrowed: float = _guess(0.5, 1.1, 0.5)
    """Time of what follows products in their type under autocast, where that is of 16 bits."""
    mixed: float = _guess(1.0, 1.3, 1.0)
    """Time of what stays in 32 bits under autocast, but reads some of 16."""
    fused_optimizer_host: float = _guess(0.22, 0.45, 0.08)
    """Host time of a fused update over that of one over lists: a launch or two instead of a dozen, and no
    loop over the steps of the parameters."""
    attention_roof: float = _guess(0.40, 0.28, 0.6)
    """Share of the peak that fused attention reaches."""
    pinned_bytes_per_s: float = _guess(50e9, 22e9, 55e9)
    """Of a pinned copy over the bus."""
    hidden_communication: float = _guess(0.8, 0.5, 1.0)
    """Part of collectives' time that the backward pass can hide."""
    profiled_host: float = _guess(0.5, 0.8, 0.33)
    """Host time of a step without torch.profiler, over that with it."""
    watched_host: float = _guess(0.77, 1.0, 0.62)
    """The same of the agent's bursts, and of a profiler that records no ops: the mean of 12 launch-bound
    loops of `benchmarks/gains` whose steps between bursts are known, from 0.64 to 1.08."""
    hidden_host: float = _guess(0.5, 1.0, 0.25)
    """Host time of a step that the GPU sets the pace of, over its length, where a burst hid it."""
    index_time: float = _guess(0.2, 1.0, 0.1)
    """Time of a generated gather or scatter over that of a library one."""
    layout_16_bit: float = _guess(0.85, 1.0, 0.6)
    """Time of conversions between layouts in 16 bits over that in 32."""
    by_group: float = _guess(5.5, 6.5, 3.5)
    """Time to convert images one group of channels at a time over that of all at once."""
    wide_16_bit: float = _guess(4.0, 6.0, 1.0)
    """Time of a convolution with a wide window in 16 bits over that in 32."""
    twice: float = _guess(0.95, 1.02, 0.84)
    """Part of the additional work of twice the batch that shows: larger kernels run a little better."""
    by_sample: float = _guess(2.0, 3.0, 1.0)
    """The same of what a model does sample by sample, of the host too: more samples are padded further."""
    small_ns: float = _guess(4_000.0, 2_500.0, 8_000.0)
    large_ns: float = _guess(20_000.0, 10_000.0, 40_000.0)
    """Kernels of the first length take as long for twice the work, of the second twice as long."""


MIDDLE, CAUTIOUS, HOPEFUL = (Assumptions(*column) for column in zip(*_GUESSES, strict=True))
"""The likely ones, and those that bound them."""


USUAL_MEMORY = 0.7
"""Share of the bandwidth that a kernel of unknown bytes is taken to reach."""


class Roofs(Struct, frozen=True):
    ceilings: Ceilings | None
    bytes_per_s: float

    @property
    def has_triton(self) -> bool:
        """Whether Triton generates code for this GPU: from compute capability 7.0 on (its README)."""
        capability = self.ceilings.capability if self.ceilings else None
        return capability is None or capability >= (7, 0)

    def flop_per_s(self, precision: str) -> float | None:
        return self.ceilings.rate(precision, True) if self.ceilings else None


def roofs_of(ceilings: Ceilings | None) -> Roofs | None:
    if ceilings is None or not ceilings.bytes_per_s:
        return None
    return Roofs(ceilings, ceilings.bytes_per_s)


def model_nodes(step: Step) -> Bool:
    """Nodes of forward and backward: no update, no collective, no copy to or from the host."""
    kernels = step.kernels
    outside = kernels.optimizer | kernels.recurrent | kernels.is_role(Role.COMM, Role.COPY)
    return np.asarray(step.launches & ~outside)


def usual_call_ns(step: Step) -> float:
    """Mean host time from one launch of the model to the next. Conversions between layouts are launched
    from within an op, and count as part of its launch."""
    region = model_nodes(step)
    opens, _ = entries(step, region)
    inner = region & ~opens & ~after_wait(step)
    ops = inner & ~step.kernels.is_role(Role.LAYOUT)
    if not ops.any():
        return 0.0
    spent = np.maximum(step.before_ns - step.marked_ns, 0.0) + step.call_ns
    return float(spent[inner].sum() / ops.sum())


def entries(step: Step, region: Bool) -> tuple[Bool, Bool]:
    """First nodes of compiled code: of the forward pass, and of each part of it after a value that the loop
    reads (Dynamo breaks the graph there); and of the backward pass."""
    backward = step.kernels.backward
    at = np.flatnonzero(region)
    opens, turns = np.zeros(len(step), np.bool_), np.zeros(len(step), np.bool_)
    if not len(at):
        return opens, turns
    # A copy in the middle of a pass does not begin another one, an update does.
    updates = np.cumsum(step.kernels.optimizer)[at]
    later = np.concatenate(([True], updates[1:] != updates[:-1]))
    opens[at] = later
    first = np.concatenate(([False], backward[at][1:] & ~backward[at][:-1])) & ~later
    turns[at] = first & (
        np.cumsum(first) - np.maximum.accumulate(np.where(later, np.cumsum(first), 0)) <= 1
    )
    return opens | (region & after_wait(step)), turns


def after_wait(step: Step) -> Bool:
    return np.concatenate(([True], step.waits[:-1])).astype(np.bool_)


def moved_bytes(step: Step, roofs: Roofs, guess: Assumptions) -> F8:
    """Bytes of each node, where unknown what it would move in its time at a usual rate.

    In less than a wave, part of the memory's rate is left unused.
    """
    kernels = step.kernels
    filled = np.where(np.isfinite(kernels.waves), np.minimum(kernels.waves, 1.0), 1.0)
    norms = kernels.batch_norm & kernels.has(Trait.NCHW)
    share = USUAL_MEMORY * filled * np.where(norms, guess.first_norm, 1.0)
    usual = step.device_ns * 1e-9 * roofs.bytes_per_s * share
    return np.where(np.isfinite(kernels.size_bytes), kernels.size_bytes, usual)
