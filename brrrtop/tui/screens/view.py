"""What every screen does: hand the newest snapshot to its panes, and give way when too small."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Input, Label

from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases
from brrrtop.tui.widgets.key_line import Key, KeyLine
from brrrtop.tui.widgets.pane import Pane
from brrrtop.tui.widgets.scrolled import Scrolled
from brrrtop.tui.widgets.status import Status
from brrrtop.tui.widgets.title import Title

LEAST_WIDTH, LEAST_HEIGHT = 40, 10
KEYS: tuple[Key, ...] = (
    ("esc", "back", "app.main"),
    ("q", "quit", "app.quit"),
    ("space", "pause", "app.pause"),
    ("?", "help", "app.help"),
    (":", "commands", "app.commands"),
    ("p", "one step", "app.step_picture"),
    ("a", "advice", "app.advice"),
    ("w", "what-if", "app.whatif"),
    ("C", "code", "app.code"),
    ("T", "tables", "app.tables"),
    ("r", "roofline", "app.roofline"),
    ("l", "log", "app.log"),
    ("b", "before/after", "app.compare"),
)

FOLLOW: Key = ("enter", "watch its successor", "app.follow")
TRACE: Key = ("n", "trace", "app.burst")
SHAPES: Key = ("o", "shapes", "app.shapes")


class TooSmall(Pane):
    """Takes the place of everything else on a terminal below 40×10."""

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        lines = [f"too small: {LEAST_WIDTH}x{LEAST_HEIGHT} needed"]
        if snapshot.estimate is not None:
            lines.insert(0, phrases.HEADLINES[snapshot.estimate.regime])
        return [Text(line[:width]) for line in lines]


class View(Screen[None]):
    """A screen over the newest snapshot."""

    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - typed by Screen, not as a class variable
        (0, "-tiny-width"),
        (LEAST_WIDTH, "-narrow"),
        (100, "-wide"),
        (160, "-huge"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012 - as above
        (0, "-tiny-height"),
        (LEAST_HEIGHT, "-flat"),
        (16, "-low"),
        (24, "-short"),
        (28, "-medium"),
        (38, "-tall"),
        (52, "-grand"),
    ]

    @classmethod
    def classes_of(cls, width: int, height: int) -> str:
        """What a screen of that many cells is, for one that opens: a change styles all panes again."""
        return " ".join(
            [name for least, name in breakpoints if cells >= least][-1]
            for breakpoints, cells in (
                (cls.HORIZONTAL_BREAKPOINTS, width), (cls.VERTICAL_BREAKPOINTS, height),
            )
        )  # fmt: skip

    def show(self, snapshot: Snapshot) -> None:
        panes = list(self.walk_children(Pane))
        for pane in panes:
            pane.show(snapshot)
        ahead = () if snapshot.successor is None else (FOLLOW,)
        behind = (TRACE, SHAPES) if snapshot.source.tier == "bursts" else ()
        for pane in panes:
            if isinstance(pane, KeyLine):
                pane.frame(ahead, behind)

    def on_screen_resume(self) -> None:
        """What came while another screen lay over this one is not waited for."""
        self.show(self.app.snapshot)  # type: ignore[attr-defined]

    def redraw(self) -> None:
        """Draws everything anew, after a change of colours."""
        for pane in self.query(Pane):
            pane.redraw()
        self.refresh(repaint=True)


class SubView(View):
    """A view opened from the main one; Esc leads back. `/` searches in what can be scrolled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", show=False),
        Binding("backspace", "app.main", show=False),
        Binding("slash,f3", "search", show=False),
    ]
    KEYS: ClassVar[tuple[Key, ...]] = KEYS

    def body(self) -> Pane:
        """The pane that this view is about."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield TooSmall()
        yield Title()
        yield self.body()
        with Container(id="filter"):
            yield Label("search ")
            yield Input(placeholder="words; Enter keeps them, Esc ends", id="words", disabled=True)
        yield Status()
        yield KeyLine(self.KEYS)

    def on_mount(self) -> None:
        for pane in self.query(Scrolled):
            pane.focus()

    def action_search(self) -> None:
        if self.query(Scrolled):
            self.app.forget_toast()  # type: ignore[attr-defined]
            box = self.query_one("#words", Input)
            self.query_one("#filter").display, box.disabled = True, False
            self.set_focus(box)

    def action_back(self) -> None:
        """Ends a search first, then leads back."""
        box = self.query_one("#filter")
        searching = box.display or any(pane.wanted for pane in self.query(Scrolled))
        if not searching:
            self.app.action_main()  # type: ignore[attr-defined]
            return
        self.query_one("#words", Input).value = ""
        box.display = False
        for pane in self.query(Scrolled):
            pane.search("")
            pane.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        for pane in self.query(Scrolled):
            pane.search(event.value)

    def on_input_submitted(self) -> None:
        self.query_one("#filter").display = False
        for pane in self.query(Scrolled):
            pane.focus()
