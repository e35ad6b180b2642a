"""Rules against overhead: launches, waits, copies between host and device, a late batch, an update per
parameter, a small batch."""

from brrrtop.advisories.context import A_LOSS, FORWARD, NAMES_LINES, SERVING, Context
from brrrtop.advisories.of_run import LEAST_ROW
from brrrtop.advisories.registry import OVERHEAD, Finding, edit, finding, rule
from brrrtop.analysis.facts.stack_samples import place
from brrrtop.analysis.facts.training import FUSED_OPTIMIZERS
from brrrtop.analysis.kernels.roofline import LAUNCH_SCALE_NS
from brrrtop.kernel_names.readable import fitted, short_name
from brrrtop.model.advice import WhatIf
from brrrtop.model.estimate import Side
from brrrtop.text import loader, units
from brrrtop.whatif.risks import Risk

ROOMY = 0.6
"""Memory in use above which twice the batch may not fit: activations are most of it."""
BEYOND = 0.03
"""What CUDA graphs must win beside compiling alone to be named beside it."""
WAITS_FIRST = 4
"""Waits a step from which a compiled model falls into pieces: each is a graph break."""
INPUT_IDLE = 0.05
"""Of the wall, by stack samples; TensorBoard's profiler plugin draws the same line for loader time."""
SYNC_IDLE = 0.03
"""By stack samples: refills under 3 % happen in any loop that prints its loss."""
EXPOSED = 0.02
"""Of the wall: copies back that nothing hides."""
LONG_SHARE = 0.1
"""Of the wall: a kernel with less is not what holds a program up."""
OWN_KERNEL = 0.3
"""Of the wall, from where it is worth another tool."""
FAULTS, FAULTING = 16, 0.05
"""Pieces, and of the wall: fewer are a result that is read once."""
READBACK_BYTES = 1_000_000
"""A step: less is scalars and labels."""


@edit(
    "dataloader-stall", OVERHEAD, "The next batch is late", "loader-ready", without_price=True,
    when="; or 5 % of the time idle with the main thread in a loader by its stack, where no wait is marked",
    unless="a wait that the GPU does not feel, because work is still queued",
)  # fmt: skip
def dataloader_stall(context: Context, row: WhatIf | None) -> Finding | None:
    if row is None:
        stalled = context.sampled("input")
        if stalled < INPUT_IDLE:
            return None
        what, then = "the next batch", loader.line()
        if not context.trains:
            what, then = "requests or another thread", "more load, or several requests a batch"
        return finding(
            f"while the GPU idled, the main thread waited for {what}: {units.share(stalled)} of the time",
            then,
            confidence=0.65, saves=stalled, input_idle_share=stalled, wait_mean_ns=None,
        )  # fmt: skip
    waited, stalled = next(iter(context.loaders), None), context.idle("input")
    wait_ns, needed = (waited.mean_ns, waited.needed) if waited is not None else (None, None)
    until = "raise num_workers until the wait is gone, then look at the decoding itself"
    then = f"{context.loader_line}; {until}"
    if waited is None:
        then = f"make batches ahead of the step: in a thread, or in {context.loader_line}"
    if needed is not None and needed.count > (waited.workers or 0 if waited else 0):
        then = f"{context.loader_line}, a core each; with fewer free cores, make decoding cheaper"
        if needed.cores is not None:
            then = (
                f"make decoding cheaper: {needed.count} workers would keep up, and the trainer "
                f"has {needed.cores} cores"
            )
            more = needed.cores > (waited.workers or 0 if waited else 0)
            then += f"; {context.loader_line}" if more else ""
    return finding(
        f"{units.share(stalled)} of the time the GPU waits for the next batch",
        then,
        input_idle_share=stalled, wait_mean_ns=wait_ns,
        workers_needed=needed.count if needed is not None else None,
    )  # fmt: skip


def compile_line(context: Context, line: str = "model = torch.compile(model)") -> str:
    """What to write, after the waits that would break the graph."""
    waits = context.a_step(context.syncs.count) if context.syncs else 0.0
    if waits >= WAITS_FIRST:
        return f"remove the waits first, each breaks the graph; then {line}"
    return line


