"""What stands above every screen: what holds the run back, what would help, where its time goes."""

from collections.abc import Mapping

from msgspec.structs import replace
from rich.style import Style
from rich.text import Text

from brrrtop.model.account import Account
from brrrtop.model.estimate import Estimate, Regime
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.text import phrases, units
from brrrtop.text.headline import recoverable, remedy, sure, symptom
from brrrtop.tui.palette import MARKS, Palette
from brrrtop.tui.parts import alarms, booked, figures, reason, split_parts
from brrrtop.tui.renderables.line import bar, clipped, hanging, joined, paragraph, sided, wrapped
from brrrtop.tui.widgets.pane import Fitted, Pane
from collectors.vocabulary import Metric

_WAITING = "waiting "
LINES = 2
NOW_FROM_NS = 11 * 10**9
"""Before, the last seconds are the run."""
OTHER = "overhead"


class Headline(Fitted):
    """The verdict as a badge and a sentence; below it what would make the run faster."""

    most = 4

    def inputs(self, snapshot: Snapshot) -> object:
        return (
            symptom(snapshot) if snapshot.estimate is not None else why_nothing(snapshot),
            remedy(snapshot),
            snapshot.estimate,
            snapshot.source,
            snapshot.freshness,
        )

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        if snapshot.estimate is None:
            return nothing_yet(snapshot, self.palette, width, max(1, min(height, LINES)))
        low = self.screen.has_class("-low") or self.screen.has_class("-flat")
        return headline(snapshot, self.palette, width, LINES if low else height)


def headline(snapshot: Snapshot, palette: Palette, width: int, height: int) -> list[Text]:
    """The badge, beside it the sentence, below it the gain; at the right how sure. Of both sentences the
    begin is there."""
    estimate = snapshot.estimate
    assert estimate is not None
    badge, words = badge_of(snapshot, palette), symptom(snapshot) or phrases.because(estimate)
    share, _, word = sure(snapshot).partition(" ")
    right = palette.text(share, "text", bold=True).append(
        f" {word}" * bool(word), palette.style("muted")
    )
    warming = " (warming up: shown, not judged)" if estimate.steps.warming_up else ""
    bold, good = palette.style("text", bold=True), palette.style("good", bold=True)
    gain = remedy(snapshot)
    room = width - badge.cell_len - right.cell_len - 2
    if room < 24:  # the sentence has lines of its own
        lines = [sided(badge, right, width), *paragraph(words + warming, width, bold)]
        below = paragraph(gain, width, good)
    else:
        first, *rest = wrapped(words + warming, room)
        indent = " " * badge.cell_len
        lines = [sided(badge.append(first, bold), right, width)]
        lines += [Text(indent, no_wrap=True).append(line, bold) for line in rest]
        below = hanging(indent, gain, width, good, good)
    room = max(1, height - len(below))
    if len(lines) > room:
        lines[room - 1] = clipped(lines[room - 1].append(" …"), width)
    return [*lines[:room], *below][:height]


def badge_of(snapshot: Snapshot, palette: Palette) -> Text:
    estimate = snapshot.estimate
    assert estimate is not None
    regime, words = estimate.regime, phrases.badge(snapshot)
    loop = phrases.loop_shown(snapshot)
    hue = "good" if words == phrases.FINE else loop[1] if loop else regime.value
    plain = not palette.colour or hue == Regime.MIXED.value
    style = palette.style("text", bold=True) if plain else palette.filled(hue)
    text = Text(no_wrap=True).append(
        f" {words} ", style
    )  # a style of its own, not that of the line
    text.stylize("bold")
    return text.append("  ")


def nothing_yet(snapshot: Snapshot, palette: Palette, width: int, height: int) -> list[Text]:
    """What is waited for, stands in the way or came to an end: on as many lines as there are."""
    badge = "ENDED " if snapshot.freshness is Freshness.ENDED else "WAITING "
    words = why_nothing(snapshot)
    flowed = wrapped(words.removeprefix(_WAITING), max(10, width - len(badge)))
    flowed[height - 1 :] = [" ".join(flowed[height - 1 :])] if len(flowed) >= height else []
    lines = []
    for i, line in enumerate(flowed):
        lead = badge if i == 0 else " " * len(badge)
        text = palette.text(lead, "text", bold=True)
        lines.append(clipped(text.append(line, palette.style("muted")), width))
    return lines


