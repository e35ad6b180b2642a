"""Rules about the host's other business while the device idles: compiles, saves, logs."""

from __future__ import annotations

from brrrtop.advisories.context import Context, advisory
from brrrtop.analysis.signals.stack_samples import LEAST_PART
from brrrtop.model.advice import Advisory
from brrrtop.text import phrases, units


def recompilation(context: Context) -> Advisory | None:
    """Torch.compile compiles again in steady state."""
    hosts = context.facts.hosts
    lost = max(context.idle("compile"), context.share(hosts.compiles.idle_ns))
    times = hosts.recompiles or hosts.compiles.count + hosts.modules.count
    if not hosts.recompiles:
        # Unmarked: only code loaded in every one of several steps is no warm-up.
        steps = context.steps or 0.0
        if steps < 3 or times < steps or lost < context.limits.compile_idle:
            return None
    return advisory(
        context,
        "recompilation",
        says=f"code was compiled or loaded {times} more times in this window, which cost "
        f"{units.share(lost)} of the time",
        suggests="torch._dynamo.mark_dynamic(x, 0) or torch.compile(dynamic=True), or pad lengths "
        "to a few buckets; TORCH_LOGS=recompiles names the guard",
        waste="mode='max-autotune': each recompile would take longer still",
        confidence=0.9 if hosts.recompiles else 0.6,
        saves=lost,
        recompiles=times,
        compile_ns=hosts.compiles.total_ns,
        where=[name for name, _, _ in hosts.compiles.names],
    )


FILLING = 0.1
"""Driver calls for memory with fewer than this part in the second half of the work: a cache that fills
in the first steps, as all do. Of a ResNet that was profiled from its start, 42 of 43 came in the first
tenth."""
LEAST_HISTOGRAMS = 8
"""Read back in one go with other values: four layers' weights and biases. One or two count tokens or
classes."""
NAMED = ("input", "logging", "checkpoint", "sync")
"""What a sampled line may read as, each with advice of its own."""


def sampled(context: Context, cause: str) -> float:
    """Share of the wall that stack samples give a cause which nothing else shows; 0 when unsure.

    Samples outside named waits speak for the idle time without a name, in proportion.
    """
    looks = context.estimate.looks
    if looks is None or looks.count < context.limits.stack_samples:
        return 0.0
    part = looks.shares.get(cause, 0.0)
    return part * away(context) if part >= LEAST_PART else 0.0


def away(context: Context) -> float:
    """Share of the wall the host was elsewhere, in nothing that a probe saw.

    Without launch records: idle without a name in gaps too long to be Python between launches.
    """
    saved = max(context.share(context.save_idle_ns) - context.idle("sync"), 0.0)
    if context.estimate.launch.rho is not None:
        return max(context.idle("host", "io") - saved, 0.0)
    dispatch = context.share(context.facts.dispatch_idle_ns)
    return max(context.idle("unknown", "host") - dispatch - saved, 0.0)


def gc_pause(context: Context) -> Advisory | None:
    """Python's collector stops the loop."""
    seen = context.facts.hosts.gc
    lost = max(context.idle("gc"), context.share(seen.idle_ns))
    long = seen.largest_ns >= context.limits.gc_pause_ns and seen.idle_ns > 0
    if not seen.count or not (lost >= context.limits.gc_idle or long):
        return None
    return advisory(
        context,
        "gc-pause",
        says=f"{seen.count} garbage collections, the longest {units.duration(seen.largest_ns)}, "
        f"idle the GPU {units.share(lost)} of the time",
        suggests="gc.collect(); gc.freeze() after warm-up, or gc.disable() and a manual "
        "gc.collect() every N steps on all ranks together",
        waste="fewer Python temporaries here and there: the collector walks all live objects",
        confidence=0.9,
        saves=lost,
        collections=seen.count,
        largest_ns=seen.largest_ns,
        generation=seen.value,
    )


def allocator_retries(context: Context) -> Advisory | None:
    """The caching allocator ran out, freed everything and tried again."""
    retries = context.facts.hosts.retries
    if not retries:
        return None
    lost = max(context.idle("allocator"), context.share(context.facts.hosts.allocs.idle_ns))
    return advisory(
        context,
        "allocator-retries",
        says=f"the allocator ran out of memory and retried {retries} times in this window: each "
        "time it waits for all streams and gives memory back",
        suggests="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or a batch a notch smaller",
        waste="AMP for speed: fragmentation stays",
        confidence=0.9,
        saves=max(lost, 1.01 * context.limits.worth_share)
        if context.steps and retries / context.steps >= 0.01
        else lost,
        retries=retries,
        allocator_idle_share=lost,
    )


