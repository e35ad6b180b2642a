"""Rules about time the device waits: input, launches, syncs, the host's other business.

Each abstains when its signal is missing. A-numbers refer to regime-theory, section 4.2.
"""

from __future__ import annotations

from brrrtop import units
from brrrtop.advisories.context import Context, advisory
from brrrtop.advisories.copies import readback_traffic, readback_waits
from brrrtop.advisories.host import away, sampled
from brrrtop.estimator.lines import parted
from brrrtop.estimator.optimizers import Optimizer
from brrrtop.estimator.syncs import Syncs
from brrrtop.model import Advisory

FUSED_OPTIMIZERS = ("Adam", "AdamW", "SGD")
FOREACH_OPTIMIZERS = ("Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Of torch.optim on CUDA: with `fused`, and with `foreach` only (its documentation, 2.9)."""
DENSE_WAITS = 4
"""Waits a step from which the host does not get ahead between them."""
SPARED_PASSES = {"Adam": 11 / 18, "AdamW": 13 / 20}
"""Of the memory traffic of a foreach update, what a fused one does not move: it reads and writes
parameter and both moments and reads the gradient, 7 passes; the lists are gone through 18 times, with
AdamW's decay 20 (torch/optim/adam.py, `_multi_tensor_adam`, 2.11)."""
READBACK_NS = 20_000
"""Host time of one `.item()` besides the wait: op, copy call and return, eager PyTorch."""
VALUE_LAUNCHES = 2
"""Launches that only a value read back needs, its copy among them: 2.2 in a transformer that reads 92
values a step (410 kernels and 92 copies; 300 kernels without)."""
LAUNCHES_FIRST = 2.0
"""So much more idle before launches than after waits, and a loop is as slow without the waits: 9.5 ms a
step with them, 9.9 ms without but with the same kernels (that transformer, idle 43 % and 13 %)."""
HELD_UP = 0.25
"""Of the idle time before launches: driver calls that take more of the host's time explain late ones."""
KEPT_SURE = 0.85
"""Where launches set the pace: of that transformer's step on an H200, without reading back or what it
reads 24 % went, of 28 % promised, and none with the values kept on the device instead."""


def dataloader_stall(context: Context) -> Advisory | None:
    """A17: the device idles while the loop waits for its next batch."""
    guessed = sampled(context, "input")
    stalled = max(context.idle("input"), guessed)
    if stalled < context.limits.input_idle:
        return None
    waits = context.facts.waits
    wait_ns = waits.p50_ns if waits else None
    return advisory(
        context,
        "dataloader-stall",
        says=f"{units.share(stalled)} of the time the GPU waits for the next batch"
        + (f", {units.duration(wait_ns)} each time" if wait_ns else ""),
        suggests="DataLoader(..., num_workers=4, persistent_workers=True, prefetch_factor=4); "
        "raise num_workers until the wait is gone, then look at the decode itself",
        waste="a bigger batch, compile or AMP: the next batch would be as late",
        confidence=0.65 if stalled == guessed else 0.95,
        saves=stalled,
        input_idle_share=stalled,
        wait_p50_ns=wait_ns,
        wait_p90_ns=waits.p90_ns if waits else None,
        waits_a_step=context.a_step(waits.count) if waits and waits.count else None,
    )


def sync_shadow(context: Context) -> float:
    """Share of the wall the device idles because the host had waited for it."""
    found = context.facts.syncs
    booked = context.waited
    shadow = context.share(found.refill_ns) if found and found.count else 0.0
    late = "unknown" if context.estimate.launch.rho is None else "launch"
    return min(max(shadow, booked), booked + context.idle(late), _reading(context))


def _reading(context: Context) -> float:
    """Most of the wall that reading values back can cost (A16).

    The host is blocked, is in the op, and launches what only the value needs; it could not be
    further ahead without. Where blocked time was not recorded: everything.
    """
    found = context.facts.syncs
    if found is None or not found.count or found.from_copies:
        return 1.0
    launching = context.idle("launch") / max(context.facts.kernels, 1)
    held = context.share(found.blocked_ns + READBACK_NS * found.count)
    return held + VALUE_LAUNCHES * launching * found.count


def _own_idle(context: Context) -> float:
    """Share of the wall the device idled for what the trainer's host did, or did late.

    Where launched work waited on the device the host was ahead: nothing that it does sooner helps.
    """
    account = context.estimate.account
    ready_ns = account.idle_ns.get("other_process", 0) + account.idle_ns.get("device", 0)
    return context.share(max(account.idle_total_ns - context.save_idle_ns - ready_ns, 0))


def sync_point(context: Context) -> Advisory | None:
    """A16: the loop reads values back; each read drains the queue and the device waits for more."""
    found = context.facts.syncs
    if found is None or not found.count:
        return _sampled_sync(context)
    saved = min(sync_shadow(context), _own_idle(context))
    if readback_traffic(context) is not None:  # it has those of large copies
        saved -= readback_waits(context)
    if saved < context.limits.sync_idle:
        return None
    if found.from_copies and context.a_step(found.count) < 2:
        return None
    where = f", most in {_named(found.lines[0][0])}" if found.lines else ""
    count = context.a_step(found.count)
    if count >= DENSE_WAITS:
        # So dense that the host never gets ahead: without them it would not be blocked at all.
        freed = context.share(found.blocked_ns + READBACK_NS * found.count)
        saved = max(saved, min(freed, _own_idle(context)))
    return advisory(
        context,
        "sync-point",
        says=f"{count:.0f} waits for the GPU {context.per}{where}; "
        f"{units.share(saved)} of the time goes into filling the queue again",
        suggests=(
            "compute and read values every N steps only: kept on the device, each costs launches too; "
            if launch_bound(context)
            else "keep values on the device (total += loss.detach()) and read them every N steps; "
        )
        + "torch.cuda.set_sync_debug_mode('warn') names each line",
        waste="a faster GPU or a bigger batch: every read would still drain the queue",
        confidence=_sync_sure(context, found),
        saves=saved,
        waits_a_step=count,
        blocked_ns_a_step=context.a_step(found.blocked_ns),
        refill_ns_a_step=context.a_step(found.refill_ns),
        lines=[line for line, _, _ in found.lines],
        **_without_waits(context),
    )


def _without_waits(context: Context) -> dict[str, str]:
    """Evidence that fewer waits leave a loop that launches set the pace of."""
    launching = context.idle("launch")
    if launching < LAUNCHES_FIRST * context.idle("sync") or not launch_bound(context):
        return {}
    return {"without_the_waits": f"launches set the pace still, idle {units.share(launching)}"}


def _sync_sure(context: Context, found: Syncs) -> float:
    """How sure it is that fewer waits make the loop faster."""
    if found.from_copies:
        return 0.75
    if not found.lines and context.a_step(found.count) < 2:
        return 0.7
    return KEPT_SURE if launch_bound(context) else 0.9


def _named(line: str) -> str:
    """`train.py:8 main | total += loss.item()` → its place and the source in it; an op's name as it
    is."""
    place, source = parted(line)
    return f"{place} (`{source}`)" if source else place


def _sampled_sync(context: Context) -> Advisory | None:
    """The same from stack samples, where calls that wait were not recorded."""
    lost = sampled(context, "sync")
    if lost < context.limits.sync_idle:
        return None
    looks = context.estimate.looks
    lines = [str(line) for line in looks.lines if line.reads_as == "sync"] if looks else []
    return advisory(
        context,
        "sync-point",
        says=f"while the GPU idled, the main thread was reading values back: {units.share(lost)} "
        f"of the time{', at ' + lines[0] if lines else ''}",
        suggests="keep values on the device and read them every N steps",
        waste="a faster GPU or a bigger batch: every read would still drain the queue",
        confidence=0.6,
        saves=lost,
        lines=lines,
        stack_samples=looks.count if looks else 0,
    )


def launch_idle(context: Context) -> float:
    """Idle before launches, less what waits for the device explain.

    Without launch records: idle without a name in gaps that are short enough for it.
    """
    late = context.idle("launch")
    if context.estimate.launch.rho is None:
        late = min(context.idle("unknown"), context.share(context.facts.dispatch_idle_ns))
    return max(late - max(sync_shadow(context) - context.waited, 0.0), 0.0)


def launch_bound(context: Context) -> bool:
    """Launching, and nothing else, sets the pace: of most kernel time, or of most kernels.

    A few long kernels that were launched ahead outweigh all the short ones that were late: 71 % of
    the kernel time ahead, 57 % of the kernels late, and 41 % of the wall idle before them (a step of
    two ranks on V100s, of HTA's traces; without its collectives 73 % and 58 %). Where driver calls for
    memory hold the launching thread up, their count says nothing: many come late for those calls.
    """
    small = context.facts.kernel_p50_ns
    counted = context.estimate.launch.share_under_10us or 0.0
    held_up = context.share(context.facts.hosts.allocs.total_ns)
    if held_up > HELD_UP * launch_idle(context):
        counted = 0.0
    return (
        max(1 - context.rho, counted) > context.limits.host_bound
        and small is not None
        and small < context.limits.small_kernel_ns
        and launch_idle(context) >= context.limits.launch_idle
        and launch_idle(context)
        >= context.idle("input") + context.share(context.estimate.account.exposed_copy_ns)
    )


def is_compiled(context: Context) -> bool:
    """Whether Inductor made most of the pointwise kernels, or graphs launch most of all kernels."""
    facts = context.facts
    fused = facts.chains.fused_ns if facts.chains else 0
    loose = facts.precision.streaming_ns
    return fused > loose or facts.graph_kernels * 2 > facts.kernels


def _update_idle(context: Context) -> float:
    """Share of the wall idle in the optimizer's update, which a compiled model does not cover."""
    found = context.facts.optimizer
    if found is None:
        return 0.0
    spent = max(found.span_ns, found.host_ns or 0) - found.total_ns
    return min(context.share(max(spent, 0)), launch_idle(context))


def launch_bound_compile(context: Context) -> Advisory | None:
    """A10: each kernel ends before the next is launched, and nothing is compiled yet."""
    if not launch_bound(context) or is_compiled(context):
        return None
    facts, account = context.facts, context.estimate.account
    waiting = launch_idle(context)
    kernels = context.a_step(facts.kernels)
    shadow = sync_shadow(context)
    syncing = shadow > max(context.limits.sync_idle, 0.25 * waiting)
    waits = context.a_step(facts.syncs.count) if facts.syncs else 0.0
    breaks = shadow > context.limits.sync_idle and waits >= DENSE_WAITS
    sure = 0.9 if context.estimate.launch.count else 0.75
    if 1 - context.rho <= context.limits.host_bound:  # by their count alone
        sure = min(sure, 0.7)
    # However much is fused or captured, each stretch between two waits is launched once.
    spared = max(0.0, 1 - waits / kernels) if kernels else 1.0
    fix = "model = torch.compile(model, mode='reduce-overhead')"
    return advisory(
        context,
        "launch-bound-compile",
        says=f"{kernels:.0f} kernels {context.per}, half of them under "
        f"{units.duration(facts.kernel_p50_ns)}: the GPU waits {units.share(waiting)} of the time "
        "for the next launch",
        suggests=f"remove the waits first, each breaks the graph; then {fix}" if breaks else fix,
        waste="a faster GPU, bf16, or fusing one op by hand: launches set the pace",
        confidence=0.55 if syncing else min(sure, 0.7) if breaks else sure,
        saves=spared * (waiting + context.share(account.underfilled_ns) - _update_idle(context)),
        kernels_a_step=kernels,
        kernel_p50_ns=facts.kernel_p50_ns,
        launch_idle_share=waiting,
        lead_p50_ns=context.estimate.launch.lead_p50_ns,
        rho=context.rho,
    )


def cuda_graphs(context: Context) -> Advisory | None:
    """A11: launch-bound, and every step launches the same kernels."""
    same, facts = context.facts.repeats, context.facts
    if not launch_bound(context) or same is None or same.steps < 3 or facts.graph_kernels:
        return None
    clean = facts.syncs is not None and not facts.syncs.count and not facts.hosts.allocs.count
    if same.identical < same.steps or not clean:
        return None
    # All that the host is late for goes with the launches; the replay takes 0.5 us a kernel.
    saved = launch_idle(context) + away(context) - context.share(500.0 * facts.kernels)
    if fused_optimizer(context) is not None:  # launched per parameter, with its state on the host
        saved -= _update_idle(context)
    return advisory(
        context,
        "cuda-graphs",
        says=f"each of {same.steps} steps launches the same {same.kernels_p50} kernels with no "
        "sync between: one graph launch could replace them",
        suggests="torch.cuda.make_graphed_callables(model, (sample,)) or a torch.cuda.CUDAGraph",
        waste="graphs where shapes change from step to step: each shape is captured again",
        confidence=0.6,
        saves=saved,
        identical_steps=same.identical,
        kernels_a_step=same.kernels_p50,
    )


def fused_optimizer(context: Context) -> Advisory | None:
    """A26: the optimizer launches several kernels a parameter, or moves all of them time and again."""
    found = context.facts.optimizer
    if found is None:
        return None
    return _single_tensors(context, found) or _lists(context, found)


def _single_tensors(context: Context, found: Optimizer) -> Advisory | None:
    if not found.single:
        return None
    updates = found.updates or context.steps or 1
    single = found.single / updates
    if single < context.limits.optimizer_kernels:
        return None
    if found.single < 2 * (found.foreach + found.fused):
        return None
    kept = 2_000 * updates
    launched = 1 - context.rho > context.limits.host_bound
    if not launched and 2 * found.product_ns > found.total_ns:
        return None
    spent = max(found.span_ns, found.host_ns or 0) if launched else found.total_ns
    spent -= found.product_ns
    return advisory(
        context,
        "fused-optimizer",
        says=f"the optimizer launches {single:.0f} single-tensor kernels an update and takes "
        f"{units.duration(spent / updates)}",
        suggests=_faster_update(found.kind),
        waste="compiling the model only: it does not cover optimizer.step()",
        confidence=0.9 if found.marked else 0.75,
        saves=context.share(spent - kept) * (1.0 if launched else context.rho),
        kernels_an_update=single,
        span_ns_an_update=found.span_ns / updates,
        kernel_ns_an_update=found.total_ns / updates,
        host_ns_an_update=found.host_ns / updates if found.host_ns is not None else None,
    )


def _lists(context: Context, found: Optimizer) -> Advisory | None:
    """Over so many parameters that the passes of a foreach update are a good part of the step."""
    saves = context.device_side(SPARED_PASSES.get(found.kind or "", 0.0) * found.foreach_ns)
    if saves < context.limits.foreach_passes:
        return None
    updates = found.updates or context.steps or 1
    return advisory(
        context,
        "fused-optimizer",
        says=f"{found.kind} goes through its lists of tensors op by op and takes "
        f"{units.duration(found.foreach_ns / updates)} an update, most of it moving bytes",
        suggests=_faster_update(found.kind),
        waste="compiling the model only: it does not cover optimizer.step()",
        confidence=0.8,
        saves=saves,
        foreach_ns_an_update=found.foreach_ns / updates,
    )


def _faster_update(kind: str | None) -> str:
    if kind is None or kind in FUSED_OPTIMIZERS:
        return f"torch.optim.{kind or 'AdamW'}(model.parameters(), lr, fused=True)"
    if kind in FOREACH_OPTIMIZERS:
        return f"torch.optim.{kind}(model.parameters(), lr, foreach=True)"
    return (
        f"{kind}'s fused or foreach form, if it has one; else its update with torch._foreach_ calls"
    )
