"""What the GPU's own counters say, with nvidia-smi's figure beside the truth."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from brrrtop import units
from brrrtop.model import Snapshot
from brrrtop.tui.look import Look
from brrrtop.tui.metrics import Gauge, throttle
from brrrtop.tui.renderables.bar import meter
from brrrtop.tui.renderables.history import sparkline
from brrrtop.tui.renderables.line import rows, stacked
from brrrtop.tui.widgets.pane import Pane

Readings = Mapping[int, float]


class Gauges(Pane):
    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        look = self.look
        if not snapshot.gauges:
            return stacked([absent(snapshot, look)], width)
        wide = width >= 110
        pieces = [
            *activity(snapshot, look, 8 if wide else 0),
            *state(snapshot.gauges, look),
        ]
        if wide and (trend := snapshot.gauge_history.get(Gauge.SM_ACTIVE)):
            pieces.append(Text.styled("SMs, lately ", look.style("muted")) + sparkline(trend, look, 20, "good"))
        return stacked(rows(pieces, width, height, "  "), width)


def absent(snapshot: Snapshot, look: Look) -> Text:
    """Why there is nothing to show."""
    text = Text.styled("gauges ", look.style("muted")).append(units.UNMEASURED)
    kind = snapshot.source.kind
    why = "no counters in this source" if kind != "live" else "no counter has been read yet"
    if kind == "kineto":
        why = "a Kineto trace has no counters"
    return text.append(f"  {why}", look.style("muted"))


def activity(snapshot: Snapshot, look: Look, bar_width: int) -> list[Text]:
    """SMs, tensor pipes and DRAM as they worked, and what nvidia-smi makes of it."""
    gauges = snapshot.gauges
    entries = (
        ("SM active", Gauge.SM_ACTIVE, "good"),
        ("tensor", Gauge.TENSOR_ACTIVE, "compute"),
        ("DRAM", Gauge.DRAM_ACTIVE, "memory"),
        ("nvidia-smi says", Gauge.SMI_UTIL, "muted"),
    )
    pieces = []
    for label, gauge, hue in entries:
        value = gauges.get(gauge)
        text = Text.styled(f"{label} ", look.style("muted"))
        if bar_width and gauge is not Gauge.SMI_UTIL:
            text.append_text(meter(value, look, bar_width, hue)).append(" ")
        pieces.append(text.append(units.share(value), look.style(hue, bold=True)))
    return pieces


def state(gauges: Readings, look: Look) -> list[Text]:
    """Memory, power, clock, temperature and what holds the clocks down."""
    celsius = gauges.get(Gauge.TEMPERATURE_C)
    pieces = [
        _of("mem", gauges, Gauge.MEMORY_USED_BYTES, Gauge.MEMORY_TOTAL_BYTES, units.size, look),
        _of("power", gauges, Gauge.POWER_WATT, Gauge.POWER_LIMIT_WATT, watts, look),
        _of("clock", gauges, Gauge.SM_CLOCK_HZ, Gauge.SM_CLOCK_MAX_HZ, hertz, look),
        Text.styled(units.UNMEASURED if celsius is None else f"{celsius:.0f} °C", look.style("text")),
    ]
    reason = throttle(gauges.get(Gauge.CLOCK_EVENT_REASONS))
    if reason not in (None, "none"):
        pieces.insert(0, Text.styled(f"⚠ throttled: {reason}", look.style("alarm", bold=True)))
    if strangers := gauges.get(Gauge.FOREIGN_PROCESS_COUNT):
        pieces.insert(0, Text.styled(f"⚠ shared with {strangers:.0f}", look.style("alarm", bold=True)))
    return pieces


def watts(value: float | None) -> str:
    return units.UNMEASURED if value is None else f"{value:.0f} W"


def hertz(value: float | None) -> str:
    return units.UNMEASURED if value is None else units.rate(value, "Hz")


def _of(
    label: str, gauges: Readings, used: Gauge, total: Gauge, form: object, look: Look
) -> Text:
    """`label used/total unit`, the unit once."""
    assert callable(form)
    value, limit = form(gauges.get(used)), form(gauges.get(total))
    if value.split(" ")[-1] == limit.split(" ")[-1]:
        value = value.rsplit(" ", 1)[0]
    text = Text.styled(f"{label} ", look.style("muted"))
    text.append(value, look.style("text", bold=True))
    return text.append(f"/{limit}" if limit != units.UNMEASURED else "", look.style("muted"))