@edit(
    "launch-bound-compile", OVERHEAD, "Launching sets the pace", "compile compile-reduce-overhead",
    when=", and the GPU stands idle for a quarter of the step",
    unless="a full launch queue (back-pressure); a loop that waits for its workers; milliseconds in "
    "which the host is elsewhere; nodes of CUDA graphs; a run that is compiled already",
)  # fmt: skip
def launch_bound_compile(context: Context, row: WhatIf) -> Finding | None:
    if not context.host_sets_the_pace or context.partly_compiled:
        return None
    if context.serves and row.edit == "compile":
        return None
    if row.edit == "compile-reduce-overhead":
        # Compiled code launches about as slowly: where that wins little, graphs are what compiling is for.
        alone = context.compiled or _compile_is_worth_it(context)
        if alone or not _graphs_beat_compile(context, row):
            return None
        return _launching(context, context.with_line(row).line)
    return _launching(context, compile_line(context))


def _graphs_beat_compile(context: Context, row: WhatIf) -> bool:
    """Replayed they launch in time, as compiled code may not: where launches matter."""
    compiled = context.price("compile")
    if compiled is None or row.saves - compiled.saves >= BEYOND:
        return True
    return compiled.saves_low < 0 < row.saves_low and context.loop_idle("launch") >= BEYOND


def _compile_is_worth_it(context: Context) -> bool:
    compiled = context.price("compile")
    return compiled is not None and context.worth(compiled.saves)


@edit(
    "cuda-graphs", OVERHEAD, "The same launches every step", "compile-reduce-overhead",
    when=", 3 points more than `compile` alone, or where that alone may lose",
    unless="a run that replays graphs already; kernels that compiling fuses, or that the host is ahead of",
)  # fmt: skip
def cuda_graphs(context: Context, row: WhatIf) -> Finding | None:
    if not _graphs_beat_compile(context, row):
        return None
    if context.compiled:
        return _launching(context, context.with_line(row).line, "the model is compiled, and still ")
    if context.host_sets_the_pace and not (
        context.partly_compiled or _compile_is_worth_it(context)
    ):
        return None
    return _launching(context, compile_line(context, context.with_line(row).line))


def _launching(context: Context, line: str, first: str = "") -> Finding:
    kernels = context.a_step(context.kernels)
    waits = context.loop_idle("launch") or context.host_idle_in_loop
    same = units.share(waits) == units.share(context.idle("launch"))
    of = "the time" if same else "that loop's time"
    late = (
        f"the GPU waits {units.share(waits)} of {of} for the host to launch the next one"
        if waits >= LEAST_ROW
        else "compiling fuses many of them"
    )
    return finding(
        f"{first}{kernels:.0f} kernels {context.per}, half of them under "
        f"{units.duration(context.kernel_p50_ns)}: {late}",
        line,
        share=waits,
        kernels_a_step=kernels,
        kernel_p50_ns=context.kernel_p50_ns,
        idle_for_launches_in_loop_share=context.loop_idle("launch"),
        lead_p50_ns=context.estimate.launch.lead_p50_ns,
        rho=context.estimate.launch.rho,
    )


@edit(
    "graph-breaks", OVERHEAD, "Compiled in part only", "compile",
    when=", and pointwise work outside compiled kernels takes four times as long as they do",
    unless="eager runs; custom ops in a small part of the model",
)  # fmt: skip
def graph_breaks(context: Context, row: WhatIf) -> Finding | None:
    runs = context.chains
    if runs is None or not context.partly_compiled:
        return None
    share = context.share(runs.total_ns)
    return finding(
        f"part of the model is compiled, but {units.share(share)} of the time "
        "is pointwise work outside the compiled graphs",
        "TORCH_LOGS=graph_breaks python train.py; then remove .item(), print and "
        "data-dependent ifs, or use fullgraph=True to list them",
        waste="fusing by hand first",
        share=share,
        fused_ns=runs.fused_ns, loose_ns=runs.total_ns,
    )  # fmt: skip


