"""What no record tells of an edited step, as numbers with a range.

Each is a property of PyTorch, a compiler or a bus and not of a model. The values were set by hand, with the
half of `benchmarks/gains` that tunes in view where its models speak of them (generated kernels, norms,
layouts, launches), else as guesses. What comes of them, and how often the range holds, is in `docs/gains.md`.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace


class Assumptions(Struct, frozen=True):
    """One guess at everything unknown; `CAUTIOUS` and `HOPEFUL` bound `MIDDLE`."""

    fused_roof: float = 0.60
    """Share of the bandwidth that generated kernels reach."""
    norm_roof: float = 0.46
    """The same of library norms over channels-last images, by one reading and one writing."""
    norm_roof_16_bit: float = 0.31
    first_norm: float = 0.5
    """Bytes of a library norm over batches of channels-first images, over those that others of its time and
    grid move; where they are unknown."""
    norm_16_bit: float = 1.4
    """Time of a channels-first norm in 16 bits, where cuDNN's of 32 bits is replaced by ATen's own."""
    extra_operands: float = 0.15
    """Part of the bytes of a run's other kernels that stay: masks, residuals, what backward needs."""
    batch_norm_passes: float = 1.55
    """Traffic of a generated norm over batches, over one reading and one writing of the images."""
    keeps_layout: bool = False
    """Whether a compiler leaves images as they lie, where no shapes of convolutions tell."""
    loss_inside: bool = True
    """Whether the loss is within what is compiled."""
    compiled_launch: float = 1.3
    """Host time of a launch from generated code, over that of an eager one of the same model."""
    compiled_entry_ns: float = 300_000.0
    """Guards and the autograd function of a compiled graph, once forward and once backward."""
    graph_entry_ns: float = 300_000.0
    """The same of a replayed CUDA graph."""
    graph_node_ns: float = 900.0
    """From one node of a CUDA graph to the next on the device."""
    kernel_floor_ns: float = 1_800.0
    """The shortest kernel."""
    layout_conv: float = 0.85
    """Time of a channels-last convolution over that of a channels-first one on tensor cores."""
    layout_measured: float = 1.0
    """Time of a kernel over channels-last images over `Kernels.last_over_first`."""
    products_roof: float = 0.55
    """Share of a tensor core's peak that products reach where units change."""
    added_op: float = 0.5
    """Host time of a conversion that an edit adds, over the mean one from launch to launch."""
    narrowed: float = 0.5
    """Time of what follows products in their type under autocast, where that is of 16 bits."""
    mixed: float = 1.0
    """Time of what stays in 32 bits under autocast, but reads some of 16."""
    fused_optimizer_host: float = 0.35
    """Host time of a fused update over that of one over lists."""
    attention_roof: float = 0.40
    """Share of the peak that fused attention reaches."""
    pinned_bytes_per_s: float = 50e9
    """Of a pinned copy over the bus."""
    hidden_communication: float = 0.8
    """Part of collectives' time that the backward pass can hide."""
    profiled_host: float = 0.5
    """Host time of a step without torch.profiler, over that with it."""
    watched_host: float = 0.77
    """The same of the agent's bursts, and of a profiler that records no ops: the mean of 12 launch-bound
    loops of `benchmarks/gains` whose steps between bursts are known, from 0.64 to 1.08."""
    index_time: float = 0.2
    """Time of a generated gather or scatter over that of a library one."""
    layout_16_bit: float = 0.85
    """Time of conversions between layouts in 16 bits over that in 32."""
    by_group: float = 5.5
    """Time to convert images one group of channels at a time over that of all at once."""
    wide_16_bit: float = 4.0
    """Time of a convolution with a wide window in 16 bits over that in 32."""
    host_again: float = 1.0
    """Host time of an edited step over what is predicted: two runs of one launch-bound loop differ."""
    twice: float = 0.95
    """Part of the additional work of twice the batch that shows: larger kernels run a little better."""
    small_ns: float = 4_000.0
    large_ns: float = 20_000.0
    """Kernels of the first length take as long for twice the work, of the second twice as long."""


MIDDLE = Assumptions()
CAUTIOUS = replace(
    MIDDLE,
    fused_roof=0.45,
    norm_roof=0.35,
    norm_roof_16_bit=0.22,
    first_norm=1.0,
    norm_16_bit=1.8,
    extra_operands=0.35,
    batch_norm_passes=1.7,
    keeps_layout=True,
    loss_inside=False,
    compiled_launch=2.2,
    compiled_entry_ns=600_000.0,
    graph_entry_ns=600_000.0,
    graph_node_ns=1_300.0,
    kernel_floor_ns=2_500.0,
    layout_conv=1.0,
    layout_measured=1.35,
    products_roof=0.4,
    added_op=1.0,
    narrowed=1.1,
    mixed=1.3,
    fused_optimizer_host=0.6,
    attention_roof=0.28,
    pinned_bytes_per_s=22e9,
    hidden_communication=0.5,
    profiled_host=0.8,
    watched_host=1.0,
    index_time=1.0,
    layout_16_bit=1.0,
    by_group=6.5,
    wide_16_bit=6.0,
    host_again=1.06,
    twice=1.0,
    small_ns=2_500.0,
    large_ns=10_000.0,
)
HOPEFUL = replace(
    MIDDLE,
    fused_roof=0.8,
    norm_roof=0.6,
    norm_roof_16_bit=0.45,
    first_norm=0.25,
    norm_16_bit=0.9,
    extra_operands=0.0,
    batch_norm_passes=1.3,
    compiled_launch=0.7,
    compiled_entry_ns=80_000.0,
    graph_entry_ns=60_000.0,
    graph_node_ns=600.0,
    kernel_floor_ns=1_300.0,
    layout_conv=0.7,
    layout_measured=0.75,
    products_roof=0.7,
    added_op=0.2,
    fused_optimizer_host=0.2,
    attention_roof=0.6,
    pinned_bytes_per_s=55e9,
    hidden_communication=1.0,
    profiled_host=0.33,
    watched_host=0.62,
    index_time=0.1,
    layout_16_bit=0.6,
    by_group=3.5,
    wide_16_bit=1.0,
    host_again=0.94,
    twice=0.88,
    small_ns=8_000.0,
    large_ns=40_000.0,
)
