"""Advice that is an edit: what to change, what a simulated step without the cost wins, and why it would.

Every edit whose predicted gain is worth it is advice; its price comes from `brrrtop.whatif`, its words
from what the window shows. No edit has a trigger of its own beside its price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from brrrtop.advisories.context import Context, advisory
from brrrtop.advisories.rules.copies import are_for_readbacks
from brrrtop.analysis.signals.stack_lines import parted
from brrrtop.model.advice import Advisory, WhatIf
from brrrtop.text import units

ROOMY = 0.6
"""Memory in use above which twice the batch may not fit: activations are most of it."""
BEYOND = 0.03
"""What CUDA graphs must win beside compiling alone to be named beside it."""
WAITS_FIRST = 4
"""Waits a step from which a compiled model falls into pieces: each is a graph break."""
FOR_DATA = ("loader-ready", "pinned-copies")
"""Edits that bring a step its data sooner."""
MOSTLY = 0.5
"""Of exposed communication: more of it in exchanges of activations has a remedy of its own."""
FUSED_OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adagrad")
"""Of torch.optim with `fused` on CUDA (its documentation, 2.11)."""


@dataclass(frozen=True, slots=True)
class Words:
    """What one piece of advice says."""

    kind: str
    says: str
    suggests: str
    evidence: dict[str, Any] = field(default_factory=dict)


def edit_advice(context: Context) -> Iterator[tuple[str, Advisory]]:
    """Advice for each edit that is worth it, with the edit's id, best first. Of edits with the same
    advice the better one words it, both are named by it."""
    given: dict[str, Advisory] = {}
    for row in context.rows:
        if _comes_later(context, row):
            continue
        words = _WORDS[row.edit](context, row) if context.worth(row.saves) else None
        if words is None:
            continue
        found = given.get(words.kind) or _given(context, row, words)
        if found is not None:
            given[words.kind] = found
            yield row.edit, found


def _comes_later(context: Context, row: WhatIf) -> bool:
    """Whether the step mostly waits for its data, and the edit wins little until that is changed."""
    best = context.rows[0]
    waiting = best.edit in FOR_DATA and best.saves >= context.limits.mostly_waiting
    return waiting and row.saves < context.limits.beside_waiting


def _given(context: Context, row: WhatIf, words: Words) -> Advisory | None:
    return advisory(
        context,
        words.kind,
        says=words.says,
        suggests=words.suggests,
        confidence=_confidence(row),
        saves=row.saves_high,
        expected=row.saves,
        expected_low=row.saves_low,
        edit=row.edit,
        predicted_step_ns=row.step_ns,
        **words.evidence,
    )


def _confidence(row: WhatIf) -> float:
    """By how much of the gain is left where everything unknown turns out badly."""
    kept = row.saves_low / row.saves if row.saves > 0 else 0.0
    return 0.55 + 0.4 * min(max(kept, 0.0), 1.0)


def _compile(context: Context, row: WhatIf) -> Words | None:
    facts = context.facts
    waits = context.a_step(facts.syncs.count) if facts.syncs else 0.0
    line = "model = torch.compile(model)"
    if waits >= WAITS_FIRST:
        line = f"remove the waits first, each breaks the graph; then {line}"
    if context.host_sets_the_pace:
        return Words("launch-bound-compile", _launching(context), line, _launches(context))
    if _are_norms(context):
        return Words("fused-norm", _norms(context), _norm_line(line), _runs(context))
    return Words("fuse-pointwise", _fusing(context), line, _runs(context))


def _are_norms(context: Context) -> bool:
    """Whether norms written out are half or more of what runs of unfused kernels take."""
    runs, norms = context.facts.chains, context.facts.eager_norm_ns
    return runs is not None and norms > 0 and 2 * norms >= runs.total_ns


def _norms(context: Context) -> str:
    share = units.share(context.share(context.facts.eager_norm_ns))
    return f"{share} of the time goes to norms written out: five kernels or more where one would do"


def _norm_line(compiling: str) -> str:
    return f"torch.nn.functional.rms_norm(x, (d,), weight), or layer_norm; or {compiling}"


def _graphs(context: Context, row: WhatIf) -> Words | None:
    compiled = context.price("compile")
    if compiled is not None and row.saves - compiled.saves < BEYOND:
        return None
    line = 'model = torch.compile(model, mode="reduce-overhead")'
    if context.compiled:
        says = f"the model is compiled, and still {_launching(context)}"
        return Words("cuda-graphs", says, line, _launches(context))
    # Compiled code launches about as slowly: where that wins little, graphs are what compiling is for.
    alone = compiled is not None and context.worth(compiled.saves)
    kind = "launch-bound-compile" if context.host_sets_the_pace and not alone else "cuda-graphs"
    return Words(kind, _launching(context), line, _launches(context))


def _launching(context: Context) -> str:
    kernels = context.a_step(context.facts.kernels)
    idle = context.idle("launch", "sync", "host", "unknown")
    return (
        f"{kernels:.0f} kernels {context.per}, half of them under "
        f"{units.duration(context.facts.kernel_p50_ns)}: the GPU waits {units.share(idle)} of the "
        "time for the host to launch the next one"
    )


def _launches(context: Context) -> dict[str, Any]:
    return {
        "kernels_a_step": context.a_step(context.facts.kernels),
        "kernel_p50_ns": context.facts.kernel_p50_ns,
        "launch_idle_share": context.idle("launch"),
        "lead_p50_ns": context.estimate.launch.lead_p50_ns,
        "rho": context.rho,
    }


def _fusing(context: Context) -> str:
    found = context.facts.chains
    if found is None or not found.count:
        return "generated kernels would be faster than the ones that run here"
    return (
        f"{units.share(context.share(found.total_ns))} of the time goes to runs of unfused kernels, "
        f"{context.a_step(found.kernels):.0f} {context.per}: each reads and writes whole tensors "
        "again"
    )


def _runs(context: Context) -> dict[str, Any]:
    found = context.facts.chains
    if found is None:
        return {}
    return {
        "chains_a_step": context.a_step(found.count),
        "longest": found.longest,
        "chain_share": context.share(found.total_ns),
        "chain": [name[:80] for name in found.names],
    }


def _channels_last(context: Context, row: WhatIf) -> Words | None:
    used = context.facts.precision
    first = used.nchw_ns + used.layout_ns + used.nchw_other_ns
    return Words(
        "channels-last",
        f"{units.share(context.share(first))} of the time goes to channels-first convolutions, the "
        "conversions around them and norms over them",
        "model = model.to(memory_format=torch.channels_last); the same for the images",
        {
            "conv_share": context.share(used.conv_ns),
            "nchw_share": context.share(used.nchw_ns),
            "layout_share": context.share(used.layout_ns),
        },
    )


def _tf32(context: Context, row: WhatIf) -> Words | None:
    used = context.facts.precision
    return Words(
        "enable-tf32-or-amp",
        f"fp32 products on the CUDA cores take {units.share(context.share(used.simt_gemm_ns))} of "
        "the time; the tensor cores idle",
        'torch.set_float32_matmul_precision("high")',
        {"simt_gemm_share": context.share(used.simt_gemm_ns)},
    )


def _bf16(context: Context, row: WhatIf) -> Words | None:
    used = context.facts.precision
    slow = used.simt_gemm_ns + used.simt_conv_ns
    line = "with torch.autocast('cuda', torch.bfloat16): around the forward pass"
    evidence = {"simt_share": context.share(slow), "product_share": context.share(used.matrix_ns)}
    units_win = context.price("tf32")
    if 2 * slow > used.matrix_ns and (units_win is None or context.worth(units_win.saves)):
        return Words(
            "enable-tf32-or-amp",
            f"fp32 products on the CUDA cores take {units.share(context.share(slow))} of the time; "
            "the tensor cores idle",
            line,
            evidence,
        )
    return Words(
        "use-bf16",
        f"products of 32 bits take {units.share(evidence['product_share'])} of the time; 16 bits run "
        "faster and move half the bytes",
        line,
        evidence,
    )


def _batch(context: Context, row: WhatIf) -> Words | None:
    used = context.memory_used
    if not context.matters(row) or (used is not None and used > ROOMY):
        return None
    room = f"; {units.share(1 - used)} of the memory is free" if used is not None else ""
    fixed = min(max(2 * row.saves, 0.0), 1.0)
    small = context.share(context.estimate.account.underfilled_ns)
    return Words(
        "underfilled-kernels"
        if small > fixed / 2 and not context.host_sets_the_pace
        else "bigger-batch",
        f"{units.share(fixed)} of a step does not grow with the batch{room}",
        f"double the batch{'' if room else ', if memory allows'} (rescale the learning rate)",
        {"fixed_share": fixed, "memory_used_share": used, "predicted_step_ratio": 2 - fixed},
    )


def _optimizer(context: Context, row: WhatIf) -> Words | None:
    found = context.facts.optimizer
    if found is None:
        return None
    updates = found.updates or context.steps or 1
    kind = found.kind if found.kind in FUSED_OPTIMIZERS else None
    if found.kind and kind is None:
        return None
    return Words(
        "fused-optimizer",
        f"the optimizer launches {found.kernels / updates:.0f} kernels an update and takes "
        f"{units.duration(max(found.span_ns, found.host_ns or 0) / updates)}",
        f"torch.optim.{kind or 'AdamW'}(model.parameters(), lr, fused=True)",
        {
            "kernels_an_update": found.kernels / updates,
            "span_ns_an_update": found.span_ns / updates,
        },
    )


def _attention(context: Context, row: WhatIf) -> Words | None:
    found = context.facts.attention
    if found is None:
        return None
    shape = found.shape
    return Words(
        "flash-attention",
        f"attention written out takes {units.share(context.share(found.total_ns))} of the time"
        + (f": {shape[1]} x {shape[2]} scores, {shape[0]} heads a call" if shape else ""),
        "torch.nn.functional.scaled_dot_product_attention(q, k, v), with is_causal=True for a "
        "causal mask and attn_mask=mask for another",
        {
            "attention_share": context.share(found.total_ns),
            "score_shape": list(shape) if shape else None,
        },
    )


def _loader(context: Context, row: WhatIf) -> Words | None:
    wait_ns = context.facts.wait_p50_ns
    stalled = context.idle("input")
    return Words(
        "dataloader-stall",
        f"{units.share(stalled)} of the time the GPU waits for the next batch"
        + (f", {units.duration(wait_ns)} each time" if wait_ns else ""),
        "DataLoader(..., num_workers=4, persistent_workers=True, prefetch_factor=4); raise "
        "num_workers until the wait is gone, then look at the decoding itself",
        {"input_idle_share": stalled, "wait_p50_ns": wait_ns},
    )


def _sync(context: Context, row: WhatIf) -> Words | None:
    found = context.facts.syncs
    if found is None or not found.count or are_for_readbacks(context):
        return None
    count = context.a_step(found.count)
    where = f", most in {_place(found.lines[0][0])}" if found.lines else ""
    return Words(
        "sync-point",
        f"{count:.0f} waits for the GPU {context.per}{where}",
        "keep values on the device (total += loss.detach()) and read them every N steps; "
        "torch.cuda.set_sync_debug_mode('warn') names each line",
        {
            "waits_a_step": count,
            "blocked_ns_a_step": context.a_step(found.blocked_ns),
            "lines": [line for line, _, _ in found.lines],
        },
    )


def _place(line: str) -> str:
    """`train.py:8 main | total += loss.item()` → its place and the source in it."""
    place, source = parted(line)
    return f"{place} (`{source}`)" if source else place


def _copies(context: Context, row: WhatIf) -> Words | None:
    moved = context.facts.transfers
    pageable = moved.pageable_up.total_ns > moved.pinned_up.total_ns
    up = moved.pageable_up if pageable else moved.pinned_up
    size = f"{units.size(context.a_step(up.size_bytes))} {context.per}"
    evidence = {
        "bytes_a_step": context.a_step(up.size_bytes),
        "bytes_per_s": up.bytes_per_s,
        "exposed_share": context.share(up.exposed_ns),
    }
    if pageable:
        return Words(
            "pin-memory",
            f"{size} from pageable memory at {units.rate(up.bytes_per_s or 0.0, 'B/s')}, "
            f"{units.share(evidence['exposed_share'])} of the time with the GPU idle",
            "DataLoader(..., pin_memory=True), or tensor.pin_memory(), and "
            ".to(device, non_blocking=True)",
            evidence,
        )
    return Words(
        "overlap-copies",
        f"{size} are uploaded while no kernel runs: {units.share(evidence['exposed_share'])} of the "
        "time",
        "prefetch the next batch on a side stream: with torch.cuda.stream(copies): "
        "batch = batch.to(device, non_blocking=True)",
        evidence,
    )


def _communication(context: Context, row: WhatIf) -> Words | None:
    exposed = context.share(context.estimate.account.exposed_comm_ns)
    found = context.facts.collectives
    exchanged = found.exchanged_share or 0.0
    line = (
        "DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True) or FSDP "
        "prefetch; bf16 gradients halve the bytes"
    )
    if exchanged >= MOSTLY:  # activations on their way: no bucket of gradients holds them
        line = (
            "dist.all_to_all_single(..., async_op=True) beside the part that needs no exchange, such "
            "as shared experts, or in chunks; 8-bit activations halve the bytes"
        )
    return Words(
        "exposed-communication",
        f"{units.share(exposed)} of the time only "
        + ("all-to-all or send and receive runs" if exchanged >= MOSTLY else "collectives run")
        + "; one rank alone cannot tell a slow link from a late peer",
        line,
        {
            "exposed_share": exposed,
            "exchanged_share": found.exchanged_share,
            "collectives_a_step": context.a_step(found.count),
        },
    )


def _quiet(context: Context, row: WhatIf) -> Words | None:
    """The largest of what the host does between steps names the advice; its own rule words it."""
    return None


_WORDS: dict[str, Callable[[Context, WhatIf], Words | None]] = {
    "compile": _compile,
    "compile-reduce-overhead": _graphs,
    "channels-last": _channels_last,
    "tf32": _tf32,
    "bf16": _bf16,
    "double-batch": _batch,
    "fused-optimizer": _optimizer,
    "sdpa": _attention,
    "loader-ready": _loader,
    "no-sync": _sync,
    "pinned-copies": _copies,
    "overlap-communication": _communication,
    "quiet-host": _quiet,
}
