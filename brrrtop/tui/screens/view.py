"""What every screen does: hand the newest snapshot to its panes, and give way when too small. And dialogs.

What the key S writes is a picture of the screen, or the report, by the end of its name. In a browser it is a
download: whoever sees the screen there names no file of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input, Label

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.themed import key
from brrrtop.tui.widgets.frame import LEAST_HEIGHT, LEAST_WIDTH, KeyLine, Status, Title, TooSmall
from brrrtop.tui.widgets.pane import Pane, Scrolled
from brrrtop.tui.widgets.verdict import Headline, RunBars

if TYPE_CHECKING:
    from brrrtop.tui.app import BrrrtopApp


class View(Screen[None]):
    app: BrrrtopApp
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

    def framed(self, panes: Iterable[Widget], what: str, hint: str) -> ComposeResult:
        """The panes below the verdict and above the words typed, the status and the keys."""
        yield TooSmall()
        yield Title()
        yield Headline()
        yield RunBars()
        yield from panes
        with Container(id="filter"):
            yield Label(what)
            yield Input(placeholder=hint, id="words", disabled=True)
        yield Status()
        yield KeyLine()

    @property
    def words(self) -> Input:
        return self.query_one("#words", Input)

    def ask_for_words(self) -> None:
        self.query_one("#filter").display, self.words.disabled = True, False
        self.set_focus(self.words)

    def on_screen_resume(self) -> None:
        """What came while another screen lay over this one is not waited for."""
        self.show(self.app.snapshot)

    def redraw(self) -> None:
        for pane in self.walk_children(Pane):
            pane.redraw()
        self.refresh(repaint=True)


class SubView(View):
    """A screen about one pane; Esc leads back. `/` searches in what can be scrolled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("escape", "back", "back", "back, in the end to the list of all trainers"),
        ("backspace", "app.main"),
        key("slash,f3", "search", "", "elsewhere: search in help, log, advice, code and tables"),
    ]  # fmt: skip

    def __init__(self, body: Pane) -> None:
        super().__init__()
        self.body = body

    def compose(self) -> ComposeResult:
        hint = "words; Enter keeps them, Esc ends"
        yield from self.framed((self.body,), "search ", hint)

    def on_mount(self) -> None:
        self.body.focus()

    def action_search(self) -> None:
        if isinstance(self.body, Scrolled):
            self.app.forget_toast()
            self.ask_for_words()

    def action_back(self) -> None:
        """Ends a search first, then leads back."""
        asked = self.query_one("#filter").display
        if not asked and not (isinstance(self.body, Scrolled) and self.body.wanted):
            self.app.action_main()
            return
        self.words.value = ""
        self.on_input_submitted()

    def on_input_changed(self, event: Input.Changed) -> None:
        if isinstance(self.body, Scrolled):
            self.body.search(event.value)

    def on_input_submitted(self) -> None:
        self.query_one("#filter").display = False
        self.body.focus()


class Dialog(ModalScreen[str | None]):
    """Asks for words; gives back what was chosen, None when it was left with Esc."""

    app: BrrrtopApp
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss(None)")]

    def on_mount(self) -> None:
        self.set_class(not self.app.palette.colour, "-colourless")
        self.query_one(Input).focus()


_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class SaveDialog(Dialog):
    """Gives back a path.

    Args:
        reports: Somebody makes the report as a page.
    """

    def __init__(self, reports: bool) -> None:
        super().__init__()
        self._kinds = {".svg": "a picture of this screen"}
        if reports:
            self._kinds[".html"] = "the report as a page"

    def compose(self) -> ComposeResult:
        now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        with Vertical(id="dialog"):
            yield Label("Save what is seen to (Enter saves, Esc leaves):")
            yield Input(f"brrrtop-{now}{next(iter(self._kinds))}", id="path", select_on_focus=False)
            for ending, what in self._kinds.items():
                yield Label(f"{ending:<6} {what}", classes="kind")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


def save(app: BrrrtopApp, name: str) -> None:
    """Writes, or has a browser download, what the end of the name says."""
    path = Path(name).expanduser()
    page = app.page
    if path.suffix == ".svg":  # once the dialog has gone from the screen
        app.call_after_refresh(_write, app, path, lambda: svg_of(app))
    elif path.suffix == ".html" and page is not None:
        _write(app, path, lambda: page(app.snapshot))
    else:
        app.say("end the name in .svg or .html; --record keeps a recording", failed=True)


def _write(app: BrrrtopApp, path: Path, text: Callable[[], str]) -> None:
    try:
        if app.is_web:
            app.say(_download(app, path.name, text().encode()))
        else:
            app.say(written(path, text()))
    except BrrrtopError as fault:
        app.say(f"{fault.message} – {fault.action}", failed=True)


def _download(app: BrrrtopApp, name: str, content: bytes) -> str:
    app.call_later(app.deliver_binary, BytesIO(content), save_filename=name)
    return f"{name} goes to the browser as a download"


def svg_of(app: BrrrtopApp) -> str:
    """The screen by Textual without fonts from the network, its spaces kept by every reader."""
    svg = _FONTS.sub("", app.export_screenshot(title="brrrtop", simplify=True))
    svg = svg.replace("Fira Code, monospace", "DejaVu Sans Mono, Fira Code, monospace")
    return svg.replace("<text ", '<text xml:space="preserve" ')


def written(path: Path, text: str) -> str:
    """Writes a file that was not there before; says so.

    Raises:
        BrrrtopError: It is there, or cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BrrrtopError(f"{path} is there already", "choose another name") from None
    except OSError as fault:
        raise BrrrtopError(f"{path}: {fault.strerror or fault}", "choose another folder") from None
    return f"saved {path}"
