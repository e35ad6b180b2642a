"""How fast it trains, and whether the host runs ahead of the GPU."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.account import IDLE_CAUSES
from brrrtop.model.estimate import Estimate, Steps
from brrrtop.model.snapshot import Snapshot
from brrrtop.model.tables import percentile
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import jitter
from brrrtop.tui.renderables.line import pair, rows
from brrrtop.tui.widgets.pane import Pane

SOURCES = {
    "marks": "from the optimizer",
    "annotations": "from annotations",
    "period": "from the kernels' period",
}


UNEVEN = 0.05
"""The mean step is told beside the median one, which parts of a step do not add up to, from so much of a
difference on."""
LEAST_STEPS = 20
"""Of fewer the slowest hundredth says nothing."""
IN_TIME_NS = 10_000
"""A launch this long before its kernel starts hides its own cost (`model.Launch`)."""

WAITS = frozenset(IDLE_CAUSES) - {"device", "other_process", "unknown"}
"""Causes of idle time for which the host is late."""
AHEAD = ("host runs ahead", "good")
AHEAD_BETWEEN = ("host ahead between waits", "memory")


class Pace(Pane):
    def inputs(self, snapshot: Snapshot) -> object:
        return (snapshot.estimate, snapshot.history)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        if snapshot.estimate is None:
            return []
        estimate, palette = snapshot.estimate, self.palette
        host, *leads = launch_pieces(estimate, palette)
        pieces = [step_piece(estimate, palette), host, *leads, *tail_pieces(snapshot, palette)]
        slowest = jitter(estimate)
        if slowest is not None:
            more = f"+{units.share(max(0.0, slowest))}".replace("+<", "<+")
            pieces.append(pair("slowest", more, palette, bold=True))
        if estimate.host_cause_known is not None:
            pieces.append(
                pair("idle explained", units.share(estimate.host_cause_known), palette, bold=True)
            )
        if estimate.steps.step_ns is not None:
            label = f"steps {_provenance(estimate.steps)}"
            pieces.append(palette.text(label, "muted"))
        return rows(pieces, width, height, "  ")


def tail_pieces(snapshot: Snapshot, palette: Palette) -> list[Text]:
    """The median and the slow ones of all steps in the history; nothing of too few."""
    steps = sorted(ns for point in snapshot.history for ns in point.steps_ns)
    if len(steps) < LEAST_STEPS:
        return []
    return [
        pair(name, units.duration(percentile(steps, share)), palette, bold=True)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]


def step_piece(estimate: Estimate, palette: Palette) -> Text:
    steps = estimate.steps
    text = Text()
    if steps.warming_up:
        text.append("warming up ", palette.style("memory", bold=True))
    text.append("step ", palette.style("muted"))
    if steps.step_ns is None:
        return text.append(units.UNMEASURED).append(" no steps seen", palette.style("muted"))
    text.append(units.duration(steps.step_ns), palette.style("text", bold=True))
    mean_ns = steps.run_mean_ns or estimate.mean_step_ns
    if not mean_ns:
        return text
    if abs(mean_ns - steps.step_ns) >= UNEVEN * steps.step_ns:
        text.append(" mean ", palette.style("muted"))
        text.append(units.duration(round(mean_ns)), palette.style("text", bold=True))
    return text.append(f" ({units.figure(1e9 / mean_ns)}/s)", palette.style("muted"))


def _provenance(steps: Steps) -> str:
    where = SOURCES.get(steps.source or "", steps.source or "")
    doubt = "" if steps.confidence >= 0.7 else f", {units.share(steps.confidence)} sure"
    return f"{where}{doubt}"


def launch_pieces(estimate: Estimate, palette: Palette) -> list[Text]:
    """Who waits for whom, and for how much of the kernel time (rho); the lead, and how often it
    is too short: one weighs kernels by their time, the other counts them, and both say so."""
    launch = estimate.launch
    if launch.lead_p50_ns is None:
        text = palette.text("launch lead ", "muted").append(units.UNMEASURED)
        return [text.append(" no launch records", palette.style("muted"))]
    lead = pair("lead", units.duration(launch.lead_p50_ns), palette, bold=True)
    late = pair("late", f"{units.share(launch.share_under_10us)} of launches", palette, bold=True)
    if launch.rho is None:
        return [lead, late]
    words, hue = word = host_word(launch.lead_p50_ns, launch.rho, _wait_share(estimate))
    host = palette.text(words, hue, bold=True)
    ahead = "" if word in (AHEAD, AHEAD_BETWEEN) else "ahead "
    host.append(f" ({ahead}{units.share(launch.rho)} by time)", palette.style("muted"))
    return [host, lead, late]


def _wait_share(estimate: Estimate) -> float:
    """Share of the wall time in which the GPU waited for the host."""
    account = estimate.account
    late_ns = sum(ns for cause, ns in account.idle_ns.items() if cause in WAITS)
    return late_ns / account.duration_ns if account.duration_ns else 0.0


def host_word(lead_p50_ns: int, rho: float, waited: float = 0.0) -> tuple[str, str]:
    """Whether the host runs ahead, by most launches and by most of the kernel time; its hue.

    Args:
        waited: Share of the wall time in which the GPU waited for the host: a host that is ahead
            once it has its batch, and away for most of the time, is no host that runs ahead.
    """
    most_launches, most_time = lead_p50_ns >= IN_TIME_NS, rho >= 0.5
    if most_launches and most_time:
        return AHEAD if waited < 0.5 else AHEAD_BETWEEN
    if most_launches or most_time:
        return "host keeps up at times", "memory"
    return "host is late", "overhead"
