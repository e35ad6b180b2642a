"""What the key S writes: a picture of the screen, or the report, by the end of its name.

In a browser it is a download: whoever sees the screen there names no file of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Label

from brrrtop.errors import BrrrtopError
from brrrtop.tui.screens.view import Dialog

if TYPE_CHECKING:
    from brrrtop.tui.app import BrrrtopApp

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