def allocation_churn(context: Context) -> Advisory | None:
    """The driver is asked for memory in steady state."""
    seen = context.facts.hosts.allocs
    lost = max(context.idle("allocator"), context.share(seen.idle_ns))
    if context.facts.hosts.retries or context.a_step(seen.count) < 1:
        return None
    if context.facts.hosts.allocs_late < FILLING * seen.count:
        return None
    if lost < context.limits.alloc_idle:
        return None
    # While the device works they hold launches up, as far as it idles for those later.
    held = max(min(context.share(seen.total_ns), lost + context.idle("launch")), lost)
    return advisory(
        context,
        "allocation-churn",
        says=f"{context.a_step(seen.count):.0f} driver allocations or frees {context.per} idle "
        f"the GPU {units.share(lost)} of the time"
        + (f", and hold the host up for {units.share(held)}" if held > lost else ""),
        suggests="remove torch.cuda.empty_cache() from the loop, and keep shapes to a few sizes",
        confidence=0.8,
        saves=held,
        calls=[name for name, _, _ in seen.names],
        calls_a_step=context.a_step(seen.count),
    )


def _unmarked_save(context: Context) -> float:
    """Share of the wall of copies that look like a save, and of the idle time around them."""
    found = context.facts.saves
    if found is None or found.marked:
        return 0.0
    return context.share(found.exposed_ns + context.save_idle_ns)


def checkpoint_stall(context: Context) -> Advisory | None:
    """Saving holds the loop up."""
    seen, copied = context.facts.hosts.checkpoint, context.facts.saves
    lost = max(context.idle("checkpoint"), context.share(seen.idle_ns))
    if copied is not None and copied.marked:
        lost += context.share(copied.exposed_ns)
    long = seen.largest_ns >= context.limits.checkpoint_stall_ns and seen.idle_ns > 0
    guessed = sampled(context, "checkpoint")
    looks_like = _unmarked_save(context)
    between = context.facts.saves_between
    around = (between.share if between is not None else None) or 0.0
    known, lost = lost, max(lost, guessed, looks_like, around)
    if not (lost >= context.limits.checkpoint_idle or long):
        return None
    stood = f"saving idled the GPU {units.share(lost)} of the time"
    most_ns, times, sure = seen.largest_ns, seen.count, 0.65 if lost > known else 0.9
    if copied is not None and lost == looks_like:
        size = units.size(copied.size_bytes / copied.count)
        stood = (
            f"{copied.copies / copied.count:.0f} copies to the host in one go ({size}), in few of "
            f"the steps, look like a save: nothing else runs {units.share(lost)} of the time"
        )
        most_ns, times = copied.largest_ns, copied.count
        sure = 0.7 if copied.repeated else 0.55
    if between is not None and lost == around > known:
        stood = (
            f"{between.count} saves hold the training thread up {units.share(lost)} of the last "
            f"{units.duration(between.of_ns)}; the traced steps lie between them"
        )
        most_ns, times, sure = between.largest_ns, between.count, 0.8
    return advisory(
        context,
        "checkpoint-stall",
        says=stood + (f", {units.duration(most_ns)} at a time" if most_ns else ""),
        suggests="torch.distributed.checkpoint.async_save(state), or copy the state to pinned "
        "memory and write it from a thread; save less often",
        waste="faster kernels: the loop stands still while the file is written",
        confidence=sure,
        saves=lost,
        largest_ns=most_ns,
        saves_seen=times,
        bytes_a_save=copied.size_bytes / copied.count if copied is not None else None,
    )


