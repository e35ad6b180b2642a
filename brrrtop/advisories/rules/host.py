"""Rules about the host's other business while the device idles: Python, compiles, saves, logs."""

from typing import Any

import numpy as np

from brrrtop.advisories.context import WORTH_SHARE, Context
from brrrtop.advisories.registry import OVERHEAD, Finding, finding, rule
from brrrtop.analysis.facts.host_activity import cpu_work, recompiles, retries, set_up_op
from brrrtop.analysis.facts.stack_samples import LEAST_SAMPLES
from brrrtop.model.run import Line, PhaseKind
from brrrtop.text import phrases, units
from collectors.vocabulary import CallClass, MarkClass

AWAY = 0.1
"""Of the wall: long absences of the host that nothing explains."""
MOSTLY = 0.8
"""Of the host's absence: what so much of it passes in, or follows, is its cause."""
FELT = 0.02
"""Of the wall idle: less is the price of saving, and of seeing the loss."""
SAVE_NS = 2_000_000_000
"""One save that holds the device idle for so long is felt, however rare."""
COMPILING = 0.05
"""Of the wall idle for code loaded in every step, where no mark tells a recompile."""
GC_IDLE, GC_PAUSE_NS = 0.01, 20_000_000
"""Collections under 1 % are the price of Python; one of 20 ms delays every rank of a job."""
FILLING = 0.1
"""Driver calls for memory with fewer than this part in the second half of the work: a cache that fills
in the first steps, as all do. Of a ResNet that was profiled from its start, 42 of 43 came in the first
tenth."""


def _names_a_cause(context: Context) -> bool:
    """Whether the sampled lines read as something that has advice of its own."""
    return context.sampled("input", "logging", "checkpoint", "sync") > 0


@rule(
    "host-stall", OVERHEAD, "The host is elsewhere",
    when="at least 10 % idle while the host is in nothing that a probe saw: stack samples are too few, "
    "or show file or network work of the loop itself",
    unless="Python between two launches, which is launch time; a trace that breaks off",
)  # fmt: skip
def host_stall(context: Context) -> Finding | None:
    lost, samples = context.away, context.estimate.stack_samples
    line = samples.lines[0] if samples is not None and samples.lines else None
    in_files = line is not None and line.reads_as == "io"
    enough = samples is not None and samples.count >= LEAST_SAMPLES
    broken_off = context.facts.window.torn_records > 0  # what the host launched is missing as well
    elsewhere = enough and line is not None and not in_files
    if lost < AWAY or elsewhere or broken_off or _names_a_cause(context):
        return None
    sure, most = samples.io_bounds if samples is not None and enough and in_files else (0.6, 1.0)
    lines: dict[str, Any] = {}
    if samples is not None and line is not None:
        lines = {
            "line": str(line), "looks_at_line": line.count, "looks": samples.count,
            "looked_for_ns": samples.span_ns,
        }  # fmt: skip
    where, instead = _absence(context, line if in_files else None)
    message = (
        f"{units.share(lost)} of the time the GPU waits while the host is elsewhere, in {where}"
    )
    if line is not None:
        at = phrases.looked(context.estimate, line)
        message = f"{at}; {units.share(lost)} of the time the GPU waits for the host"
    return finding(
        message,
        instead,
        waste="a faster GPU: it would wait as long",
        confidence=min(max(sure, 0.6), 0.9),
        saves=min(lost, most),
        host_idle_share=lost,
        host_cause_known=context.estimate.host_cause_known,
        **lines,
    )