def why_nothing(snapshot: Snapshot) -> str:
    """What the headline says while nothing is judged."""
    source, run = snapshot.source, snapshot.run
    known = run is not None and (run.unseen is not None or works_on_cpu(snapshot))
    if known or (not source.notes and source.tier == "nvml"):
        return phrases.unjudged(snapshot)
    return reason(source) or "for the first whole window of device activity"


def works_on_cpu(snapshot: Snapshot) -> bool:
    """Whether it trains, and no GPU has been seen at it."""
    run, seen = snapshot.run, snapshot.devices or Metric.MEMORY_USED_BYTES in snapshot.gauges
    if run is None or run.train is None or snapshot.estimate is not None or seen:
        return False
    return run.unseen is None and run.steps > 0


def fits_whole(note: str, width: int) -> bool:
    """Whether the headline has room for all of a note, so that nothing else need repeat it."""
    return len(wrapped(note.removeprefix(_WAITING), max(10, width - len("WAITING ")))) <= LINES


class RunBars(Fitted):
    most = 2

    def show(self, snapshot: Snapshot) -> None:
        self.display = bool(accounts(snapshot))
        super().show(snapshot)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        words = {"unknown": "works on the CPU"} if works_on_cpu(snapshot) else {}
        syncs = phrases.syncs_come_first(snapshot)
        return [
            run_bar(name, after_syncs(account) if syncs else account, self.palette, width, words)
            for name, account in accounts(snapshot)
        ][:height]


def after_syncs(account: Account) -> Account:
    """With launches that are late since values are read back among the waits for that."""
    idle_ns = account.idle_ns
    both_ns = idle_ns["sync"] + idle_ns["launch"]
    return replace(account, idle_ns={**idle_ns, "sync": both_ns, "launch": 0})


def accounts(snapshot: Snapshot) -> list[tuple[str, Account]]:
    run, estimate = snapshot.run, snapshot.estimate
    if run is None:
        return [("window", estimate.account)] if estimate is not None else []
    ended = snapshot.freshness is Freshness.ENDED or run.duration_ns < NOW_FROM_NS
    now = [("now", run.now.account)] if run.now is not None and not ended else []
    return [(name, one) for name, one in (("run", run.account), *now) if one.duration_ns]


def run_bar(
    name: str,
    account: Account,
    palette: Palette,
    width: int,
    words: Mapping[str, str] | None = None,
) -> Text:
    """`run   2:14  ███ waits for data 82% ███▕ launches 3% ▕█ memory 9% █`.

    Args:
        words: What buckets are called here, where not as elsewhere.
    """
    text = palette.text(f"{name:<7}", "muted")
    text.append(f"{units.clock(account.duration_ns):>7} ", palette.style("text", bold=True))
    shares, words = large_parts(account), {OTHER: "other", **(words or {})}
    labels = [
        (f"{words[bucket]} {units.share(share)}",)
        if bucket in words
        else phrases.labels(bucket, share)
        for bucket, share in shares
    ]
    return text.append_text(bar(shares, palette, width - text.cell_len, labels))


def large_parts(account: Account) -> list[tuple[str, float]]:
    """Its buckets, most time first; what holds it back for less than anybody would read is one, the last."""
    every = sorted(((one.bucket, one.share) for one in booked(account)), key=lambda one: -one[1])
    small = [one for one in every if MARKS[one[0]].hue == OTHER and one[1] < phrases.LEAST_SHARE]
    rest = sum(share for _, share in small)
    return [one for one in every if one not in small] + ([(OTHER, rest)] if rest else [])


class Figures(Pane):
    def inputs(self, snapshot: Snapshot) -> object:
        won = recoverable(snapshot, self.app.settings)
        return (figures(snapshot, won), alarms(snapshot))

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        palette = self.palette
        pieces = [palette.text(f"⚠ {words}", "alarm", bold=True) for words in alarms(snapshot)]
        for value, unit in figures(snapshot, recoverable(snapshot, self.app.settings)):
            piece = palette.text(value, "text", bold=True)
            pieces.append(piece.append(unit, palette.style("muted")))
        return [joined(pieces, width, " · " if not palette.ascii else " | ")] if pieces else []


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
    number = estimate.device.device_id
    click = Style(meta={"@click": f"app.show_device({number})"})
    text = Text(no_wrap=True)
    text.append("▸" if chosen else " ", palette.style("good", bold=True))
    mixed = estimate.regime is Regime.MIXED
    badge = palette.style("text", bold=True) if mixed else palette.filled(estimate.regime.value)
    text.append(f"GPU {number}", badge + click)
    name, share = max(split_parts(estimate.split), key=lambda part: part[1])
    return text.append(f" {name} {units.share(share)}", palette.style(name, bold=chosen))
