"""The screen people keep open."""

from typing import ClassVar

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.widgets import Input

from brrrtop.model.snapshot import PANES, ZOOMED, Settings, Snapshot
from brrrtop.tui.parts import waits_for_loader
from brrrtop.tui.screens.view import View
from brrrtop.tui.themed import key
from brrrtop.tui.widgets.advice import Advice
from brrrtop.tui.widgets.kernel_table import KernelTable
from brrrtop.tui.widgets.side import Loader, Side
from brrrtop.tui.widgets.time_spent import HistoryGraph, StepStrip
from brrrtop.tui.widgets.verdict import DeviceStrip, Figures

SETTLED_S = 0.05
"""By then the panes have theirs after a new size. By `call_after_refresh` a terminal that tells no size
was drawn without end in Textual 8.2; why is not known (`test_live_verbs` interrupts such a one)."""


_SORT = "sort kernels by the next or the previous column; a click on a title does too"
COPY = "copy what to try, of the chosen advice or the first (OSC 52; tmux: set-clipboard on)"


class MainView(View):
    BINDINGS: ClassVar[list[BindingType]] = [
        key("slash,f3", "filter", "filter",
            "filter kernels by words in name, family or side; Esc clears", priority=True),
        ("escape", "clear_filter"),
        key("s,greater_than_sign,f6", "sort(1)", "", _SORT),
        key("less_than_sign", "sort(-1)", "", _SORT),
        key("I", "reverse", "", "reverse the order of kernels"),
        key("y", "app.copy", "copy", COPY),
        key("z", "zoom(1)", "", "the next pane alone"),
        key("Z", "zoom(0)", "", "all panes"),
    ]  # fmt: skip

    OPENING = "-unjudged -no-past"
    """Its classes before the first snapshot."""

    def compose(self) -> ComposeResult:
        panes = (
            Figures(), DeviceStrip(), HistoryGraph(), Container(Advice(), Side(), id="counsel"),
            Loader(), StepStrip(), KernelTable(),
        )  # fmt: skip
        hint = "words in a kernel's name, family or side"
        yield from self.framed(panes, "filter ", hint)

    def show(self, snapshot: Snapshot) -> None:
        self.update_classes(
            {
                "-unjudged": snapshot.estimate is None,
                "-waits": waits_for_loader(snapshot),
                "-no-past": not snapshot.history,
            }
        )
        super().show(snapshot)
        self._fit_advice()

    def _fit_advice(self) -> None:
        """Lines that advice has no use for go to the kernels; not beside other panes."""
        for advice in self.walk_children(Advice):  # none before the panes are there
            counsel = self.query_one("#counsel")
            height, most = counsel.styles.height, None
            if height is not None and height.is_cells and not self.has_class("-huge"):
                most = advice.wanted(int(height.value))
            counsel.styles.max_height = most

    def on_mount(self) -> None:
        self.table.focus()
        self._arrange()

    def on_resize(self) -> None:
        self.query_one(Loader).redraw()  # it has more lines on a higher screen
        self.set_timer(SETTLED_S, self._fit_advice)

    def _arrange(self) -> None:
        chosen = self.app.settings
        classes = {f"-no-{name}": name in chosen.hidden for name in PANES}
        classes |= {f"-zoom-{name}": name == chosen.zoomed for name in PANES}
        self.update_classes(classes | {"-zoom": bool(chosen.zoomed)})
        self.call_after_refresh(self._fit_advice)

    def _choose(self, settings: Settings) -> None:
        self.app.choose(settings)
        self._arrange()

    def action_zoom(self, by: int) -> None:
        names = ["", *(name for name in ZOOMED if name not in self.app.settings.hidden)]
        at = names.index(self.app.settings.zoomed) if self.app.settings.zoomed in names else 0
        self.action_zoom_pane(names[(at + by) % len(names)] if by else "")

    def action_zoom_pane(self, name: str) -> None:
        self._choose(replace(self.app.settings, zoomed=name))

    def action_hide(self, name: str) -> None:
        hidden = set(self.app.settings.hidden) ^ {name}
        self._choose(
            replace(self.app.settings, hidden=tuple(one for one in PANES if one in hidden))
        )

    @property
    def table(self) -> KernelTable:
        return self.query_one(KernelTable)

    def action_filter(self) -> None:
        self.ask_for_words()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """`/` goes before all other keys, as words typed after it may be here already; but it is a
        character while they are typed."""
        return action != "filter" or self.focused is not self.words

    def action_clear_filter(self) -> None:
        if self.app.snapshot.job is not None and not self.query_one("#filter").display:
            self.app.action_ranks()
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