def _absence(context: Context, reading: Line | None) -> tuple[str, str]:
    """What an absence of the host is likely spent in, and what to do: by stack samples in file work, by
    the op on CPU tensors or the large copies to the host that most of it follows."""
    samples, down = context.estimate.stack_samples, context.transfers
    work, begun = cpu_work(context.facts), set_up_op(context.facts)
    if reading is not None:
        what = reading.source or reading.place
        if reading.is_reading:
            return what, (
                f"do `{what}` ahead and several at once: DataLoader(..., num_workers=4, "
                "pin_memory=True), or a pool of threads where nothing is decoded; one alone is as slow"
            )
        return what, f"move `{what}` off the loop: to a thread, or to every Nth step"
    mostly = MOSTLY * context.away
    copies = context.a_step(down.pageable_down.large + down.pinned_down.large)
    where = "nothing that was seen: a hand-made loader, a lock, file access"
    instead = "py-spy dump --pid PID, or watch it live: stacks are sampled while the GPU idles"
    ranges = context.marked(MarkClass.ANNOTATION).names
    if context.share(sum(ns for name, _, ns in ranges if name.startswith("gloo:"))) >= mostly:
        where = "gloo's collectives, which go through the host"
        instead = "torch.distributed.init_process_group('nccl'), a GPU for each rank"
    elif work is not None and context.share(work.total_ns) >= mostly:
        where, instead = f"{work.name} on the CPU", f"keep the tensors of {work.name} on the device"
    elif begun is not None and context.share(begun.total_ns) >= mostly:
        took = units.duration(begun.total_ns)
        where = f"{begun.name}, which sets itself up before its launch, {took} in all"
        instead = (
            "keep its shapes fixed, as each new one is set up again; run a few steps of each kind (training, "
            "evaluation) before the profiler records"
        )
    elif (
        copies and context.share(down.pageable_down.after_ns + down.pinned_down.after_ns) >= mostly
    ):
        where = f"work on what it has just copied back ({copies:.0f} times {context.per})"
        instead = (
            "do that work on the device, or in a thread on the values of the step before; py-spy dump "
            "--pid PID, or watching it live, names the line"
        )
    if samples is not None and samples.count >= LEAST_SAMPLES:
        where = f"no line that stands out of {samples.count} samples of the main thread"
        where += f", {samples.io_count} of them in file or network work" if samples.io_count else ""
    return where, instead


@rule(
    "python-overhead", OVERHEAD, "One line of Python holds the GPU up",
    when="at least 10 % idle while the host is elsewhere, and at least 20 stack samples, a quarter of "
    "them at one line",
    unless="few samples; waits that have a cause of their own; files and network, which are host-stall",
)  # fmt: skip
def python_overhead(context: Context) -> Finding | None:
    # Not time between launches: a launch-bound loop is at `loss.backward()` most of the time.
    samples, lost = context.estimate.stack_samples, context.away
    if samples is None or samples.count < LEAST_SAMPLES or not samples.lines or lost < AWAY:
        return None
    line = samples.lines[0]
    if line.reads_as == "io" or _names_a_cause(context):
        return None
    part = line.count / samples.count
    return finding(
        f"{phrases.looked(context.estimate, line)}; {units.share(lost)} of the time the GPU "
        "waits while the host is elsewhere",
        f"move the work at {line.place} off the loop: vectorise it, cache it, or give it to a "
        "worker process",
        waste="tuning kernels: the GPU waits for Python",
        confidence=0.6, saves=lost * part,
        line=str(line), looks_at_line=line.count, looks=samples.count, samples_share=part,
        idle_share=lost,
    )  # fmt: skip


@rule(
    "recompilation", OVERHEAD, "torch.compile compiles again",
    when="a compile that is not the first, in steady state",
    unless="the first compile of each function; evaluation with its own shapes",
)  # fmt: skip
def recompilation(context: Context) -> Finding | None:
    seen, marked = context.marked(MarkClass.COMPILE), recompiles(context.facts)
    steps = context.steps or 0.0
    lost = max(context.idle("compile"), context.share(seen.idle_ns))
    times = marked or seen.count + context.called(CallClass.MODULE).count
    # Unmarked: only code loaded in every one of several steps is no warm-up.
    if not marked and (steps < 3 or times < steps or lost < COMPILING):
        return None
    return finding(
        f"code was compiled or loaded {times} more times in this window, which cost "
        f"{units.share(lost)} of the time",
        "torch._dynamo.mark_dynamic(x, 0) or torch.compile(dynamic=True), or pad lengths "
        "to a few buckets; TORCH_LOGS=recompiles names the guard",
        waste="mode='max-autotune': each recompile would take longer still",
        confidence=0.9 if marked else 0.6, saves=lost,
        recompiles=times, compile_ns=seen.total_ns,
        where=[name for name, _, _ in seen.names],
    )  # fmt: skip


