"""Every advisory by id, for machines and for one page. `python -m brrrtop.advisories.catalogue`
writes `ADVISORIES.md` of the working directory.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

PAGE = "ADVISORIES.md"
NOT_YET = "Not given yet"
"""The group of what has an id and a rule, and nothing that asks it."""
WORTH = "wins 2 % and 0.3 ms a step or more"


@dataclass(frozen=True, slots=True)
class Entry:
    """One advisory as documented."""

    kind: str
    title: str
    trigger: str
    trap: str
    """What looks the same and is not: the rule stays silent there."""
    group: str
    edits: tuple[str, ...] = ()
    """What-if edits whose price gives it; none: a rule of its own does."""

    @property
    def is_given(self) -> bool:
        """Some report can have it today."""
        return self.group != NOT_YET


def _e(group: str, kind: str, title: str, trigger: str, trap: str) -> Entry:
    return Entry(kind, title, trigger, trap, group)


def _edit(group: str, kind: str, title: str, edits: str, when: str, trap: str) -> Entry:
    """Advice that the price of an edit gives, and what tells it from others of the same edit."""
    names = tuple(edits.split())
    told = " or ".join(f"`{name}`" for name in names)
    return Entry(kind, title, f"simulated: {told} {WORTH}{when}", trap, group, names)


_OVER, _MEM, _COMP = "Overhead", "Memory bandwidth", "Compute"
_DIST, _TRUST = "Several GPUs", "Trust and hardware"

ENTRIES: tuple[Entry, ...] = (
    _edit(_OVER, "dataloader-stall", "The next batch is late", "loader-ready",
         "; or 5 % of the time idle with the main thread in a loader by its stack, where no wait is marked",
         "a wait that the GPU does not feel, because work is still queued"),
    _edit(_OVER, "launch-bound-compile", "Launching sets the pace", "compile compile-reduce-overhead",
         ", and the GPU stands idle for a quarter of the step",
         "a full launch queue (back-pressure); a loop that waits for its workers; milliseconds in "
         "which the host is elsewhere; nodes of CUDA graphs; a run that is compiled already"),
    _edit(_OVER, "cuda-graphs", "The same launches every step", "compile-reduce-overhead",
         ", 3 points more than `compile` alone",
         "a run that replays graphs already; kernels that compiling fuses, or that the host is ahead of"),
    _edit(_OVER, "sync-point", "The loop reads values back", "no-sync",
         "; or 3 % of the time idle with the main thread at such a line by its stack, where no wait "
         "was recorded",
         "waits for a full queue cost nothing; waits for a pageable upload belong to pin-memory, "
         "those for large copies back to readback-traffic; a loss printed once a step"),
    _edit(_OVER, "fused-optimizer", "An optimizer that launches per parameter", "fused-optimizer",
         ", and the optimizer has a fused form",
         "gradient clipping and logging beside a fused update; updates over lists of few parameters;"
         " optimizers that multiply matrices"),
    _edit(_OVER, "pin-memory", "Uploads from pageable memory", "pinned-copies",
         ", and most of what is uploaded is pageable",
         "scalars and labels; uploads hidden behind kernels"),
    _edit(_OVER, "overlap-copies", "Pinned uploads that nothing hides", "pinned-copies",
         ", and what is uploaded is pinned",
         "copies beside kernels"),
    _e(_OVER, "readback-traffic", "Large copies back to the host",
       "at least 1 MB a step and 2 % of the time, with nothing beside it; ops on the CPU on what was "
       "copied go with it",
       "scalars read back: those are sync-points; the copies of a save"),
    _edit(_OVER, "underfilled-kernels", "Kernels too small for the GPU", "double-batch",
         ", under 60 % of the memory in use, and launch-scale kernels are most of what a larger "
         "batch would not lengthen",
         "long kernels with few blocks, whose time follows their work"),
    _edit(_OVER, "bigger-batch", "Overhead that a step pays once", "double-batch",
         ", and under 60 % of the memory in use, or unknown",
         "a late loader: twice the batch is twice as late; full memory"),
    _e(_OVER, "host-stall", "The host is elsewhere",
       "at least 10 % idle while the host is in nothing that a probe saw: stack samples are too few, "
       "or show file or network work of the loop itself",
       "Python between two launches, which is launch time"),
    _e(_OVER, "python-overhead", "One line of Python holds the GPU up",
       "at least 10 % idle while the host is elsewhere, and at least 20 stack samples, a quarter of "
       "them at one line",
       "few samples; waits that have a cause of their own; files and network, which are host-stall"),
    _e(_OVER, "recompilation", "torch.compile compiles again",
       "a compile that is not the first, in steady state",
       "the first compile of each function; evaluation with its own shapes"),
    _e(_OVER, "graph-breaks", "Compiled in part only",
       "compiled kernels run, but pointwise work outside them takes four times as long",
       "eager runs; custom ops in a small part of the model"),
    _e(_OVER, "gc-pause", "Python's collector stops the loop",
       "collections idle the GPU at least 1 % of the time, or one takes 20 ms and idles it",
       "collections while the queue is full"),
    _e(_OVER, "allocator-retries", "The allocator ran out and tried again",
       "retries in this window, with idle time of their own or at least one in a hundred steps",
       "a single retry at the first evaluation"),
    _e(_OVER, "allocation-churn", "Driver allocations every step",
       "at least one driver allocation a step, idling the GPU 2 % of the time",
       "growth in the first steps; retries, which have their own advice"),
    _e(_OVER, "checkpoint-stall", "Saving holds the loop up",
       "at least 2 % idle inside a save, one save of 2 s that idles the GPU, or saves between the "
       "traced steps that hold the training thread up 2 % of the time; less sure without "
       "marks: eight large copies to the host or more, no kernel between, in half the steps at most",
       "asynchronous saves that nothing waits for; results read back every step"),
    _e(_OVER, "logging-stall", "Logging holds the loop up",
       "at least 2 % idle inside calls of a logger, or while values of tensor after tensor are read one "
       "by one, histograms among them or in few of the steps",
       "log calls while work is queued; norms that clip, in every step"),
    _e(_OVER, "evaluation-idle", "Evaluation waits for the host",
       "at least 2 % idle inside an evaluation phase",
       "evaluation that keeps the GPU busy"),
    _edit(_MEM, "fuse-pointwise", "Runs of unfused kernels", "compile",
         ", and the GPU is at work most of the step",
         "library norms with one pointwise kernel between products; runs nobody waits for; a compiled run"),
    _edit(_MEM, "fused-norm", "A norm out of single ops", "compile",
         ", and norms written out are half of the runs of unfused kernels, or more",
         "norm kernels of PyTorch, which are fused; norms that are a small part of longer runs"),
    _e(_MEM, "low-precision-storage", "Memory-bound on fp32 tensors",
       "over 40 % on the memory side, most streaming kernels over fp32",
       "autocast keeps norms and losses in fp32 by policy; fp32 products, which have their own "
       "advice; what fusing never writes"),
    _e(_MEM, "cast-churn", "The same tensors converted again and again",
       "conversions between float types take 12.5 % of the time",
       "one conversion of each weight a step, the price of autocast; arithmetic that converts what it "
       "reads; conversions that flash attention takes with it, or fusing: in its runs, and under half "
       "of what it could save"),
    _edit(_MEM, "channels-last", "Channels-first convolutions", "channels-last",
         "",
         "a few conversions in a channels-last model; convolutions and norms of sequences; norms "
         "without convolutions"),
    _e(_MEM, "needless-copies", "Kernels that only move elements",
       "contiguous(), cat and transposes take 12 % of the time",
       "the copies that attention layouts need; eager attention; conversions, which are cast-churn"),
    _e(_MEM, "inefficient-kernel", "Far under the memory roof",
       "a full-grid pointwise or softmax kernel with 10 % of the time under 30 % of the "
       "bandwidth, by bytes that are known",
       "norms, gathers and sorts, bound by latency; bytes guessed from names alone"),
    _e(_MEM, "activation-checkpointing", "Bandwidth-bound and out of memory",
       "over 90 % of the memory in use and more time on the memory side than in compute",
       "a compute-bound run, where recomputing costs real time; one that recomputes already"),
    _e(_MEM, "remove-checkpointing", "Recomputing with memory to spare",
       "forward kernels between backward ones take 3 % of the time, under 60 % of the memory used",
       "memory that peaks elsewhere, which the largest reading shows"),
    _e(_MEM, "embedding-sort", "Sorting and scattering indices",
       "index and sort kernels take 15 % of the time",
       "deterministic algorithms, which sort by choice"),
    _e(_MEM, "zero-grad-fill", "Large buffers set to zero every step",
       "64 MiB a step or more are set to zero, in 2 % of the time: by memsets, or by fills for the "
       "gradient of a whole embedding table, which the optimizer then goes through",
       "small workspaces; zeros that no embedding asked for; one vocabulary beside large products"),
    _edit(_COMP, "enable-tf32-or-amp", "fp32 on the CUDA cores", "tf32 bf16",
         ", and most products run on the CUDA cores",
         "GeForce, where TF32 is no faster (16 bit is); short products that do not fill the GPU; "
         "thin ones that memory sets the pace of; a run that launches set the pace of"),
    _edit(_COMP, "use-bf16", "32 bits where 16 would do", "bf16",
         ", and tensor cores run most products already, or TF32 alone wins nothing",
         "products of 16 bits; short ones that do not fill the GPU"),
    _e(_COMP, "tensor-core-alignment", "Rows that are no multiple of 16 bytes",
       "16-bit products that load one or two elements at a time take 3 % of the time",
       "small products; fp32, which has no such rule"),
    _edit(_COMP, "flash-attention", "Attention written out", "sdpa",
         "",
         "losses, routing and sampling between products; fused attention"),
    _e(_COMP, "fusion-ceiling", "Fused, but for the last generation",
       "attention kernels written for Ampere take 10 % of the time on Hopper or later",
       "kernels of the GPU's own generation"),
    _e(_COMP, "skinny-products", "Matrix times vector",
       "matrix-vector kernels take 10 % of the time",
       "narrow tiles of large products"),
    _e(_COMP, "cudnn-benchmark", "Convolution algorithms of the past",
       "direct and transform convolutions take 5 % of the time",
       "the first steps, in which cuDNN tries them; fp32 without tensor cores"),
    _e(_COMP, "double-precision", "fp64 by accident",
       "kernels over double take 2 % of the time",
       "double scalars as arguments of fp32 kernels"),
    _e(_COMP, "none-healthy", "Nothing worth an edit",
       "no edit that was simulated wins 5 %, and no other advice does",
       "weak evidence about much of the time"),
    _edit(_DIST, "exposed-communication", "Collectives that nothing hides", "overlap-communication",
         "",
         "one rank cannot tell a slow link from a late peer: the advice says so"),
    _e(_DIST, "straggler", "One rank arrives last",
       "over two ranks or more: its own work takes 3 % of a step longer than its peers', in most steps, "
       "and most of all waits in collectives are for it",
       "one rank alone; ranks that were not recorded together; a rank that only began late; pipeline "
       "stages, whose roles differ"),
    _e(_DIST, "tiny-collectives", "Many collectives that are all latency",
       "at least 50 collectives a step under 50 us",
       "collectives hidden behind compute"),
    _e(_TRUST, "warming-up", "Too early to judge",
       "the first three steps, or compiling or loading kernels that shapes the window: nothing else is "
       "said",
       "a short compile before six steps or more; a recompile, which has its own advice"),
    _e(_TRUST, "records-lost", "Too many records are missing",
       "over 1 % of the records were lost, or nodes of CUDA graphs that nobody recorded ran for over "
       "10 % of the time: nothing else is said",
       "–"),
    _e(_TRUST, "misleading-util", "GPU-Util says full, the GPU is not",
       "nvidia-smi says 90 % or more and less than 40 % of the roofs is used",
       "a roof share that is known for too little of the time; another process on the GPU"),
    _e(_TRUST, "throttled", "The clocks are held down",
       "a thermal or hardware slowdown in 10 % of the readings",
       "the power cap alone, which is normal at full load"),
    _e(_TRUST, "idle-clocks", "Low clocks while working",
       "clocks under 80 % of the most, held by application clocks or by idling",
       "idling is a symptom of gaps, and says so"),
    _e(_TRUST, "shared-gpu", "Somebody else computes here",
       "other compute processes, and kernels stopped for turns of theirs, or 15 points more "
       "utilisation than this trainer's",
       "display servers and monitors, which use nothing; kernels long by nature"),
    _e(_TRUST, "gpu-faults", "The GPU reports errors",
       "uncorrected memory errors or an XID",
       "–"),
    _e(_TRUST, "monitor-cost", "Watching costs too much",
       "watching adds 3 % to a step, beyond the error of that figure; torch.profiler by its ops takes 10 % "
       "of a loop that waits for launches, the GPU at work a quarter of the time",
       "a figure whose error is larger than itself"),
    _e(_TRUST, "intensity-tie-breaker", "Compute or memory, names cannot say",
       "a mixed regime, and names are the only evidence for 10 % of the time",
       "shapes or counters were recorded"),
)  # fmt: skip


def page() -> str:
    """The page, Markdown."""
    lines = [
        "# Advisories",
        "",
        "Generated by `python -m brrrtop.advisories.catalogue`; do not edit.",
        "",
        "Each advisory carries its evidence in numbers, one thing to try, which edits would be a waste",
        "of time, what it wins and how sure that is. Where the trigger is *simulated*, the step was",
        "replayed with that edit made, and its gain is the advice; all edits that apply are in the",
        "what-if table, worthwhile or not. Other device-side savings are replayed too, as kernels that",
        "take less time; host-side savings count only where the GPU idled for them. Nothing under 2 % of",
        "the time or 0.3 ms a step is shown, and nothing at less than even odds. A step that mostly",
        "waits for its data is told of that first: what wins less than 10 % beside it comes later.",
    ]
    for group in dict.fromkeys(entry.group for entry in ENTRIES):
        lines += ["", f"## {group}", "", "| id | what | given when | silent for |"]
        lines.append("|---|---|---|---|")
        lines += [
            f"| `{e.kind}` | {e.title} | {e.trigger} | {e.trap} |"
            for e in ENTRIES
            if e.group == group
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the page and says where."""
    path = Path(PAGE)
    path.write_text(page(), encoding="utf-8")
    sys.stderr.write(f"wrote {path.resolve()}\n")


if __name__ == "__main__":
    main()
