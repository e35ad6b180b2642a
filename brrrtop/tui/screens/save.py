"""What the key S writes: the recording, a picture of the screen, or the report, by the end of its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import Snapshot

if TYPE_CHECKING:
    from brrrtop.tui.app import BrrrtopApp

_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


class SaveDialog(ModalScreen[str | None]):
    """Gives back a path, or None when it was left with Esc."""

    app: BrrrtopApp
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, kinds: Mapping[str, str]) -> None:
        """`kinds`: what can be written, by the end of the name; the first one is offered."""
        super().__init__()
        self._kinds = kinds

    def compose(self) -> ComposeResult:
        now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        with Vertical(id="dialog"):
            yield Label("Save what was seen so far to (Enter saves, Esc leaves):")
            yield Input(f"brrrtop-{now}{next(iter(self._kinds))}", id="path", select_on_focus=False)
            for ending, what in self._kinds.items():
                yield Label(f"{ending:<6} {what}", classes="kind")

    def on_mount(self) -> None:
        self.set_class(not self.app.palette.colour, "-colourless")
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)


class Saver:
    """Asks for a name and writes what its end says.

    Args:
        page: Makes the report of a snapshot, as HTML; None: there is none.
    """

    def __init__(self, app: BrrrtopApp, page: Callable[[Snapshot], str] | None) -> None:
        self._app, self._page = app, page

    def ask(self) -> None:
        kinds = {".brrr": "the recording, for brrrtop replay"} if self._app.can_record else {}
        kinds[".svg"] = "a picture of this screen"
        if self._page is not None:
            kinds[".html"] = "the report as a page"
        self._app.push_screen(SaveDialog(kinds), self._save)

    def _save(self, name: str | None) -> None:
        if name is None:
            return
        path = Path(name).expanduser()
        if path.suffix == ".svg":  # once the dialog has gone from the screen
            self._app.call_after_refresh(self._write, path, self._picture)
        elif path.suffix == ".html" and self._page is not None:
            page = self._page
            self._write(path, lambda: page(self._app.snapshot))
        else:
            self._app.record(name)

    def _picture(self) -> str:
        return local(self._app.export_screenshot(title="brrrtop", simplify=True))

    def _write(self, path: Path, text: Callable[[], str]) -> None:
        try:
            self._app.say(written(path, text()))
        except BrrrtopError as fault:
            self._app.say(f"{fault.message} – {fault.action}", failed=True)


def local(svg: str) -> str:
    """A picture by Textual without fonts from the network, its spaces kept by every reader."""
    svg = _FONTS.sub("", svg)
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
