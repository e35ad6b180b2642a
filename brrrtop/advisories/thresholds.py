"""Every limit a rule applies, with its reason. Frozen: a changed copy is a changed opinion."""

from __future__ import annotations

from dataclasses import dataclass

from brrrtop.analysis.signals.stack_samples import LEAST_SAMPLES


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits of the rules; shares are of wall time unless they say otherwise."""

    worth_share: float = 0.02
    """Less than 2 % of the wall is lost in the noise of a step."""
    worth_step_ns: int = 300_000
    """Less than 0.3 ms a step is not worth an edit, however large its share."""
    batch_gain: float = 0.10
    """Twice the batch is advice from here on: it changes the training, and memory bounds it."""
    healthy_gain: float = 0.05
    """A run is healthy where no edit that is known wins more."""
    confidence: float = 0.5
    """Below even odds advice costs more trust than it brings."""
    lost_share: float = 0.01
    """With more than 1 % of the records lost no rule about kernels can be trusted."""
    unrecorded_share: float = 0.1
    """Time in nodes of CUDA graphs that were not recorded, from which on nothing is advised."""
    launch_idle: float = 0.15
    """Idle before launches below 15 % is the price of an eager loop, not its limit."""
    host_idle: float = 0.1
    """Long absences of the host that nothing explains."""
    stack_samples: int = LEAST_SAMPLES
    """Fewer samples put too wide an error on a line's share."""
    input_idle: float = 0.05
    """TensorBoard's plugin draws the same line for loader time."""
    sync_idle: float = 0.03
    """Refills under 3 % happen in any loop that prints its loss."""
    pageable_bytes: int = 1_000_000
    """Smaller pageable copies a step are scalars and labels."""
    readback: float = 0.02
    """Device-to-host copies that nothing hides."""
    logging_idle: float = 0.02
    """Logging under 2 % of the wall is the price of seeing the loss."""
    checkpoint_idle: float = 0.02
    """A save every thousand steps takes less."""
    checkpoint_stall_ns: int = 2_000_000_000
    """One save that holds the device idle for 2 s is felt, however rare."""
    compile_idle: float = 0.05
    """Code loaded in every step, where no mark tells a recompile."""
    gc_idle: float = 0.01
    """Collections under 1 % are the price of Python."""
    gc_pause_ns: int = 20_000_000
    """A single collection of 20 ms delays every rank of a job."""
    alloc_idle: float = 0.02
    """Driver allocations in steady state."""
    chain_share: float = 0.05
    """Unfused chains below 5 % of the wall are what a well-kept eager model has."""
    mostly_waiting: float = 0.5
    """A step that is twice as fast once its data is there waits for nothing else."""
    beside_waiting: float = 0.1
    """Such a step has a larger cause: what wins less than a tenth comes after it."""
    storage_memory: float = 0.4
    """Memory side of the wall before halving the bytes is the first thing to try."""
    cast_share: float = 0.125
    """Autocast over fp32 weights converts each weight once a step: 3-6 % is its price. With the
    logits of 50 thousand words into the loss (4.5 %) and what fp32 norms read (3 %) it is 12 %: so in
    two transformers on an H200 that have nothing to mend."""
    copying_share: float = 0.12
    """Attention layouts need some copies: 7 % was seen in a healthy GPT."""
    weak_roof: float = 0.3
    """Achieved share of the memory roof below which a full-grid kernel is inefficient."""
    weak_share: float = 0.1
    """Kernels with less of the wall cannot win 5 % by being padded."""
    memory_full: float = 0.9
    """Device memory in use: the batch cannot grow."""
    memory_roomy: float = 0.6
    """Device memory in use: the batch can double."""
    recompute_share: float = 0.03
    """Recomputing less than 3 % buys memory for nothing."""
    index_share: float = 0.15
    """One embedding's lookups and gradient take less."""
    fill_share: float = 0.02
    """Zeros that take less of the wall than 2 % are workspaces."""
    misaligned_share: float = 0.03
    """One odd head takes less."""
    backend_share: float = 0.1
    """Attention that takes less of the wall cannot win 5 % by its backend."""
    skinny_share: float = 0.1
    """A classifier on one row takes less."""
    old_conv_share: float = 0.05
    """A first layer of three channels takes less."""
    double_share: float = 0.02
    """A metric in fp64 takes less."""
    short_collectives: int = 50
    """Collectives under 50 us a step."""
    misled_util: float = 0.9
    """nvidia-smi counts time with any kernel resident: a busy loop reads 90 % and more."""
    misled_useful: float = 0.4
    """Of the roofs: a run that uses more is what GPU-Util says."""
    throttled_share: float = 0.1
    """Share of readings with a thermal or hardware slowdown reason."""
    low_clock: float = 0.8
    """Of the largest SM clock."""
    foreign_util: float = 0.15
    """Utilisation by others: nvidia-smi's less our own busy share."""
    unknown: float = 0.25
    """With more of the time unclassed nobody can call a run healthy."""
    profiled: float = 0.1
    """What torch.profiler takes of the host's time before its idle time is doubted."""
    profiled_busy: float = 0.25
    """Of the device's time at work: a loop that is twice as long for the profiler may well be bound by
    its kernels without it."""
    monitor_cost: float = 0.03
    """What watching may add to a step before it says so itself."""


DEFAULT = Thresholds()