@rule(
    "gc-pause", OVERHEAD, "Python's collector stops the loop",
    when="collections idle the GPU at least 1 % of the time, or one takes 20 ms and idles it",
    unless="collections while the queue is full",
)  # fmt: skip
def gc_pause(context: Context) -> Finding | None:
    seen, marks = context.marked(MarkClass.GC), context.facts.window.marks
    lost = max(context.idle("gc"), context.share(seen.idle_ns))
    long = seen.largest_ns >= GC_PAUSE_NS and seen.idle_ns > 0
    if not seen.count or not (lost >= GC_IDLE or long):
        return None
    return finding(
        f"{seen.count} garbage collections, the longest {units.duration(seen.largest_ns)}, "
        f"idle the GPU {units.share(lost)} of the time",
        "gc.collect(); gc.freeze() after warm-up, or gc.disable() and a manual "
        "gc.collect() every N steps on all ranks together",
        waste="fewer Python temporaries here and there: the collector walks all live objects",
        confidence=0.9, saves=lost,
        collections=seen.count, largest_ns=seen.largest_ns,
        generation=int(marks.values[marks.classes == MarkClass.GC].max()),
    )  # fmt: skip


@rule(
    "allocator-retries", OVERHEAD, "The allocator ran out and tried again",
    when="retries in this window, with idle time of their own or at least one in a hundred steps",
    unless="a single retry at the first evaluation",
)  # fmt: skip
def allocator_retries(context: Context) -> Finding | None:
    times = retries(context.facts)
    if not times:
        return None
    seen = context.called(CallClass.ALLOC)
    lost = max(context.idle("allocator"), context.share(seen.idle_ns))
    often = context.steps and times / context.steps >= 0.01
    return finding(
        f"the allocator ran out of memory and retried {times} times in this window: each "
        "time it waits for all streams and gives memory back",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or a batch a notch smaller",
        waste="AMP for speed: fragmentation stays",
        confidence=0.9, saves=max(lost, 1.01 * WORTH_SHARE) if often else lost,
        retries=times, allocator_idle_share=lost,
    )  # fmt: skip