def logging_stall(context: Context) -> Advisory | None:
    """Writing metrics holds the loop up."""
    seen = context.facts.hosts.logging
    guessed = sampled(context, "logging")
    lost = max(context.idle("logging"), context.share(seen.idle_ns), guessed)
    if lost < context.limits.logging_idle:
        return _values_logged(context)
    where = f" in {seen.names[0][0]}" if seen.names else ""
    return advisory(
        context,
        "logging-stall",
        says=f"logging{where} idles the GPU {units.share(lost)} of the time",
        suggests="log every 50 steps, from a background thread, and values that are on the host",
        waste="a faster GPU: the loop waits for its own log",
        confidence=0.65 if lost == guessed else 0.85,
        saves=lost,
        logging_idle_share=lost,
        calls_a_step=context.a_step(seen.count),
        where=[name for name, _, _ in seen.names],
    )


def _values_logged(context: Context) -> Advisory | None:
    """The same from what it does on the device: values of tensor after tensor, read one by one."""
    found = context.facts.value_reads
    if found is None or not (found.histograms >= LEAST_HISTOGRAMS or found.some_steps):
        return None
    lost = context.share(found.span_ns)
    if context.share(found.idle_ns) < context.limits.logging_idle:
        return None
    drawn = found.histograms >= LEAST_HISTOGRAMS
    told = f" ({context.a_step(found.histograms):.0f} of histograms)" if drawn else ""
    few = "; few of the steps read most of them" if found.some_steps else ""
    return advisory(
        context,
        "logging-stall",
        says=f"{units.share(lost)} of the time goes into values of tensor after tensor, each read by "
        f"itself as for a log: {context.a_step(found.reads):.0f} {context.per}{told}{few}",
        suggests="log every 100 steps; take norms in one go (torch._foreach_norm), stack what is "
        "logged and read it with one .tolist()",
        waste="a faster GPU: the loop waits for its own log",
        confidence=0.75 if drawn else 0.6,
        saves=lost,
        logging_idle_share=context.share(found.idle_ns),
        reads_a_step=context.a_step(found.reads),
        histograms_a_step=context.a_step(found.histograms),
        in_few_steps=found.some_steps,
    )


def evaluation_stall(context: Context) -> Advisory | None:
    """Evaluation in the window idles the device: shown so that nobody averages over it."""
    lost = context.idle("evaluation")
    if lost < context.limits.logging_idle:
        return None
    return advisory(
        context,
        "evaluation-idle",
        says=f"an evaluation phase idles the GPU {units.share(lost)} of this window: its loop "
        "waits for the host",
        suggests="collect predictions on the device and read them once at the end",
        confidence=0.6,
        saves=lost,
        evaluation_idle_share=lost,
    )


def python_overhead(context: Context) -> Advisory | None:
    """The launching thread is in Python, and samples say where."""
    looks = context.estimate.looks
    # Not time between launches: a launch-bound loop is at `loss.backward()` most of the time.
    lost = away(context)
    if looks is None or looks.count < context.limits.stack_samples or not looks.lines:
        return None
    if lost < context.limits.host_idle or any(sampled(context, cause) for cause in NAMED):
        return None
    line = looks.lines[0]
    if line.reads_as == "io":  # host-stall
        return None
    part = line.count / looks.count
    return advisory(
        context,
        "python-overhead",
        says=f"{phrases.looked(context.estimate, line)}; {units.share(lost)} of the time the GPU "
        "waits while the host is elsewhere",
        suggests=f"move the work at {line.place} off the loop: vectorise it, cache it, or give it "
        "to a worker process",
        waste="tuning kernels: the GPU waits for Python",
        confidence=0.6,
        saves=lost * part,
        line=str(line),
        looks_at_line=line.count,
        looks=looks.count,
        samples_share=part,
        idle_share=lost,
    )


def graph_breaks(context: Context) -> Advisory | None:
    """Compiled, yet most pointwise work runs outside compiled graphs."""
    found = context.facts.chains
    if found is None or found.fused_ns <= 0 or found.kernels < 8:
        return None
    loose = found.total_ns
    if found.fused_ns > 0.25 * loose or context.share(loose) < 2 * context.limits.chain_share:
        return None
    return advisory(
        context,
        "graph-breaks",
        says=f"part of the model is compiled, but {units.share(context.share(loose))} of the time "
        "is pointwise work outside the compiled graphs",
        suggests="TORCH_LOGS=graph_breaks python train.py; then remove .item(), print and "
        "data-dependent ifs, or use fullgraph=True to list them",
        waste="fusing by hand first",
        confidence=0.55,
        saves=context.device_side(found.fusable_ns),
        fused_ns=found.fused_ns,
        loose_ns=loose,
    )
