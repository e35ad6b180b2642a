"""Every limit a rule applies, with its reason. Frozen: a changed copy is a changed opinion."""

from __future__ import annotations

from dataclasses import dataclass

from brrrtop.estimator.looks import LEAST_SAMPLES


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of the rules; shares are of wall time unless they say otherwise.

    Source: regime-theory, section 4, by the A-number given.
    """

    worth_share: float = 0.02
    """Less than 2 % of the wall is lost in the noise of a step (4.1)."""
    worth_step_ns: int = 300_000
    """Less than 0.3 ms a step is not worth an edit, however large its share (4.1)."""
    healthy_gain: float = 0.05
    """A run is healthy where no edit that is known wins more."""
    confidence: float = 0.5
    """Below even odds advice costs more trust than it brings (4.1)."""
    lost_share: float = 0.01
    """With more than 1 % of the records lost no rule about kernels can be trusted (4.1)."""
    host_bound: float = 0.5
    """More than half the kernel time was launched with the device waiting for it (A10)."""
    launch_idle: float = 0.15
    """Idle before launches below 15 % is the price of an eager loop, not its limit (A10)."""
    small_kernel_ns: int = 20_000
    """A launch costs 5-20 us of host time: kernels under 20 us cannot hide it (A10)."""
    host_idle: float = 0.1
    """Long absences of the host that nothing explains (A14)."""
    stack_samples: int = LEAST_SAMPLES
    """Fewer samples put too wide an error on a line's share (1.4)."""
    input_idle: float = 0.05
    """TensorBoard's plugin draws the same line for loader time (A17)."""
    sync_idle: float = 0.03
    """Refills under 3 % happen in any loop that prints its loss (A16)."""
    pageable_bytes: int = 1_000_000
    """Smaller pageable copies a step are scalars and labels (A18)."""
    exposed_copy: float = 0.03
    """Pinned copies that nothing hides (A19)."""
    readback: float = 0.02
    """Device-to-host copies that nothing hides (A20)."""
    logging_idle: float = 0.02
    """(A21)"""
    checkpoint_idle: float = 0.02
    """(A22)"""
    checkpoint_stall_ns: int = 2_000_000_000
    """One save that holds the device idle for 2 s is felt, however rare (A22)."""
    compile_idle: float = 0.05
    """Code loaded in every step, where no mark tells a recompile (A03)."""
    gc_idle: float = 0.01
    """(A23)"""
    gc_pause_ns: int = 20_000_000
    """A single collection of 20 ms delays every rank of a job (A23)."""
    alloc_idle: float = 0.02
    """Driver allocations in steady state (A25)."""
    optimizer_kernels: int = 60
    """Single-tensor optimizer kernels a step; a fused update needs a handful (A26)."""
    foreach_passes: float = 0.05
    """What the passes that a fused Adam spares are worth; a dense model's are under that (A26)."""
    chain_share: float = 0.05
    """Unfused chains below 5 % of the wall are what a well-kept eager model has (A30)."""
    mostly_waiting: float = 0.5
    """A step that is twice as fast once its data is there waits for nothing else."""
    beside_waiting: float = 0.1
    """Such a step has a larger cause: what wins less than a tenth comes after it."""
    named_part: float = 0.5
    """Of what fusing can win: norms or conversions that are most of it are the cause (A31, A33)."""
    chain_length: float = 4.0
    """Pointwise kernels in a typical chain; residual, norm and activation make 2-3."""
    strong_chain: float = 0.25
    """A bound this large speaks for itself, whatever the chains' length (A30)."""
    moving_chain: float = 0.15
    """The same of a step that moving tensors holds back, alone or with something else (A30). Of the
    H200 recordings three are between the two: their writers asked for it in two and forbade it in none."""
    norm_share: float = 0.03
    """Norms written out (A31)."""
    storage_memory: float = 0.4
    """Memory side of the wall before halving the bytes is the first thing to try (A32)."""
    cast_share: float = 0.125
    """Autocast over fp32 weights converts each weight once a step: 3-6 % is its price (A33). With the
    logits of 50 thousand words into the loss (4.5 %) and what fp32 norms read (3 %) it is 12 %: so in
    two transformers on an H200 that have nothing to mend."""
    conv_share: float = 0.15
    """Convolutions, conversions, norms and pools of images below which their layout cannot pay (A34)."""
    conv_least: float = 0.05
    """Convolutions and conversions that tell a conv net: norms of other models have no layout (A34)."""
    nchw_part: float = 0.3
    """Part of the convolution time in channels-first kernels and conversions (A34)."""
    copying_share: float = 0.12
    """Attention layouts need some copies: 7 % was seen in a healthy GPT (A35)."""
    weak_roof: float = 0.3
    """Achieved share of the memory roof below which a full-grid kernel is inefficient (A36)."""
    weak_share: float = 0.1
    """(A36)"""
    memory_full: float = 0.9
    """Device memory in use: the batch cannot grow (A37)."""
    memory_roomy: float = 0.6
    """Device memory in use: the batch can double (A12, A38)."""
    recompute_share: float = 0.03
    """(A38)"""
    index_share: float = 0.15
    """(A39)"""
    fill_share: float = 0.02
    """(A27)"""
    simt_share: float = 0.05
    """(A40)"""
    tf32_share: float = 0.15
    """(A41)"""
    misaligned_share: float = 0.03
    """(A43)"""
    attention_share: float = 0.05
    """(A46)"""
    backend_share: float = 0.1
    """(A47)"""
    skinny_share: float = 0.1
    """(A45)"""
    old_conv_share: float = 0.05
    """(A48)"""
    double_share: float = 0.02
    """(A49)"""
    exposed_comm: float = 0.1
    """TensorBoard's plugin draws the same line (A51)."""
    short_collectives: int = 50
    """Collectives under 50 us a step (A53)."""
    straggler_share: float = 0.05
    """(A52)"""
    underfilled: float = 0.12
    """A healthy ResNet's small late layers leave 10 % (A59)."""
    batch_overhead: float = 0.25
    """Launch idle and under-filled time that a double batch would not repeat (A12)."""
    misled_util: float = 0.9
    """(A05)"""
    misled_useful: float = 0.4
    """(A05)"""
    throttled_share: float = 0.1
    """Share of readings with a thermal or hardware slowdown reason (A54)."""
    low_clock: float = 0.8
    """Of the largest SM clock (A28)."""
    foreign_util: float = 0.15
    """Utilisation by others: nvidia-smi's less our own busy share (A55)."""
    busy_overhead: float = 0.25
    """A healthy run leaves at most this to overhead; a ResNet's late layers take 10-15 % (A50)."""
    unknown: float = 0.25
    """With more of the time unclassed nobody can call a run healthy (A50)."""
    healthy_roof: float = 0.3
    """Mean achieved share of the roofs, where known; 16-bit convolutions reach 30 % (A50)."""
    profiled: float = 0.1
    """What torch.profiler takes of the host's time before its idle time is doubted (4.3)."""
    profiled_busy: float = 0.25
    """Of the device's time at work: a loop that is twice as long for the profiler may well be bound by
    its kernels without it (4.3)."""
    monitor_cost: float = 0.03
    """What watching may add to a step before it says so itself (4.3)."""


DEFAULT = Thresholds()
