"""What the words, letters and keys mean; the three regimes in a table.

The regime table and the facts follow Horace He, "Making Deep Learning Go Brrrr From First
Principles" (2022).
"""

from rich.cells import cell_len
from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import hanging
from brrrtop.tui.screens.advice import AllAdvice
from brrrtop.tui.screens.step import StepPane
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.themed import meanings
from brrrtop.tui.widgets.kernel_table import KernelTable
from brrrtop.tui.widgets.pane import Chooser, Scrolled

REGIME_TABLE: tuple[tuple[str, str, str, str], ...] = (
    (
        "compute",
        "the arithmetic units set the pace",
        "tensor cores (bf16, fp16, TF32), bigger batches, better matmul shapes, FlashAttention, a "
        "faster GPU",
        "less Python, fusing pointwise kernels",
    ),
    (
        "bandwidth",
        "moving tensors between memory and chip sets the pace",
        "fusion (torch.compile, Triton), activation checkpointing, lower precision, channels-last",
        "a GPU with more FLOPS, TF32 for matmuls that are not there",
    ),
    (
        "overhead",
        "the GPU waits for Python, launches, data, copies or other GPUs",
        "compiling, CUDA graphs, larger batches, no Python loops in the hot path, a better input "
        "pipeline",
        "a faster GPU",
    ),
)

TERMS: tuple[tuple[str, str], ...] = (
    ("bound", "compute: products, convolutions and attention with more FLOPs a byte than the GPU's ridge. "
     "Memory: what moves elements, however slowly, and products below the ridge"),
    ("history", "where the time went: live a second a column, newest at the right; a file fills the width. "
     "Idle time is dotted, waits for data lightest. Below it the phases of the run with marks (◆ the verdict "
     "changed, m baseline, k checkpoint, e evaluation, j compile, s stall, ! slow clocks, c a change, "
     "t trainer)"),
    ("one step", "what Python and its CUDA calls did, and below it the GPU: kernels by side and, where there "
     "are none, why. A bar is as high as the part of the time that it covers"),
    ("ghost", "your step with the best edit that is advised, or the one chosen on w, as simulated; how many "
     "steps it would be ahead by now. After a change that was predicted: the prediction"),
    ("run, now", "where the time went since attaching, and in the last seconds. What no burst has seen is "
     "unknown, active or idle by the GPU's counter"),
    ("MFU", "of all steps: the FLOPs that the kernels did over the peak of their "
     "precision, left out where the FLOPs are not known"),
    ("GPU active", "the part of the run in which a kernel ran; i has it beside the GPU's own counter"),
    ("unknown", "unclassified kernels, and spans whose records were lost; never folded into "
     "another bucket"),
    ("idle", "nothing resident on the GPU, by cause: input, launch, sync, allocator, compile, gc, "
     "checkpoint, logging, evaluation, io (files, network), host (elsewhere), device (queued work "
     "that waited), other process (the same while others were on the GPU)"),
    ("exposed", "a collective, or a copy off the GPU or onto it, with no compute kernel beside it"),
    ("underfilled", "kernels too small for the GPU: under 20 us and a wave, or on few of its SMs"),
    ("of peak", "of a bandwidth one its bytes a second over the GPU's, of a compute one its FLOPs; half "
     "and more is good. Enter on a kernel says why there is none"),
    ("per step, calls", "a kernel's time and how often it runs, in a step on average; where no steps "
     "are known `total` and `count` of the window"),
    ("share", "of a kernel: its part of the time of all kernels and copies, not of the wall time"),
    ("sure", "confidence: how far the verdict is ahead of the next one, and how good its evidence"),
    ("lead (i)", "kernel start minus launch end, median. Long: the host runs ahead and the GPU never "
     "waits for it"),
    ("late (i)", "the part of all launches, counted, that came less than 10 µs before their kernel: the "
     "GPU waited for them"),
    ("rho", "share of the kernel time launched at least 10 µs before it started: the most that faster "
     "kernels can touch"),
    ("SM, tensor, DRAM", "what the GPU itself counts, whoever uses it: share of time in which an SM "
     "held any warp, tensor cores worked, memory moved bytes. Other figures are the trainer's"),
    ("nvidia-smi", "its utilisation says that a kernel was resident, not that it was useful; a "
     "bandwidth-bound job shows 95% and wastes most of the chip"),
    ("1.5× faster (1.4–1.7)", "the run with that edit, by simulation; the range should contain the true gain "
     "80% of the time. w has every edit, Enter what it changes in a step"),
    ("≤1.7× faster", "if the cause vanished (Amdahl's law)"),
    ("traced", "the part of the run in which kernels were recorded: bursts of whole steps stand "
     "for what is between them"),
    ("◆", "in the roofline: all kernels with known rates together; dots are where it was before"),
    ("cost", "what watching adds to a step, measured in this run with tracing on and off"),
    ("–", "not measured; a 0 is a measured 0"),
)  # fmt: skip


def binders(app: type) -> tuple[type, ...]:
    """The classes that bind keys, in the order of help."""
    from brrrtop.tui.screens.main import MainView

    return (app, SubView, Chooser, KernelTable, MainView, Scrolled, AllAdvice, StepPane)


class Help(Scrolled):
    topic = "help"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        palette = self.palette
        return [
            *_heading("Keys", palette, first=True),
            *_entries(tuple(meanings(*binders(type(self.app)))), palette, width, 16),
            *_heading("The three regimes: the fix for one does nothing for another", palette),
            *_regimes(palette, width),
            *_heading("Terms", palette),
            *_entries(TERMS, palette, width, 16),
        ]


def _heading(title: str, palette: Palette, first: bool = False) -> list[Text]:
    head = palette.text(title, "compute", bold=True)
    return [head] if first else [Text(), head]


def _entries(
    entries: tuple[tuple[str, str], ...], palette: Palette, width: int, indent: int
) -> list[Text]:
    lines = []
    for name, sentence in entries:
        term, meaning = palette.keys(name), palette.keys(sentence)
        if cell_len(term) >= indent:
            lines.append(palette.text(term, "text", bold=True))
            term = ""
        bold, plain = palette.style("text", bold=True), palette.style("text")
        lines += hanging(f"{term:<{indent}}", meaning, width, bold, plain)
    return lines


_HUES = {"bandwidth": "memory"}


def _regimes(palette: Palette, width: int) -> list[Text]:
    lines = []
    for regime, means, helps, wastes in REGIME_TABLE:
        head = Text(no_wrap=True).append(f" {regime} ", palette.filled(_HUES.get(regime, regime)))
        lines.append(head.append(f"  {means}", palette.style("text")))
        lines += _entries((("  helps", helps), ("  waste", wastes)), palette, width, 10)
    return lines
