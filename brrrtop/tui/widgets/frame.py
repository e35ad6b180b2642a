"""What stands around every screen: the first line, the status, the keys; or that it is too small."""

from rich.style import Style
from rich.text import Text
from textual.timer import Timer

from brrrtop.model.snapshot import Freshness, Overhead, Snapshot
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import clipped, joined, pair, sided
from brrrtop.tui.themed import sign_of
from brrrtop.tui.widgets.pane import Pane

LEAST_WIDTH, LEAST_HEIGHT = 40, 10
STATES = {
    Freshness.WAITING: ("○", "waiting for data", "muted"),
    Freshness.LIVE: ("●", "live", "good"),
    Freshness.STALE: ("▲", "stale", "alarm"),
    Freshness.ENDED: ("■", "ended", "memory"),
}


class Title(Pane):
    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        return [sided(subject(snapshot, self.palette), state(snapshot, self.palette), width)]


def subject(snapshot: Snapshot, palette: Palette) -> Text:
    source, estimate = snapshot.source, snapshot.estimate
    text = palette.text("brrrtop ", "text", bold=True)
    text.append(source.label, palette.style("compute", bold=True))
    facts = []
    if source.rank is not None and (source.world or 1) > 1:
        facts.append(f"rank {source.rank} of {source.world}")
    if estimate is not None:
        device = estimate.device
        number = f"GPU {device.device_id}" if len(snapshot.devices) > 1 else ""
        facts.append(" ".join(word for word in (number, device.name or "unnamed GPU") if word))
    if source.cmdline:
        program, space, rest = source.cmdline.partition(" ")
        facts.append(f"{program.rpartition('/')[2]}{space}{rest}")  # the script is what tells
    text.append("".join(f" · {fact}" for fact in facts), palette.style("muted"))
    return text


def state(snapshot: Snapshot, palette: Palette) -> Text:
    """Freshness in a word, with the age where that matters; pause and position of a replay."""
    glyph, word, hue = STATES[snapshot.freshness]
    text = Text()
    if snapshot.freshness is Freshness.LIVE and snapshot.source.kind != "live":
        glyph, word, hue = "▶", "replay", "good"
    gone = snapshot.freshness in (Freshness.STALE, Freshness.ENDED)
    if gone and snapshot.age_ns is not None and snapshot.source.kind == "live":
        word = f"{word}, last seen {units.duration(snapshot.age_ns)} ago"
    if snapshot.paused:
        badge = palette.filled("memory") if palette.colour else palette.style("text", bold=True)
        text.append(" PAUSED ", badge)
        text.append(" ")
    state = word if snapshot.paused else f"{glyph} {word}"
    text.append(state, palette.style(hue, bold=True))
    if snapshot.freshness is not Freshness.ENDED:
        text.append(pace(snapshot.speed), palette.style("muted"))
    if snapshot.progress is not None:
        text.append(f" {units.share(snapshot.progress)}", palette.style("muted"))
    return text


def pace(speed: float | None) -> str:
    if speed is None or speed == 1:
        return ""
    if speed < 0.1:
        return f", {units.figure(1 / speed)}× slower"
    return f" at {speed:.2g}× speed" if speed < 10 else f" at {speed:,.0f}× speed"


OLD_NS = 1_000_000_000
"""Age from which it is told: below, it only says when the agent sent last."""
UNSURE = 0.05
"""Of a step: a cost that may be so much more or less is not known yet."""
LEAST_NOTE = 20
"""Cells from which the beginning of a note is better than none."""


class Status(Pane):
    """One line; what fits, most important first."""

    def __init__(self) -> None:
        super().__init__()
        self._message: tuple[str, bool] | None = None
        self._end: Timer | None = None

    def say(self, message: str, failed: bool, seconds: float) -> None:
        """Shows a sentence instead of the facts for so long, or until the next one."""
        if self._end is not None:
            self._end.stop()
        self._message = (message, failed)
        self._end = self.set_timer(seconds, self._say_no_more)
        self.redraw()

    def _say_no_more(self) -> None:
        self._message = None
        self.redraw()

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        if self._message:
            message, failed = self._message
            piece = self.palette.text(message, "alarm" if failed else "good", bold=True)
            piece.truncate(width, overflow="ellipsis")
            return [piece]
        if snapshot.notice:
            notice = self.palette.text(snapshot.notice, "memory", bold=True)
            return [clipped(notice, width)]
        line = joined(status_pieces(snapshot, self.palette), width)
        # While nothing is judged the screen has nothing else to say, and says them in full.
        notes = "; ".join(snapshot.source.notes) if snapshot.estimate is not None else ""
        if notes and width - line.cell_len > LEAST_NOTE:
            line.append(f"   {notes}", self.palette.style("muted"))
        return [clipped(line, width)]