@edit(
    "sync-point", OVERHEAD, "The loop reads values back", "no-sync", without_price=True,
    when="; or 3 % of the time idle with the main thread at such a line by its stack, where no wait "
    "was recorded",
    unless="waits for a full queue cost nothing; waits for a pageable upload belong to pin-memory, "
    "those for large copies back to readback-traffic; a loss printed once a step; the one wait of an "
    "inference step, for its result; factorizations, which read whether they went well",
)  # fmt: skip
def sync_point(context: Context, row: WhatIf | None) -> Finding | None:
    samples, waits = context.estimate.stack_samples, context.syncs
    if row is None:
        lost = context.sampled("sync")
        if lost < SYNC_IDLE:
            return None
        lines = [str(line) for line in samples.lines if line.reads_as == "sync"] if samples else []
        return finding(
            f"while the GPU idled, the main thread was reading values back: {units.share(lost)} "
            f"of the time{', at ' + lines[0] if lines else ''}",
            _keep(context),
            confidence=0.6, saves=lost, lines=lines, stack_samples=samples.count if samples else 0,
        )  # fmt: skip
    checks = context.simulated is not None and Risk.SOLVERS in context.simulated.risks
    if waits is not None and (checks or not waits.count):
        return None
    if waits is None:  # told from the values alone: no calls were recorded
        return finding("values are read back, and the host waits for each", _keep(context))
    count = round(context.a_step(waits.count))
    if not context.trains and count <= 1:
        return None
    more = "; without them Python could launch ahead" if row.saves > context.idle("sync") else ""
    return finding(
        f"{count or 'less than one'} wait{'s' if count > 1 else ''} for the GPU {context.per}{more}",
        f"{_keep(context, bool(waits.lines))}; "
        + (f"most at {place(waits.lines[0][0])}" if waits.lines else NAMES_LINES),
        waits_a_step=context.a_step(waits.count),
        blocked_ns_a_step=context.a_step(waits.blocked_ns),
        lines=[line for line, _, _ in waits.lines],
    )


def _keep(context: Context, at_a_line: bool = False) -> str:
    """What to do; without a line, which may read something else, with the usual example."""
    if context.trains:
        usual = "" if at_a_line else A_LOSS
        return f"keep values on the device and read them every N steps{usual}"
    return FORWARD["no-sync"]


@edit(
    "fused-optimizer", OVERHEAD, "An optimizer that launches per parameter", "fused-optimizer",
    when=", and the optimizer has a fused form",
    unless="gradient clipping and logging beside a fused update; updates over lists of few parameters;"
    " optimizers that multiply matrices",
)  # fmt: skip
def fused_optimizer(context: Context, row: WhatIf) -> Finding | None:
    update = context.optimizer
    if update is None or (update.kind and update.kind not in FUSED_OPTIMIZERS):
        return None
    updates = update.updates or context.steps or 1
    return finding(
        f"the optimizer launches {update.kernels / updates:.0f} kernels an update and takes "
        f"{units.duration(max(update.span_ns, update.host_ns or 0) / updates)}",
        context.with_line(row).line,
        kernels_an_update=update.kernels / updates,
        span_ns_an_update=update.span_ns / updates,
    )


@edit(
    "underfilled-kernels", OVERHEAD, "Kernels too small for the GPU", "double-batch",
    when=", under 60 % of the memory in use, and launch-scale kernels are most of what a larger "
    "batch would not lengthen",
    unless="long kernels with few blocks, whose time follows their work",
)  # fmt: skip
def underfilled_kernels(context: Context, row: WhatIf) -> Finding | None:
    return _larger_batch(context, row) if _are_small(context, row) else None


@edit(
    "bigger-batch", OVERHEAD, "Overhead that a step pays once", "double-batch",
    when=", and under 60 % of the memory in use, or unknown",
    unless="a late loader: twice the batch is twice as late; full memory",
)  # fmt: skip
def bigger_batch(context: Context, row: WhatIf) -> Finding | None:
    return None if _are_small(context, row) else _larger_batch(context, row)


