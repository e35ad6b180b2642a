"""Each GPU of several, in one line."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette, letter
from brrrtop.tui.parts import split_parts
from brrrtop.tui.renderables.line import joined
from brrrtop.tui.widgets.pane import Pane


class DeviceStrip(Pane):
    """Takes no room with one GPU. A click on a GPU shows it."""

    def show(self, snapshot: Snapshot) -> None:
        self.display = len(snapshot.devices) > 1
        super().show(snapshot)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        chosen = snapshot.estimate.device.device_id if snapshot.estimate else None
        devices = sorted(snapshot.devices, key=lambda estimate: estimate.device.device_id)
        pieces = [device(e, e.device.device_id == chosen, self.palette) for e in devices]
        return [joined(pieces, width, "  ")]


def device(estimate: Estimate, chosen: bool, palette: Palette) -> Text:
    """`▸GPU 1 C24% M10% O66%`, the number on the hue of its regime."""
    number = estimate.device.device_id
    click = Style(meta={"@click": f"app.show_device({number})"})
    text = Text(no_wrap=True)
    text.append("▸" if chosen else " ", palette.style("good", bold=True))
    mixed = estimate.regime is Regime.MIXED
    badge = palette.style("text", bold=True) if mixed else palette.filled(estimate.regime.value)
    text.append(f"GPU {number}", badge + click)
    for name, share in split_parts(estimate.split):
        if share >= 0.005:
            text.append(f" {letter(name)}{units.share(share)}", palette.style(name, bold=chosen))
    return text