def status_pieces(snapshot: Snapshot, palette: Palette) -> list[Text]:
    source = snapshot.source
    facts = [palette.text(source.kind, "text", bold=True)]
    if source.tier:
        facts[0].append(f"/{source.tier}", palette.style("muted"))
    if snapshot.lost_records:
        lost = f"⚠ {units.count(snapshot.lost_records)} records lost"
        facts.append(palette.text(lost, "alarm", bold=True))
    live = source.kind == "live" and snapshot.freshness is Freshness.LIVE
    if live and (snapshot.age_ns or 0) >= OLD_NS:
        facts.append(pair("last heard", f"{units.duration(snapshot.age_ns)} ago", palette))
    if snapshot.estimate is not None:
        facts.append(pair("traced", window(snapshot), palette))
    if source.kind == "live":
        facts += (cost(snapshot.overhead, palette), *own_use(snapshot.overhead, palette))
    if snapshot.zero_timestamps:
        facts.append(pair("without times", units.count(snapshot.zero_timestamps), palette))
    return facts


def window(snapshot: Snapshot) -> str:
    assert snapshot.estimate is not None
    estimate = snapshot.estimate
    if estimate.observed_share >= 1:
        steps = f" ({phrases.steps_judged(estimate)})" if estimate.steps.count else ""
        return f"all {units.duration(estimate.account.duration_ns)}{steps}"
    traced, run = f"{units.share(estimate.observed_share)} of the run", snapshot.run
    count = run.traced_steps if run is not None else estimate.steps.count
    return f"{units.count(count)} step{'s' * (count != 1)}, {traced}" if count else traced


def cost(overhead: Overhead, palette: Palette) -> Text:
    share, error = overhead.step_cost_share, overhead.step_cost_error_share
    if share is None or (error or 0.0) > UNSURE:
        return pair("cost", units.UNMEASURED, palette)
    tail = "" if error is None else f" ±{units.share(error, 1)}"
    return pair("cost", units.share(share, 1) + tail, palette)


def own_use(overhead: Overhead, palette: Palette) -> list[Text]:
    if overhead.monitor_cpu_share is None:
        return []
    own = f"{units.share(overhead.monitor_cpu_share)} CPU"
    if overhead.monitor_rss_bytes is not None:
        own += f" {units.size(overhead.monitor_rss_bytes)}"
    return [pair("brrrtop", own, palette)]


class KeyLine(Pane):
    """The keys that do something here, the focused pane's first; those that do not fit are left out."""

    def on_mount(self) -> None:
        super().on_mount()
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.redraw())

    def inputs(self, snapshot: Snapshot) -> object:
        return (snapshot.source.tier, snapshot.successor, bool(snapshot.devices))

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        pieces: dict[str, Text] = {}
        bold, muted = self.palette.style("text", bold=True), self.palette.style("muted")
        for node, binding, *_ in self.screen.active_bindings.values():
            traces = binding.action in ("burst", "shapes")
            vain = traces and (snapshot.source.tier != "bursts" or not snapshot.devices)
            if not binding.show or binding.action in pieces or vain:
                continue
            whose = "app" if node is self.app else "screen" if node is self.screen else "focused"
            action = binding.action if "." in binding.action else f"{whose}.{binding.action}"
            click = Style(meta={"@click": action})
            piece = Text.styled(f" {self.palette.keys(sign_of(binding))} ", bold + click)
            pieces[binding.action] = piece.append(f"{binding.description} ", muted + click)
        return [joined(pieces.values(), width, "")]


class TooSmall(Pane):
    """Takes the place of everything else on a terminal below 40×10."""

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        lines = [f"too small: {LEAST_WIDTH}x{LEAST_HEIGHT} needed"]
        if snapshot.estimate is not None:
            lines.insert(0, phrases.badge(snapshot))
        return [Text(line[:width]) for line in lines]
