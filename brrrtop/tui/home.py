"""Who trains on this host, and what its GPUs do: a list, of which one is chosen to be watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from brrrtop.model.host import Host, HostTrainer
from brrrtop.text import units
from brrrtop.tui.keys import key, meanings, sign_of
from brrrtop.tui.painted import ThemedApp
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.bar import meter
from brrrtop.tui.renderables.line import (
    clipped,
    fitted,
    hanging,
    joined,
    pair,
    rule,
    stacked,
    under_cursor,
)
from brrrtop.tui.terminal import TerminalGone
from brrrtop.tui.widgets.scrolled import Chooser
from collectors.vocabulary import HostGpu, Metric

EVERY_S = 2.0
Choice = tuple[int, bool]
"""A pid, and whether the agent may enter it."""
HELP = (
    ("SMs busy", "share of the SMs' time in which a warp was resident: how much of the GPU works"),
    ("nvidia-smi", "GPU-Util: share of the time in which any kernel ran, be it on one SM only"),
    ("memory", "what the trainer holds on its GPUs; –: the driver does not say"),
    ("GPU", "the GPUs it is on; none: it has touched none yet"),
)
"""Of this screen."""
NOBODY = (
    "No training process that you may look into runs here. `brrrtop demo` shows a recorded one."
)


def gpu_line(gpu: HostGpu, palette: Palette, width: int) -> Text:
    """`GPU 0 NVIDIA H200  really used ━━── 31%  nvidia-smi says 98%  41.2/140 GiB  512 W`."""
    real = gpu.gauges.get(Metric.SM_ACTIVE)
    text = palette.text(f"GPU {gpu.index} ", "text", bold=True)
    text.append(fitted(gpu.name, 18), palette.style("text"))
    pieces = [text]
    busy = palette.text("SMs busy ", "muted")
    busy.append_text(meter(real, palette, 10, "good"))
    pieces.append(busy.append(f" {units.share(real):>4}", palette.style("good", bold=True)))
    message = units.share(gpu.gauges.get(Metric.SMI_UTIL))
    pieces.append(pair("nvidia-smi says", f"{message:>4}", palette))
    used, total = (
        units.size(gpu.gauges.get(one))
        for one in (Metric.MEMORY_USED_BYTES, Metric.MEMORY_TOTAL_BYTES)
    )
    pieces.append(palette.text(f"{used} of {total}", "text"))
    power = gpu.gauges.get(Metric.POWER_WATT)
    if power is not None:
        pieces.append(palette.text(f"{power:.0f} W", "muted"))
    return clipped(joined(pieces, width, "  "), width)


HEAD = f"{'pid':>8}  {'user':<10} {'GPU':<5} {'memory':>9}  {'SMs busy':>8} {'nvidia-smi':>10}  command"


def trainer_line(one: HostTrainer, gpus: Sequence[HostGpu], palette: Palette, width: int) -> Text:
    """A trainer with the GPUs it is on; their use is that of all processes on them."""
    used = [gpu for gpu in gpus if one.pid in gpu.memory_by_pid]
    where = ",".join(str(gpu.index) for gpu in used) or ("yes" if one.on_gpu else "none")
    sizes = [gpu.memory_by_pid[one.pid] for gpu in used]
    known = [size for size in sizes if size is not None]
    real, message = (
        [gpu.gauges[metric] for gpu in used if metric in gpu.gauges]
        for metric in (Metric.SM_ACTIVE, Metric.SMI_UTIL)
    )
    memory = units.size(sum(known)) if known else units.UNMEASURED
    text = palette.text(f"{one.pid:>8}  ", "text", bold=True)
    text.append(f"{fitted(one.user, 10)} {fitted(where, 5)} ", palette.style("text"))
    text.append(f"{memory:>9}  ", palette.style("text"))
    text.append(f"{units.share(_mean(real)):>8} ", palette.style("good", bold=True))
    text.append(f"{units.share(_mean(message)):>10}  ", palette.style("muted"))
    rank = "" if one.rank is None else f"rank {one.rank} "
    return clipped(text.append(f"{rank}{one.command}", palette.style("compute")), width)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def help_lines(palette: Palette, width: int) -> list[Text]:
    """What the keys do and the columns mean."""
    lines = [rule("help", "", palette, width)]
    for term, meaning in (*meanings(HomeList, Chooser, HomeApp), *HELP):
        bold, plain = palette.style("text", bold=True), palette.style("text")
        lines += hanging(f"{palette.keys(term):<12}", meaning, width, bold, plain) or [Text()]
    return stacked(lines, width)


class HomeList(Chooser):
    """GPUs above, trainers below; one trainer is chosen."""

    app: HomeApp
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "open", "watch: load the agent",
            "load the agent into the chosen trainer and watch its kernels; Esc there leads back"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._host: Host | None = None
        self._first_row = 0
        self.helps = False
        """The keys and columns are explained in place of the list."""

    @property
    def trainers(self) -> tuple[HostTrainer, ...]:
        return self._host.trainers if self._host else ()

    def choices(self) -> Sequence[int]:
        return [one.pid for one in self.trainers]

    def show(self, host: Host) -> None:
        self._host = host
        self.redraw()

    def action_open(self) -> None:
        self.app.action_watch(True)

    def on_click(self, event: events.Click) -> None:
        row = event.y - self._first_row
        if 0 <= row < len(self.trainers):
            self.choose(row)
            if event.chain == 2:
                self.action_open()

    def redraw(self) -> None:
        width, height = self.content_size
        self.put(self._draw(width, height))

    def _draw(self, width: int, height: int) -> list[Text]:
        palette, host = self.palette, self._host
        plain, muted = palette.style("text"), palette.style("muted")
        bold = palette.style("text", bold=True)
        lines = [Text.styled("brrrtop", bold)]
        if self.helps:
            return [*lines, *help_lines(palette, width)][:height]
        if host is None:
            return [*lines, Text.styled("looking …", muted)]
        lines.append(rule("GPUs", "", palette, width))
        lines += [gpu_line(gpu, palette, width) for gpu in host.gpus]
        lines += [Text.styled(note, muted) for note in host.notes[:3]]
        lines.append(rule("trainers", f"{len(host.trainers)} here", palette, width))
        lines.append(Text.styled(HEAD, muted))
        self._first_row = len(lines)
        for place, one in enumerate(host.trainers):
            line = trainer_line(one, host.gpus, palette, width)
            lines.append(under_cursor(line, palette, width) if place == self.at else line)
        if not host.trainers:
            lines.append(Text.styled(NOBODY, plain))
        lines = lines[: height - 1]
        lines += [Text()] * (height - 1 - len(lines))
        keys = Text(no_wrap=True)
        shown = {one.binding.action: one.binding for one in self.screen.active_bindings.values()}
        for binding in shown.values():
            if binding.show:
                keys.append(f" {palette.keys(sign_of(binding))} ", bold)
                keys.append(f"{binding.description} ", muted)
        return [*lines, keys]


class HomeApp(ThemedApp[Choice]):
    """Ends with the trainer that was chosen; with None when it was left.

    Args:
        read: Called every two seconds, on a thread of its own.
        remember: Told the name of each theme that is chosen.
    """

    CSS = "Screen { background: $background; color: $foreground; } HomeList { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("c", "watch(False)", "the GPU's counters only",
            "watch without an agent: the counters of its GPU only"),
        key("question_mark,h,f1", "help", "help", "this help; Esc closes it"),
        key("q,f10,ctrl+c", "leave", "quit", "quit", priority=True),
        Binding("escape", "escape", priority=True),
        key("t", "theme", "theme", "the next theme"),
    ]  # fmt: skip

    def __init__(
        self,
        read: Callable[[], Host],
        palette: Palette | None = None,
        remember: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(palette)
        self._remember = remember
        self._read = read
        self._reading = False

    def compose(self) -> ComposeResult:
        yield HomeList()

    @property
    def list(self) -> HomeList:
        return self.query_one(HomeList)

    def on_mount(self) -> None:
        self.list.focus()
        self.set_interval(EVERY_S, self.read_host)
        self.read_host()

    @work(thread=True)
    def read_host(self) -> None:
        """Reads the host anew, unless the reading before still goes on."""
        if self._reading:
            return
        self._reading = True
        try:
            host = self._read()
        finally:
            self._reading = False
        self.call_from_thread(self.list.show, host)

    def action_help(self) -> None:
        self.list.helps = not self.list.helps
        self.list.redraw()

    def action_escape(self) -> None:
        """Closes the help first."""
        if self.list.helps:
            self.action_help()
        else:
            self.action_leave()

    def action_watch(self, agent: bool) -> None:
        if self.list.helps:
            self.action_help()
        elif self.list.trainers:
            self.exit((self.list.choices()[self.list.at], agent))

    def action_leave(self) -> None:
        self.exit(None)

    def on_terminal_gone(self, _message: TerminalGone) -> None:
        self.exit(None)

    def action_theme(self) -> None:
        self.take_theme()
        self.list.redraw()
        if self._remember is not None:
            self._remember(self.palette.theme)