def _fixed_share(row: WhatIf) -> float:
    """Part of a step that does not grow with the batch."""
    return min(max(2 * row.saves, 0.0), 1.0)


def _are_small(context: Context, row: WhatIf) -> bool:
    small = context.share(context.estimate.account.underfilled_ns)
    return small > _fixed_share(row) / 2 and not context.host_sets_the_pace


def _larger_batch(context: Context, row: WhatIf) -> Finding | None:
    used, fixed = context.memory_used, _fixed_share(row)
    if not context.matters(row) or (used is not None and used > ROOMY):
        return None
    room = f"; {units.share(1 - used)} of the memory is free" if used is not None else ""
    price = "it changes the training" if context.trains else "for throughput, not latency"
    rescale = " (rescale the learning rate)" if context.trains else ""
    line = f"double the batch{'' if room else ', if memory allows'}{rescale}"
    longer = f"{2 - fixed:.2f}× as long"
    if row.unprofiled is not None and row.unprofiled.saves < row.saves - BEYOND:
        longer += f" as recorded, {2 - 2 * row.unprofiled.saves:.2f}× without the profiler"
    return finding(
        f"{price}: twice the batch takes {longer}{room}",
        SERVING["double-batch"] if context.serves else line,
        fixed_share=fixed, memory_used_share=used, predicted_step_ratio=2 - fixed,
    )  # fmt: skip


def _uploads(context: Context, pageable: bool, says: str, then: str) -> Finding | None:
    """Uploads from that kind of memory, where most time of uploads is theirs."""
    moved = context.transfers
    if (moved.pageable_up.total_ns > moved.pinned_up.total_ns) is not pageable:
        return None
    up = moved.pageable_up if pageable else moved.pinned_up
    size_bytes, exposed = context.a_step(up.size_bytes), context.share(up.exposed_ns)
    rate = units.rate(up.bytes_per_s or 0.0, "B/s")
    return finding(
        f"{units.size(size_bytes)} {context.per} {says.format(rate=rate)}",
        then,
        bytes_a_step=size_bytes, bytes_per_s=up.bytes_per_s, exposed_share=exposed,
    )  # fmt: skip


@edit(
    "pin-memory", OVERHEAD, "Uploads from pageable memory", "pinned-copies",
    when=", and most of what is uploaded is pageable",
    unless="scalars and labels; uploads hidden behind kernels",
)  # fmt: skip
def pin_memory(context: Context, row: WhatIf) -> Finding | None:
    return _uploads(
        context, True, "from pageable memory at {rate}, while no kernel runs",
        "DataLoader(..., pin_memory=True), or tensor.pin_memory(), and .to(device, non_blocking=True)",
    )  # fmt: skip


@edit(
    "overlap-copies", OVERHEAD, "Pinned uploads that nothing hides", "pinned-copies",
    when=", and what is uploaded is pinned",
    unless="copies beside kernels",
)  # fmt: skip
def overlap_copies(context: Context, row: WhatIf) -> Finding | None:
    return _uploads(
        context, False, "are uploaded while no kernel runs",
        "prefetch the next batch on a side stream: with torch.cuda.stream(copies): "
        "batch = batch.to(device, non_blocking=True)",
    )  # fmt: skip


@rule(
    "few-blocks", OVERHEAD, "A long kernel on a few SMs", any_program=True,
    when="a kernel of 20 us and more, with a tenth of the time, has blocks for fewer than half of the SMs",
    unless="kernels whose shapes tell their work; collectives",
)  # fmt: skip
def few_blocks(context: Context) -> Finding | None:
    sms = context.estimate.device.sm_count
    for row in context.estimate.kernels:
        share = context.share(row.total_ns)
        if share < LONG_SHARE or not sms:
            return None
        if row.underfilled_share and row.blocks_p50 and row.mean_ns >= LAUNCH_SCALE_NS:
            many = f"{row.blocks_p50} block{'s' if row.blocks_p50 > 1 else ''}"
            return finding(
                f"{fitted(row.name, 48)} takes {units.share(share)} of the time with {many}: this GPU's "
                f"{sms} SMs take one at least each",
                "spread its work over more blocks, as many as the GPU has SMs and better several times that",
                waste="more threads in a block alone: a block stays on one SM",
                confidence=0.9, saves=share * (1 - min(row.blocks_p50 / sms, 1.0)),
                blocks=row.blocks_p50, sms=sms,
            )  # fmt: skip
    return None


