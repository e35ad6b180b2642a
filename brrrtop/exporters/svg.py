"""Pictures of a report as SVG: no script, no font, no file beside it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from brrrtop.model.estimate import Estimate, KernelRow
from brrrtop.model.host_tables import MemoryUse
from brrrtop.model.snapshot import StepPicture
from brrrtop.text import causes, phrases, units
from collectors.printable import printable

WIDTH = 960
OVERHEAD = ("overhead", "underfilled", "comm", "copy")
_LEFT = 110
_MOST_BARS = 1_500
"""Of one lane: what is drawn over it anyway is left out."""
_LANE_HEIGHT, _LANE_GAP = 26, 8


def hue(kind: str) -> str:
    """One for all overhead: the words beside it, and the pointer, tell which."""
    return "idle" if kind.startswith(("idle", "exposed")) or kind in OVERHEAD else kind


def bar(parts: Sequence[tuple[str, float]], height: int = 34) -> str:
    """One bar of shares, each part named where it is wide enough."""
    return _svg(height, _parts(parts, WIDTH, height))


def _parts(parts: Sequence[tuple[str, float]], whole: float, height: int) -> Iterator[str]:
    x = 0.0
    for kind, share in parts:
        width, words = share * whole, f"{causes.name(kind)} {units.share(share)}"
        if width > 0:
            yield _rect(x, 0, width, height, hue(kind), words)
        if width > max(90, 7 * len(words)):
            yield _text(x + 8, height / 2 + 5, words, "on")
        x += width


def card(lines: Sequence[str], parts: Sequence[tuple[str, float]], style: str) -> str:
    """A slip of lines as they are, each as wide as it is, below a bar of shares; a file of its own."""
    width, high, top = 504, 19, 58 if parts else 14
    height = top + high * len(lines) + 12
    mono = (
        ".brrrtop text{fill:var(--text);font:13px ui-monospace,DejaVu Sans Mono,monospace;"
        "white-space:pre}.brrrtop text.on{fill:var(--on)}"
    )
    rows = "".join(
        _text(16, top + high * (at + 1) - 5, line.replace("-" * len(line), "─" * len(line)))
        for at, line in enumerate(lines)
    )
    inside = "".join(_parts(parts, width - 32, 34))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="brrrtop" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img"><style>{style}{mono}</style>'
        f'<rect width="{width}" height="{height}" rx="8" fill="var(--ground)" stroke="var(--rule)"/>'
        f'<g transform="translate(16 16)">{inside}</g><g xml:space="preserve">{rows}</g></svg>'
    )


def account(estimate: Estimate) -> str:
    whole = estimate.account.duration_ns
    rows = sorted(((ns, key) for key, ns in phrases.buckets(estimate.account) if ns), reverse=True)
    drawn = []
    for place, (ns, key) in enumerate(rows):
        y = place * 24
        drawn.append(_text(0, y + 15, causes.name(key)))
        drawn.append(_rect(170, y + 2, max(1.0, ns / whole * (WIDTH - 370)), 17, hue(key), key))
        drawn.append(_text(WIDTH - 190, y + 15, f"{units.share(ns / whole, 1)}"))
        drawn.append(_text(WIDTH - 100, y + 15, units.duration(ns)))
    return _svg(24 * len(rows), drawn)


def step(picture: StepPicture) -> str:
    span, scale = picture.span, (WIDTH - _LEFT) / max(1, picture.span.duration_ns)
    drawn = []
    for place, lane in enumerate(picture.lanes):
        y = place * (_LANE_HEIGHT + _LANE_GAP)
        drawn.append(_text(0, y + 18, lane.name))
        bars = lane.bars
        rows: Iterable[int] = range(len(bars))
        if len(bars) > _MOST_BARS:
            lengths = bars.ends_ns - bars.starts_ns
            rows = sorted((-lengths).argsort(kind="stable")[:_MOST_BARS].tolist())
        for row in rows:
            low = max(0, int(bars.starts_ns[row]) - span.t0_ns)
            high = min(span.duration_ns, int(bars.ends_ns[row]) - span.t0_ns)
            if high <= low:
                continue
            kind = picture.kinds[bars.kinds[row]]
            name = picture.names[bars.name_ids[row]] if bars.name_ids[row] >= 0 else ""
            label = f"{name} {kind.replace('idle_', 'idle: ')} {units.duration(high - low)}".strip()
            width = max(0.4, (high - low) * scale)
            drawn.append(_rect(_LEFT + low * scale, y, width, _LANE_HEIGHT, hue(kind), label))
    y = len(picture.lanes) * (_LANE_HEIGHT + _LANE_GAP)
    drawn.append(f'<line class="rule" x1="{_LEFT}" y1="{y}" x2="{WIDTH}" y2="{y}"/>')
    for tick in range(6):
        x = _LEFT + tick * (WIDTH - _LEFT) / 5
        anchor = ("start", *["middle"] * 4, "end")[tick]
        drawn.append(_text(x, y + 18, units.duration(span.duration_ns * tick / 5), "", anchor))
    return _svg(y + 24, drawn)


def roofline(estimate: Estimate) -> str | None:
    """Kernels under the device's roofs, sized by share; None where no kernel's place is known."""
    roofs = estimate.roofs
    placed = [row for row in estimate.kernels if row.flop_per_s and row.bytes_per_s]
    if roofs is None or not roofs.bytes_per_s or not placed or not roofs.flop_per_s:
        return None
    height = 330
    intensities = [_intensity(row) for row in placed]
    low_x, high_x = math.log10(min(0.1, *intensities)), math.log10(max(1e3, *intensities))
    top = math.log10(max(roofs.flop_per_s.values()) * 1.6)
    low_y = min(top - 3, math.log10(min(row.flop_per_s or 1 for row in placed)) - 0.2)

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = _LEFT + (math.log10(intensity) - low_x) / (high_x - low_x) * (WIDTH - _LEFT - 10)
        return x, height - 26 - (math.log10(rate) - low_y) / (top - low_y) * (height - 36)

    used = {row.precision for row in placed}
    drawn = []
    for precision, peak in sorted(roofs.flop_per_s.items(), key=lambda one: -one[1]):
        if precision in used:
            ridge = peak / roofs.bytes_per_s
            points = [at(10**low_x, max(roofs.bytes_per_s * 10**low_x, 10**low_y))]
            points += [at(ridge, peak), at(10**high_x, peak)]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            drawn.append(f'<polyline class="roof" points="{path}"/>')
            label = f"{precision} {units.rate(peak, 'FLOP/s')}"
            drawn.append(_text(WIDTH - 10, points[-1][1] - 4, label, "", "end"))
    for row in placed:
        x, y = at(_intensity(row), row.flop_per_s or 1.0)
        radius = 3 + 22 * math.sqrt(row.share)
        drawn.append(
            _circle(x, y, radius, hue(row.side.value), f"{row.name} {units.share(row.share)}")
        )
    drawn.append(_text(_LEFT, height - 6, "FLOP per byte of DRAM traffic, logarithmic"))
    drawn.append(_text(0, 16, "FLOP/s"))
    return _svg(height, drawn)


def _intensity(row: KernelRow) -> float:
    return (row.flop_per_s or 1.0) / (row.bytes_per_s or 1.0)


def memory(use: MemoryUse) -> str:
    height, first = 150, use.times_ns[0]
    length = max(1, use.times_ns[-1] - first)
    points = [
        (
            _LEFT + (time_ns - first) / length * (WIDTH - _LEFT),
            height - 22 - used / max(1, use.peak_bytes) * (height - 44),
        )
        for time_ns, used in zip(use.times_ns, use.allocated_bytes, strict=True)
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    floor = height - 22
    drawn = [
        f'<polygon class="memory" points="{_LEFT},{floor} {path} {WIDTH},{floor}"/>',
        _text(0, 26, units.size(use.peak_bytes)),
        _text(0, floor, "0"),
        _text(_LEFT, height - 4, "0"),
        _text(WIDTH, height - 4, units.duration(length), "", "end"),
    ]
    return _svg(height, drawn)


def _svg(height: float, drawn: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{"".join(drawn)}</svg>'


def _rect(x: float, y: float, width: float, height: float, css: str, title: str) -> str:
    shape = f'x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}"'
    return f'<rect class="{escape(css)}" {shape}><title>{_clean(title)}</title></rect>'


def _circle(x: float, y: float, radius: float, css: str, title: str) -> str:
    shape = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"'
    return f'<circle class="{escape(css)}" {shape}><title>{_clean(title)}</title></circle>'


def _clean(text: str) -> str:
    """As XML may carry it: names are other people's."""
    return escape(printable(text))


def _text(x: float, y: float, text: str, css: str = "", anchor: str = "start") -> str:
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{css}" {where}>{_clean(text)}</text>'
