"""What the GPU's own counters say, with nvidia-smi's figure beside the truth; and each GPU of several."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from rich.text import Text

from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette, letter
from brrrtop.tui.parts import split_parts
from brrrtop.tui.renderables.bar import meter
from brrrtop.tui.renderables.history import sparkline
from brrrtop.tui.renderables.line import joined, rows
from brrrtop.tui.widgets.pane import Pane
from collectors.vocabulary import Metric

Readings = Mapping[int, float]
THROTTLES = (
    (0x08, "hardware slowdown"),
    (0x40, "thermal, hardware"),
    (0x80, "power brake"),
    (0x20, "thermal, software"),
    (0x04, "power cap"),
    (0x02, "clocks set by a user"),
)
"""Bits of NVML's clocks-event reasons that hold clocks down, gravest first (nvml.h,
nvmlClocksEventReasons). Idle (0x1), sync boost (0x10) and display (0x100) are left out."""
AT_LIMITS = ("power cap", "clocks set by a user")
"""What holds clocks down without anything being wrong."""
TREND = 16
"""Readings in a trend, one a cell."""


class Gauges(Pane):
    def show(self, snapshot: Snapshot) -> None:
        self.set_class(not snapshot.gauges, "-bare")
        super().show(snapshot)

    def inputs(self, snapshot: Snapshot) -> object:
        return (snapshot.gauges, snapshot.gauge_history, snapshot.source.kind)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        palette = self.palette
        if not snapshot.gauges:
            return [absent(snapshot, palette)]
        wide = width >= 110
        pieces = [
            *activity(snapshot, palette, 8 if wide else 0),
            *state(snapshot.gauges, palette, labels=wide),
        ]
        if wide:
            pieces.append(joined(trends(snapshot, palette), width, "  "))
        return rows(pieces, width, height, "  ")


def absent(snapshot: Snapshot, palette: Palette) -> Text:
    """Why there is nothing to show."""
    text = palette.text("gauges ", "muted").append(units.UNMEASURED)
    kind = snapshot.source.kind
    why = "no counters in this source" if kind != "live" else "no counter has been read yet"
    if kind == "kineto":
        why = "a Kineto trace has no counters"
    return text.append(f"  {why}", palette.style("muted"))


def activity(snapshot: Snapshot, palette: Palette, bar_width: int) -> list[Text]:
    """SMs, tensor pipes and DRAM as they worked, and what nvidia-smi makes of it."""
    gauges = snapshot.gauges
    entries = (
        ("SM active" if bar_width else "SM", Metric.SM_ACTIVE, "good"),
        ("tensor", Metric.TENSOR_ACTIVE, "compute"),
        ("DRAM", Metric.DRAM_ACTIVE, "memory"),
        ("nvidia-smi says" if bar_width else "nvidia-smi", Metric.SMI_UTIL, "muted"),
    )
    pieces = []
    for label, gauge, hue in entries:
        value = gauges.get(gauge)
        text = palette.text(f"{label} ", "muted")
        if bar_width and gauge is not Metric.SMI_UTIL:
            text.append_text(meter(value, palette, bar_width, hue)).append(" ")
        pieces.append(text.append(units.share(value), palette.style(hue, bold=True)))
    return pieces


def trends(snapshot: Snapshot, palette: Palette) -> list[Text]:
    """How the SMs, the tensor pipes and DRAM worked over the last readings, most telling first."""
    pieces = []
    for label, gauge, hue in (
        ("recent SM", Metric.SM_ACTIVE, "good"),
        ("tensor", Metric.TENSOR_ACTIVE, "compute"),
        ("DRAM", Metric.DRAM_ACTIVE, "memory"),
    ):
        trend = snapshot.gauge_history.get(gauge, ())
        if len(trend) > 1:
            text = palette.text(f"{label} ", "muted")
            pieces.append(text.append_text(sparkline(trend, palette, min(TREND, len(trend)), hue)))
    return pieces


def state(gauges: Readings, palette: Palette, labels: bool) -> list[Text]:
    """Memory, power, clock, temperature and what holds the clocks down."""
    pieces = []
    reason = throttle(gauges.get(Metric.CLOCK_EVENT_REASONS))
    if reason not in (None, "none"):
        hue = "memory" if reason in AT_LIMITS else "alarm"
        pieces.append(_alarm(f"throttled: {reason}", palette, hue))
    if strangers := gauges.get(Metric.FOREIGN_PROCESS_COUNT):
        pieces.append(_alarm(f"shared with {strangers:.0f}", palette))
    for label, used, total, form in (
        ("mem", Metric.MEMORY_USED_BYTES, Metric.MEMORY_TOTAL_BYTES, units.size),
        ("power", Metric.POWER_WATT, Metric.POWER_LIMIT_WATT, "{:.0f} W".format),
        ("temp", Metric.TEMPERATURE_C, None, "{:.0f}°C".format),
        ("clock", Metric.SM_CLOCK_HZ, Metric.SM_CLOCK_MAX_HZ, lambda hz: units.rate(hz, "Hz")),
    ):
        readings = (gauges.get(one) if one is not None else None for one in (used, total))
        value, limit = (units.UNMEASURED if one is None else form(one) for one in readings)
        shown = label if labels or value == units.UNMEASURED else ""
        pieces.append(_amount(shown, value, limit, palette))
    return pieces


def _alarm(words: str, palette: Palette, hue: str = "alarm") -> Text:
    return palette.text(f"⚠ {words}", hue, bold=True)


def _amount(label: str, value: str, limit: str, palette: Palette) -> Text:
    """`label used/total unit`, the unit once."""
    if value.split(" ")[-1] == limit.split(" ")[-1]:
        value = value.rsplit(" ", 1)[0]
    text = palette.text(f"{label} " if label else "", "muted")
    text.append(value, palette.style("text", bold=True))
    return text.append(f"/{limit}" if limit != units.UNMEASURED else "", palette.style("muted"))


def throttle(reasons: float | None) -> str | None:
    """The gravest reason for low clocks; `none` when there is none, None when unmeasured."""
    if reasons is None:
        return None
    mask = int(reasons)
    for bit, words in THROTTLES:
        if mask & bit:
            return words
    return "none"


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