@rule(
    "unknown-kernel", OVERHEAD, "A kernel with an unknown bound", any_program=True,
    when="somebody's own kernel takes 30 % of the time, and neither its name nor its shapes or counters tell "
    "its side",
    unless="kernels of libraries; kernels that fill too few SMs",
)  # fmt: skip
def unknown_kernel(context: Context) -> Finding | None:
    for row in context.estimate.kernels[:1]:
        share = context.share(row.total_ns)
        plain = short_name(row.name).split(" ")[-1]
        if row.side is not Side.UNKNOWN or not row.blocks_p50 or share < OWN_KERNEL or not plain:
            continue
        command = f"ncu --set full --kernel-name regex:{plain} --launch-count 3 with your command"
        if context.estimate.device.is_amd:
            command = f"rocprof-compute profile -n one -k {plain} -- your command, then analyze"
        return finding(
            f"{plain} takes {units.share(share)} of the time; this file does not tell whether bytes or "
            "arithmetic set its pace",
            f"{command}: it says which, and how far below the roof",
            confidence=0.7, kernel=plain, kernel_share=share,
        )  # fmt: skip
    return None


@rule(
    "unified-memory", OVERHEAD, "Pages move at faults", any_program=True,
    when="pages of managed memory that move, and the faults before them, take 5 % of the time",
    unless="a few pages, or all of them fetched ahead beside kernels",
)  # fmt: skip
def unified_memory(context: Context) -> Finding | None:
    moved = context.transfers
    lost = context.share(moved.pages.total_ns + moved.fault_ns)
    if moved.pages.count < FAULTS or lost < FAULTING:
        return None
    return finding(
        f"{units.size(moved.pages.size_bytes)} of managed memory move in {moved.pages.count} pieces "
        f"between host and GPU, each at a page fault or so: {units.share(lost)} of the time, without the "
        "host's own work between them",
        "cudaMemPrefetchAsync(pointer, bytes, device) before the kernel, and to cudaCpuDeviceId before "
        "the host reads; or cudaMalloc, and one cudaMemcpy from pinned memory",
        confidence=0.75, saves=lost,
        pages_bytes=moved.pages.size_bytes, pieces=moved.pages.count, fault_share=lost,
    )  # fmt: skip


@rule(
    "readback-traffic", OVERHEAD, "Large copies back to the host",
    when="at least 1 MB a step and 2 % of the time, with nothing beside it",
    unless="scalars read back: those are sync-points; the copies of a save", any_program=True,
)  # fmt: skip
def readback_traffic(context: Context) -> Finding | None:
    """What the host does with the copies goes with them, as far as it takes no longer than they do: more
    is the host's own work."""
    ways = (context.transfers.pageable_down, context.transfers.pinned_down)
    after, exposed = sum(one.after_ns for one in ways), sum(one.exposed_ns for one in ways)
    size = context.a_step(sum(one.size_bytes for one in ways))
    if context.share(exposed) < EXPOSED or size < READBACK_BYTES:
        return None
    large, waits = sum(one.large for one in ways), context.syncs.count if context.syncs else 0
    used = context.idle("sync") * min(large / max(waits, large, 1), 1.0)
    used = max(used, context.share(min(after, exposed)))
    return finding(
        f"{units.size(size)} {context.per} are copied back to the host, "
        f"{units.share(context.share(exposed))} of the time with nothing beside it, and the GPU idles "
        f"{units.share(context.share(after))} of the time right after",
        "reduce on the device first, and copy to pinned memory without waiting for it",
        confidence=0.75,
        saves=context.share(exposed) + used,
        bytes_a_step=size,
        exposed_share=context.share(exposed),
    )
