"""The screen people keep open."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Input, Label

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.screens.view import TooSmall, View
from brrrtop.tui.widgets.account_pane import AccountPane
from brrrtop.tui.widgets.advice import Advice
from brrrtop.tui.widgets.banner import Banner
from brrrtop.tui.widgets.device_strip import DeviceStrip
from brrrtop.tui.widgets.gauges import Gauges
from brrrtop.tui.widgets.history_graph import HistoryGraph
from brrrtop.tui.widgets.kernel_table import KernelTable
from brrrtop.tui.widgets.key_line import Key, KeyLine
from brrrtop.tui.widgets.pace import Pace
from brrrtop.tui.widgets.status import Status
from brrrtop.tui.widgets.title import Title

KEYS: tuple[Key, ...] = (
    ("?", "help", "app.help"),
    ("q", "quit", "app.quit"),
    ("space", "pause", "app.pause"),
    ("/", "filter", "screen.filter"),
    ("enter", "kernel", "screen.open"),
    ("a", "advice", "app.advice"),
    ("w", "what-if", "app.whatif"),
    ("r", "roofline", "app.roofline"),
    ("l", "log", "app.log"),
)
LAST: tuple[Key, ...] = (
    ("m", "mark", "app.baseline"),
    ("b", "before/after", "app.compare"),
    ("y", "copy", "app.copy"),
    ("s", "sort", "screen.sort(1)"),
)


class MainView(View):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash,f3", "filter", show=False, priority=True),
        Binding("escape", "clear_filter", show=False),
        Binding("s,greater_than_sign,f6", "sort(1)", show=False),
        Binding("less_than_sign", "sort(-1)", show=False),
        Binding("I", "reverse", show=False),
        Binding("y", "app.copy", show=False),
    ]

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield Title()
        yield DeviceStrip()
        yield Banner()
        yield Pace()
        yield HistoryGraph()
        yield Gauges()
        yield AccountPane()
        with Container(id="body"):
            yield KernelTable()
            yield Advice()
        with Container(id="filter"):
            yield Label("filter ")
            yield Input(placeholder="words in a kernel's name, family or side", id="words")
        yield Status()
        yield KeyLine(KEYS, LAST)

    def on_mount(self) -> None:
        self.table.focus()

    @property
    def snapshot_shown(self) -> Snapshot | None:
        return self.table.snapshot

    @property
    def table(self) -> KernelTable:
        return self.query_one(KernelTable)

    @property
    def words(self) -> Input:
        return self.query_one("#words", Input)

    def action_filter(self) -> None:
        self.query_one("#filter").display = True
        self.set_focus(self.words)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """`/` goes before all other keys, as words typed after it may be here already; but it is a
        character while they are typed."""
        return action != "filter" or self.focused is not self.words

    def action_clear_filter(self) -> None:
        job = self.snapshot_shown.job if self.snapshot_shown else None
        if job is not None and not self.query_one("#filter").display:
            self.app.action_ranks()  # type: ignore[attr-defined]
            return
        self.words.value = ""
        self.query_one("#filter").display = False
        self.table.filter("")
        self.table.focus()

    def action_sort(self, by: int) -> None:
        self.table.cycle_sort(by)

    def action_reverse(self) -> None:
        self.table.sort_by(self.table.sort_key, not self.table.reverse)

    def action_open(self) -> None:
        self.table.action_open()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.table.filter(event.value)

    def on_input_submitted(self) -> None:
        self.query_one("#filter").display = bool(self.words.value)
        self.table.focus()
