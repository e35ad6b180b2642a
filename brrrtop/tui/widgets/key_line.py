"""The bottom line: the keys that matter here. Each can be clicked."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.renderables.line import joined
from brrrtop.tui.widgets.pane import Pane

Key = tuple[str, str, str]
"""Key as shown, what it does, the action behind it."""


class KeyLine(Pane):
    """Needs no snapshot; keys that do not fit are left out from the end, `last` before all others."""

    def __init__(self, keys: Sequence[Key], last: Sequence[Key] = ()) -> None:
        super().__init__()
        self._keys, self._last = tuple(keys), tuple(last)
        self._ahead: tuple[Key, ...] = ()
        self._behind: tuple[Key, ...] = ()

    def frame(self, ahead: Sequence[Key], behind: Sequence[Key] = ()) -> None:
        """Keys that come first and behind the usual ones for as long as they do something."""
        if (tuple(ahead), tuple(behind)) != (self._ahead, self._behind):
            self._ahead, self._behind = tuple(ahead), tuple(behind)
            self.redraw()

    def inputs(self, snapshot: Snapshot) -> object:
        return ()

    def redraw(self) -> None:
        self._drawn_from = ()
        self.put([self.line(self.content_size.width)])

    def line(self, width: int) -> Text:
        pieces = []
        for shown, does, action in (*self._ahead, *self._keys, *self._behind, *self._last):
            click = Style(meta={"@click": action})
            piece = Text.styled(
                f" {self.palette.keys(shown)} ", self.palette.style("text", bold=True) + click
            )
            piece.append(f"{does} ", self.palette.style("muted") + click)
            pieces.append(piece)
        return joined(pieces, width, "")

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        return [self.line(width)]
