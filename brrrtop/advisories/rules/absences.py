"""The host is elsewhere while the device idles, and no probe names where.

What the device did last, ops on CPU tensors and stack samples may still tell what keeps it.
"""

from __future__ import annotations

from typing import Any

from brrrtop.advisories.context import Context, advisory
from brrrtop.advisories.rules.copies import computed_on_copies, readback_traffic
from brrrtop.advisories.rules.host import NAMED, away, sampled
from brrrtop.model.advice import Advisory
from brrrtop.model.stack_samples import Line
from brrrtop.text import phrases, units

MOSTLY = 0.8
"""Of the host's absence: what so much of it passes in, or follows, is its cause."""


def host_stall(context: Context) -> Advisory | None:
    """Long absences of the host that no probe names; samples may say in which files."""
    lost = away(context)
    if readback_traffic(context) is not None:  # it has the ops on what was copied back
        lost -= computed_on_copies(context)
    looks = context.estimate.looks
    line = looks.lines[0] if looks is not None and looks.lines else None
    in_files = line is not None and line.reads_as == "io"
    enough = looks is not None and looks.count >= context.limits.stack_samples
    if lost < context.limits.host_idle or (enough and line is not None and not in_files):
        return None
    if any(sampled(context, cause) for cause in NAMED):
        return None
    sure, most = looks.io_bounds if looks is not None and enough and in_files else (0.6, 1.0)
    return advisory(
        context,
        "host-stall",
        says=_seen(context, line, units.share(lost)),
        suggests=_off_the_loop(line) if line is not None and in_files else _on_the_host(context),
        waste="a faster GPU or compile: it would wait as long",
        confidence=min(max(sure, 0.6), 0.9),
        saves=min(lost, most),
        host_idle_share=lost,
        host_cause_known=context.estimate.host_cause_known,
        **_where(context, line),
    )


def _seen(context: Context, line: Line | None, lost: str) -> str:
    looks = context.estimate.looks
    if looks is not None and line is not None:
        return f"{phrases.looked(context.estimate, line)}; {lost} of the time the GPU waits for the host"
    op, copies = _computing(context), _reading_back(context)
    where = "nothing that was seen: a hand-made loader, a lock, file access"
    if op:
        where = f"{op} on the CPU"
    elif copies:
        where = f"work on what it has just copied back ({copies:.0f} copies {context.per})"
    if looks is not None and looks.count >= context.limits.stack_samples:
        where = f"no line that stands out of {looks.count} looks at the main thread"
        where += f", {looks.io_count} of them in file or network work" if looks.io_count else ""
    return f"{lost} of the time the GPU waits while the host is elsewhere, in {where}"


def _on_the_host(context: Context) -> str:
    if op := _computing(context):
        return f"keep the tensors of {op} on the device"
    if _reading_back(context):
        return (
            "do that work on the device, or in a thread on the values of the step before; py-spy dump "
            "--pid PID, or watching it live, names the line"
        )
    return "py-spy dump --pid PID, or watch it live: stacks are sampled while the GPU idles"


def _computing(context: Context) -> str | None:
    """The op on CPU tensors that most of the absence passes in; None: none does."""
    work = context.facts.cpu_work
    if work is None or not work.names or context.share(work.total_ns) < MOSTLY * away(context):
        return None
    return work.names[0][0]


def _reading_back(context: Context) -> float:
    """Copies to the host a step that most of the absence follows at once; 0: no such."""
    found = context.facts.transfers
    after = context.share(found.pageable_down.after_ns + found.pinned_down.after_ns)
    large = found.pageable_down.large + found.pinned_down.large
    return context.a_step(large) if after >= MOSTLY * away(context) else 0.0


def _where(context: Context, line: Line | None) -> dict[str, Any]:
    if line is None or context.estimate.looks is None:
        return {}
    looks = context.estimate.looks
    return {
        "line": str(line),
        "looks_at_line": line.count,
        "looks": looks.count,
        "looked_for_ns": looks.span_ns,
    }


def _off_the_loop(line: Line) -> str:
    what = line.source or line.place
    if line.is_reading:
        return (
            f"do `{what}` ahead and several at once: DataLoader(..., num_workers=4, "
            "pin_memory=True), or a pool of threads where nothing is decoded; one alone is as slow"
        )
    return f"move `{what}` off the loop: to a thread, or to every Nth step"