@rule(
    "allocation-churn", OVERHEAD, "Driver allocations every step",
    when="at least one driver allocation a step, idling the GPU 2 % of the time",
    unless="growth in the first steps; retries, which have their own advice",
)  # fmt: skip
def allocation_churn(context: Context) -> Finding | None:
    window, seen = context.facts.window, context.called(CallClass.ALLOC)
    lost = max(context.idle("allocator"), context.share(seen.idle_ns))
    if retries(context.facts) or context.a_step(seen.count) < 1 or lost < FELT:
        return None
    calls, began = window.calls, np.sort(window.activities.starts_ns)
    late = (calls.classes == CallClass.ALLOC) & (calls.starts_ns >= began[len(began) // 2])
    if np.count_nonzero(late) < FILLING * seen.count:
        return None
    freed = sum(count for name, count, _ in seen.names if "Free" in name)
    if not context.steps and freed < FILLING * seen.count:
        return None  # a pass that takes its memory for the first time
    # While the device works they delay launches, as far as it idles for those later.
    delays = max(min(context.share(seen.total_ns), lost + context.idle("launch")), lost)
    return finding(
        f"{context.a_step(seen.count):.0f} driver allocations or frees {context.per} idle "
        f"the GPU {units.share(lost)} of the time"
        + (f", and hold the host up for {units.share(delays)}" if delays > lost else ""),
        "remove torch.cuda.empty_cache() from the loop, and keep shapes to a few sizes",
        confidence=0.8, saves=delays,
        calls=[name for name, _, _ in seen.names], calls_a_step=context.a_step(seen.count),
    )  # fmt: skip


@rule(
    "checkpoint-stall", OVERHEAD, "Saving holds the loop up",
    when="at least 2 % idle inside a save, one save of 2 s that idles the GPU, or saves between the "
    "traced steps that do in 2 % of the run",
    unless="asynchronous saves that nothing waits for; results read back every step",
)  # fmt: skip
def checkpoint_stall(context: Context) -> Finding | None:
    seen, copied = context.marked(MarkClass.CHECKPOINT), context.transfers.saved
    known = max(context.idle("checkpoint"), context.share(seen.idle_ns))
    known += context.share(copied.exposed_ns)
    lost = max(known, context.sampled("checkpoint"))
    if lost < FELT and not (seen.largest_ns >= SAVE_NS and seen.idle_ns > 0):
        return None
    message = f"saving idled the GPU {units.share(lost)} of the time"
    most_ns, times, sure = seen.largest_ns, seen.count, 0.65 if lost > known else 0.9
    phases = context.run.phases if context.run is not None else ()
    saving = next((one for one in phases if one.kind is PhaseKind.SAVING), None)
    if saving is not None and saving.count > times:
        saves = "1 save holds" if saving.count == 1 else f"{saving.count} saves hold"
        message = f"{saves} the training thread up {units.share(saving.share)} of the run"
        most_ns, times = saving.longest_ns, saving.count
    return finding(
        message + (f", {units.duration(most_ns)} at a time" if most_ns else ""),
        "torch.distributed.checkpoint.async_save(state), or copy the state to pinned "
        "memory and write it from a thread; save less often",
        waste="faster kernels: the loop stands still while the file is written",
        confidence=sure, saves=lost,
        largest_ns=most_ns, saves_seen=times,
        bytes_a_save=copied.size_bytes / max(seen.count, 1) if copied.count else None,
    )  # fmt: skip


@rule(
    "logging-stall", OVERHEAD, "Logging holds the loop up",
    when="at least 2 % idle inside calls of a logger, by marks or by stack samples",
    unless="log calls while work is queued; values read back, which are sync-points",
)  # fmt: skip
def logging_stall(context: Context) -> Finding | None:
    seen, guessed = context.marked(MarkClass.LOGGING), context.sampled("logging")
    lost = max(context.idle("logging"), context.share(seen.idle_ns), guessed)
    if lost < FELT:
        return None
    where = f" in {seen.names[0][0]}" if seen.names else ""
    return finding(
        f"logging{where} idles the GPU {units.share(lost)} of the time",
        "log every 50 steps, from a background thread, and values that are on the host",
        waste="a faster GPU: the loop waits for its own log",
        confidence=0.65 if lost == guessed else 0.85, saves=lost,
        logging_idle_share=lost, calls_a_step=context.a_step(seen.count),
        where=[name for name, _, _ in seen.names],
    )  # fmt: skip


@rule(
    "evaluation-idle", OVERHEAD, "Evaluation waits for the host",
    when="at least 2 % idle inside an evaluation phase",
    unless="evaluation that keeps the GPU busy",
)  # fmt: skip
def evaluation_idle(context: Context) -> Finding | None:
    lost = context.idle("evaluation")
    if lost < FELT:
        return None
    return finding(
        f"an evaluation phase idles the GPU {units.share(lost)} of this window: its loop "
        "waits for the host",
        "collect predictions on the device and read them once at the end",
        confidence=0.6, saves=lost, evaluation_idle_share=lost,
    )  # fmt: skip
