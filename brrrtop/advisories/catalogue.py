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


@dataclass(frozen=True, slots=True)
class Entry:
    """One advisory as documented."""

    kind: str
    title: str
    trigger: str
    trap: str
    """What looks the same and is not: the rule stays silent there."""
    group: str
    source: str
    """Number in the catalogue of the regime study behind the rule, `–` for none."""

    @property
    def is_given(self) -> bool:
        """Some report can have it today."""
        return self.group != NOT_YET


def _e(group: str, source: str, kind: str, title: str, trigger: str, trap: str) -> Entry:
    return Entry(kind, title, trigger, trap, group, source)


_OVER, _MEM, _COMP = "Overhead", "Memory bandwidth", "Compute"
_DIST, _TRUST = "Several GPUs", "Trust and hardware"

ENTRIES: tuple[Entry, ...] = (
    _e(_OVER, "A17", "dataloader-stall", "The next batch is late",
       "the GPU idles at least 5 % of the time inside a wait for input",
       "a wait that the GPU does not feel, because work is still queued"),
    _e(_OVER, "A10", "launch-bound-compile", "Launching sets the pace",
       "over half the kernel time or of the kernels was launched too late, half the kernels are "
       "under 20 us, and at least 15 % of the time is idle before launches",
       "a full launch queue (back-pressure), a late loader, slow copies, refills after syncs; kernels "
       "late for driver allocations; a run that is compiled already"),
    _e(_OVER, "A11", "cuda-graphs", "The same launches every step",
       "launch-bound, and three steps or more launched the same kernels without sync or allocation",
       "changing shapes; a run that replays graphs already"),
    _e(_OVER, "A16", "sync-point", "The loop reads values back",
       "idle while the queue fills again after the host waited for the GPU: at least 3 %",
       "waits for a full queue cost nothing; a host that launches nothing for 3 ms after one is away; "
       "waits for a pageable upload belong to pin-memory, those for large copies back to "
       "readback-traffic; a loss printed once a step"),
    _e(_OVER, "A26", "fused-optimizer", "An optimizer that launches per parameter",
       "at least 60 single-tensor optimizer kernels an update, more than twice those over lists; or "
       "Adam over lists whose spare passes take 5 % of the time",
       "gradient clipping and logging beside a fused update; foreach updates of few parameters"),
    _e(_OVER, "A18", "pin-memory", "Uploads from pageable memory",
       "at least 1 MB a step from pageable memory with the GPU idle",
       "scalars and labels; uploads hidden behind kernels"),
    _e(_OVER, "A19", "overlap-copies", "Pinned uploads that nothing hides",
       "at least 3 % of the time only a pinned upload runs",
       "copies beside kernels"),
    _e(_OVER, "A20", "readback-traffic", "Large copies back to the host",
       "at least 1 MB a step and 2 % of the time, with nothing beside it; ops on the CPU on what was "
       "copied go with it",
       "scalars read back: those are sync-points; the copies of a save"),
    _e(_OVER, "A59", "underfilled-kernels", "Kernels too small for the GPU",
       "at least 12 % of the time under-filled while the host keeps up",
       "persistent kernels, whose grid is the number of SMs by design; norms of channels-first images, "
       "which channels-last is about"),
    _e(_OVER, "A12", "bigger-batch", "Overhead that a step pays once",
       "launch idle and under-filled time over 25 %, and under 60 % of the memory in use; where that is "
       "unknown, half of the time in kernels that leave 90 % of the GPU empty",
       "a late loader: twice the batch is twice as late"),
    _e(_OVER, "A14", "host-stall", "The host is elsewhere",
       "at least 10 % idle while the host is in nothing that a probe saw: stack samples are too few, "
       "or show file or network work of the loop itself",
       "Python between two launches, which is launch time"),
    _e(_OVER, "A14", "python-overhead", "One line of Python holds the GPU up",
       "at least 10 % idle while the host is elsewhere, and at least 20 stack samples, a quarter of "
       "them at one line",
       "few samples; waits that have a cause of their own; files and network, which are host-stall"),
    _e(_OVER, "A03", "recompilation", "torch.compile compiles again",
       "a compile that is not the first, in steady state",
       "the first compile of each function; evaluation with its own shapes"),
    _e(_OVER, "A04", "graph-breaks", "Compiled in part only",
       "compiled kernels run, but pointwise work outside them takes four times as long",
       "eager runs; custom ops in a small part of the model"),
    _e(_OVER, "A23", "gc-pause", "Python's collector stops the loop",
       "collections idle the GPU at least 1 % of the time, or one takes 20 ms and idles it",
       "collections while the queue is full"),
    _e(_OVER, "A24", "allocator-retries", "The allocator ran out and tried again",
       "retries in this window, with idle time of their own or at least one in a hundred steps",
       "a single retry at the first evaluation"),
    _e(_OVER, "A25", "allocation-churn", "Driver allocations every step",
       "at least one driver allocation a step, idling the GPU 2 % of the time",
       "growth in the first steps; retries, which have their own advice"),
    _e(_OVER, "A22", "checkpoint-stall", "Saving holds the loop up",
       "at least 2 % idle inside a save, one save of 2 s that idles the GPU, or saves between the "
       "traced steps that hold the training thread up 2 % of the time; less sure without "
       "marks: eight large copies to the host or more, no kernel between, in half the steps at most",
       "asynchronous saves that nothing waits for; results read back every step"),
    _e(_OVER, "A21", "logging-stall", "Logging holds the loop up",
       "at least 2 % idle inside calls of a logger, or while values of tensor after tensor are read one "
       "by one, histograms among them or in few of the steps",
       "log calls while work is queued; norms that clip, in every step"),
    _e(_OVER, "–", "evaluation-idle", "Evaluation waits for the host",
       "at least 2 % idle inside an evaluation phase",
       "evaluation that keeps the GPU busy"),
    _e(_MEM, "A30", "fuse-pointwise", "Long runs of unfused kernels",
       "fusing runs of pointwise kernels could save 5 %, and runs hold at least four of weight "
       "(any length from a saving of 25 % on); 10 % where the device waits over half of the time",
       "residual, norm and activation in healthy code; Inductor's kernels; the optimizer; eager "
       "attention; the part of norms or conversions that are half of it, which have their own advice"),
    _e(_MEM, "A31", "fused-norm", "A norm written out",
       "means and a root between pointwise kernels take 3 % of the time forward",
       "norm kernels of PyTorch, which are fused; a norm that is under half of what fuse-pointwise "
       "could save"),
    _e(_MEM, "A32", "low-precision-storage", "Memory-bound on fp32 tensors",
       "over 40 % on the memory side, most streaming kernels over fp32",
       "autocast keeps norms and losses in fp32 by policy; fp32 products, which have their own "
       "advice; what fusing never writes"),
    _e(_MEM, "A33", "cast-churn", "The same tensors converted again and again",
       "conversions between float types take 12.5 % of the time",
       "one conversion of each weight a step, the price of autocast; arithmetic that converts what it "
       "reads; conversions that flash attention takes with it, or fusing: in its runs, and under half "
       "of what it could save"),
    _e(_MEM, "A34", "channels-last", "Channels-first convolutions",
       "convolutions with the conversions, norms and pools around them take 15 % of the time, 30 % of "
       "that on channels-first images; convolutions and conversions alone take 5 %",
       "a few conversions in a channels-last model; norms of sequences or without convolutions"),
    _e(_MEM, "A35", "needless-copies", "Kernels that only move elements",
       "contiguous(), cat and transposes take 12 % of the time",
       "the copies that attention layouts need; eager attention; conversions, which are cast-churn"),
    _e(_MEM, "A36", "inefficient-kernel", "Far under the memory roof",
       "a full-grid pointwise or softmax kernel with 10 % of the time under 30 % of the "
       "bandwidth, by bytes that are known",
       "norms, gathers and sorts, bound by latency; bytes guessed from names alone"),
    _e(_MEM, "A37", "activation-checkpointing", "Bandwidth-bound and out of memory",
       "over 90 % of the memory in use and more time on the memory side than in compute",
       "a compute-bound run, where recomputing costs real time; one that recomputes already"),
    _e(_MEM, "A38", "remove-checkpointing", "Recomputing with memory to spare",
       "forward kernels between backward ones take 3 % of the time, under 60 % of the memory used",
       "memory that peaks elsewhere, which the largest reading shows"),
    _e(_MEM, "A39", "embedding-sort", "Sorting and scattering indices",
       "index and sort kernels take 15 % of the time",
       "deterministic algorithms, which sort by choice"),
    _e(_MEM, "A27", "zero-grad-fill", "Large buffers set to zero every step",
       "64 MiB a step or more are set to zero, in 2 % of the time: by memsets, or by fills for the "
       "gradient of a whole embedding table, which the optimizer then goes through",
       "small workspaces; zeros that no embedding asked for; one vocabulary beside large products"),
    _e(_COMP, "A40", "enable-tf32-or-amp", "fp32 on the CUDA cores",
       "fp32 products without tensor cores take 5 % of the time on a GPU that has them",
       "GeForce, where TF32 is no faster (16 bit is); short products that do not fill the "
       "GPU, and thin ones that memory sets the pace of; a run that launches set the pace of"),
    _e(_COMP, "A41", "use-bf16", "TF32 where 16 bit would do",
       "TF32 products take 15 % of the time",
       "fp32 without tensor cores: that is the larger step"),
    _e(_COMP, "A43", "tensor-core-alignment", "Rows that are no multiple of 16 bytes",
       "16-bit products that load one or two elements at a time take 3 % of the time",
       "small products; fp32, which has no such rule"),
    _e(_COMP, "A46", "flash-attention", "Attention written out",
       "a softmax between two matrix products of a stream, 5 % of the time with all in between",
       "losses, routing and sampling between products; fused attention"),
    _e(_COMP, "A47", "fusion-ceiling", "Fused, but for the last generation",
       "attention kernels written for Ampere take 10 % of the time on Hopper or later",
       "kernels of the GPU's own generation"),
    _e(_COMP, "A45", "skinny-products", "Matrix times vector",
       "matrix-vector kernels take 10 % of the time",
       "narrow tiles of large products"),
    _e(_COMP, "A48", "cudnn-benchmark", "Convolution algorithms of the past",
       "direct and transform convolutions take 5 % of the time",
       "the first steps, in which cuDNN tries them; fp32 without tensor cores"),
    _e(_COMP, "A49", "double-precision", "fp64 by accident",
       "kernels over double take 2 % of the time",
       "double scalars as arguments of fp32 kernels"),
    _e(_COMP, "A50", "none-healthy", "Nothing worth an edit",
       "compute and memory take 75 % of the time at 40 % or more of their roofs, and no other "
       "advice is worth it",
       "weak evidence about much of the time"),
    _e(_DIST, "A51", "exposed-communication", "Collectives that nothing hides",
       "at least 10 % of the time only collectives run",
       "one rank cannot tell a slow link from a late peer: the advice says so"),
    _e(_DIST, "A53", "tiny-collectives", "Many collectives that are all latency",
       "at least 50 collectives a step under 50 us",
       "collectives hidden behind compute"),
    _e(_TRUST, "A01", "warming-up", "Too early to judge",
       "the first three steps, or compiling or loading kernels that shapes the window: nothing else is "
       "said",
       "a short compile before six steps or more; a recompile, which has its own advice"),
    _e(_TRUST, "4.1", "records-lost", "Too many records are missing",
       "over 1 % of the records were lost: nothing else is said",
       "–"),
    _e(_TRUST, "A05", "misleading-util", "GPU-Util says full, the GPU is not",
       "nvidia-smi says 90 % or more and less than 40 % of the roofs is used",
       "a roof share that is known for too little of the time; another process on the GPU"),
    _e(_TRUST, "A54", "throttled", "The clocks are held down",
       "a thermal or hardware slowdown in 10 % of the readings",
       "the power cap alone, which is normal at full load"),
    _e(_TRUST, "A28", "idle-clocks", "Low clocks while working",
       "clocks under 80 % of the most, held by application clocks or by idling",
       "idling is a symptom of gaps, and says so"),
    _e(_TRUST, "A55", "shared-gpu", "Somebody else computes here",
       "other compute processes, and kernels stopped for turns of theirs, or 15 points more "
       "utilisation than this trainer's",
       "display servers and monitors, which use nothing; kernels long by nature"),
    _e(_TRUST, "–", "gpu-faults", "The GPU reports errors",
       "uncorrected memory errors or an XID",
       "–"),
    _e(_TRUST, "4.3", "monitor-cost", "Watching costs too much",
       "watching adds 3 % to a step, beyond the error of that figure; torch.profiler by its ops takes 10 % "
       "of a loop that waits for launches, the GPU at work a quarter of the time",
       "a figure whose error is larger than itself"),
    _e(_TRUST, "A08", "intensity-tie-breaker", "Compute or memory, names cannot say",
       "a mixed regime, and names are the only evidence for 10 % of the time",
       "shapes or counters were recorded"),
    _e(NOT_YET, "A52", "straggler", "One rank arrives last",
       "never so far: brrrtop watches one rank at a time. To be given when, over two ranks, one waits "
       "5 % of the time less in collectives than the others",
       "one rank alone; pipeline stages, whose roles differ"),
)  # fmt: skip


def page() -> str:
    """The page, Markdown."""
    lines = [
        "# Advisories",
        "",
        "Generated by `python -m brrrtop.advisories.catalogue`; do not edit.",
        "",
        "Each advisory carries its evidence in numbers, one thing to try, what would be a waste of",
        "time in this regime, the most it can win and how sure it is. Device-side savings count",
        "only for kernels that were launched ahead of time (rho); host-side savings only where the",
        "GPU idled for them. Nothing under 2 % of the time or 0.3 ms a step is shown, and nothing",
        "at less than even odds. `Study` is the number in the catalogue the rule comes from.",
    ]
    for group in dict.fromkeys(entry.group for entry in ENTRIES):
        lines += ["", f"## {group}", "", "| id | what | given when | silent for | study |"]
        lines.append("|---|---|---|---|---|")
        lines += [
            f"| `{e.kind}` | {e.title} | {e.trigger} | {e.trap} | {e.source} |"
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
