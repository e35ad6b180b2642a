"""What brrrtop predicts for each edit beside what was measured: the table, the bars, the plot.

    python -m benchmarks.gains.report [RESULTS.jsonl ...] [--recordings DIR] [--svg FILE] [--page FILE]

Without arguments it speaks of what is in `benchmarks/gains/measured`. DIR has NAME.brrr per model.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.gains.loops import half_of
from benchmarks.gains.timing import STEADY, typical_ms

LIMITS = {
    "median": 0.05,
    "p90": 0.12,
    "inside": 0.80,
    "advised": 0.90,
    "healthy": 0.10,
    "waste": 0.05,
}
DEVICE_BOUND = 0.95
"""Busy share of the recorded loop from which a disturbed host does not matter, where the base loop was not
measured twice."""
PACE = 0.05
"""How far a loop that was recorded live may be from the pace at which its edits were measured. Beyond, it is
another host's loop of which something is predicted."""
WORTH = 0.10
"""A saving from which a model has a best edit at all."""
NEAR = 0.05
LATE = "time was up"
LEAST_GAIN = 0.005
"""Smaller ones say nothing of their ratio."""
OFFERS = {"double-batch"}
"""Beside the list: it changes the training."""
NOT_PREDICTED = {"pinned-same-stream"}


@dataclass
class Prediction:
    """What was said of one recording; savings are shares of the time per sample."""

    edits: dict[str, tuple[float, float, float]]
    """saves, low, high"""
    advised: list[str] = field(default_factory=list)
    """Edits of the advice, first things first."""
    healthy: bool = False
    waste: set[str] = field(default_factory=set)
    """Edits that a person is told not to try."""
    busy: float = 0.0
    """Share of the recorded time that the device was at work."""
    step_ms: float | None = None
    """Of the loop that was recorded live, between looks; None: it was profiled."""


@dataclass
class Measured:
    """What came of one model's edits."""

    saves: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    step_ms: float = 0.0
    drift: float | None = None
    """How far the base loop's second measurement is from its first; where it was measured around each
    edit, the farthest of those that count."""
    paired: bool = False
    unsteady: dict[str, float] = field(default_factory=dict)
    """Edits around which the base loop was not steady, and how far apart it was."""


Pairs = dict[str, tuple[Measured, Prediction]]


def rows_of(file: Path) -> list[dict[str, Any]]:
    """A JSON object a line; those kept here are compressed."""
    with lzma.open(file, "rt") if file.suffix == ".xz" else file.open() as lines:
        return [json.loads(line) for line in lines]


def measured(files: Iterable[Path]) -> dict[str, Measured]:
    """Savings by model and edit. Later rows win; each is compared with the base loop of its own file: where
    that was measured around each edit with those two, and then with nothing of other files."""
    result: dict[str, Measured] = defaultdict(Measured)
    for file in files:
        base: dict[str, dict[str, Any]] = {}
        rows = rows_of(file)
        good = [row for row in rows if "failed" not in row]
        for wanted in ("base-again", "base"):  # the second stands in where the first was lost
            base |= {row["model"]: row for row in good if row["part"] == wanted}
        paired = {row["model"] for row in good if "base_ms" in row}
        result |= {name: Measured(paired=True) for name in paired if not result[name].paired}
        again = {row["model"]: row for row in good if row["part"] == "base-again"}
        for row in rows:
            name, part = row.get("model"), row["part"]
            if name is None or part in ("trace", "live", "all", "pack"):
                continue
            model = result[name]
            if "failed" in row:
                if part not in model.saves:
                    model.failed[part] = row["failed"]
            elif part == "base":
                model.step_ms = typical_ms(row)
            elif part == "base-again":
                model.step_ms = typical_ms(base[name])
                if name not in paired:
                    model.drift = typical_ms(row) / typical_ms(base[name]) - 1
            elif "base_ms" in row:
                if "compile" in part and "own_process" not in row and name in again:
                    moved = row["base_ms"] / typical_ms(again[name]) - 1
                    row["drift"] = max(row["drift"], moved, key=abs)
                _take(model, row, base.get(name))
            elif name in base:
                _take(model, row, base[name])
    return dict(result)


def _take(model: Measured, row: dict[str, Any], base: dict[str, Any] | None) -> None:
    """What an edit saved, by the time per sample."""
    edit = row["part"]
    model.failed.pop(edit, None)
    if abs(row.get("drift", 0.0)) > STEADY:
        if edit not in model.saves:
            model.unsteady[edit] = row["drift"]
        return
    if "drift" in row:
        model.drift = max(model.drift or 0.0, abs(row["drift"]))
    batch = row.get("base_batch") or (base or row)["batch"]
    base_ms = row["base_ms"] if "base_ms" in row else typical_ms(base or row)
    model.unsteady.pop(edit, None)
    model.step_ms = model.step_ms or base_ms
    model.saves[edit] = 1 - typical_ms(row) / row["batch"] / (base_ms / batch)


def predict(file: Path) -> Prediction:
    """By `brrrtop analyze FILE --json`.

    Raises:
        RuntimeError: It failed; its own words.
    """
    command = [sys.executable, "-m", "brrrtop", "analyze", str(file), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    return prediction(json.loads(done.stdout))


def prediction(report: dict[str, Any]) -> Prediction:
    """Of a report by the JSON contract."""
    rows = {row["edit"]: row for row in report.get("whatif") or ()}
    whole = run_per_step(rows.values())
    edits = {
        name: (saves / whole, row["saves_low"] / whole, row["saves_high"] / whole)
        for name, row in rows.items()
        if (saves := row.get("saves")) is not None
    }  # fmt: skip
    text = [advice["id"] for advice in report.get("advisories") or ()]
    by_id: dict[str, list[str]] = defaultdict(list)
    for name, row in rows.items():
        by_id[row.get("advisory") or name].append(name)
    advised = [edit for advice in text for edit in by_id.get(advice, ())]
    wasted = " ".join(advice["waste"] for advice in report.get("advisories") or ())
    waste = {name for name in edits if f"{name} (" in wasted}
    busy = (report.get("busy_ns") or 0) / (report["window"]["duration_ns"] or 1)
    live = report["window"].get("steps_source") == "marks"
    step_ms = report["window"]["step_ms"] if live else None
    return Prediction(edits, advised, "none-healthy" in text, waste, busy, step_ms)


def run_per_step(rows: Iterable[dict[str, Any]]) -> float:
    """What a gain of the run is of the step's, which was measured."""
    ratios = [
        row["saves"] / row["saves_of_step"]
        for row in rows
        # Of a profiler's trace `saves` is of the step without it.
        if row.get("saves_recorded") is None
        and row.get("saves_of_step")
        and abs(row["saves"]) > LEAST_GAIN
    ]
    return statistics.median(ratios) if ratios else 1.0


def is_off_pace(model: Measured, text: Prediction) -> bool:
    """Whether another host's loop was recorded than the one whose edits were measured."""
    return bool(text.step_ms) and abs((text.step_ms or 0) / model.step_ms - 1) > PACE


def is_steady(model: Measured, text: Prediction) -> bool:
    """Whether what an edit saved can be told."""
    if not model.saves or is_off_pace(model, text):
        return False
    if model.drift is None:
        return text.busy >= DEVICE_BOUND
    return abs(model.drift) <= STEADY


def errors(pairs: Pairs) -> list[tuple[float, str, str, float, tuple[float, float, float]]]:
    """(predicted − measured, model, edit, measured, predicted) of steady models, where there are both."""
    return [
        (text.edits[edit][0] - truth, name, edit, truth, text.edits[edit])
        for name, (model, text) in pairs.items()
        if is_steady(model, text)
        for edit, truth in model.saves.items()
        if edit in text.edits
    ]


def bars(pairs: Pairs) -> dict[str, float | None]:
    """Each figure that has a limit; None: nothing to judge."""
    result = errors(pairs)
    sizes = sorted(abs(error) for error, *_ in result)
    inside = [low <= truth <= high for *_, truth, (_, low, high) in result]
    advised, healthy, waste = [], 0, 0
    for model, text in pairs.values():
        if not is_steady(model, text):
            continue
        wins = {
            e: s for e, s in model.saves.items() if "+" not in e and e not in NOT_PREDICTED | OFFERS
        }
        best = max(wins.values(), default=0.0)
        if best >= WORTH:
            near = {edit for edit, saves in wins.items() if saves >= best - NEAR}
            # What could not be measured, for want of time or of a steady host, says nothing of the order.
            tried = [
                edit
                for edit in text.advised
                if edit in wins or model.failed.get(edit, LATE) != LATE
            ]
            advised.append(bool(near & set(tried[:2])))
            healthy += text.healthy
        waste += sum(model.saves.get(edit, 0.0) >= LIMITS["waste"] for edit in text.waste)
    return {
        "median": statistics.median(sizes) if sizes else None,
        "p90": sizes[min(len(sizes) - 1, round(0.9 * (len(sizes) - 1)))] if sizes else None,
        "inside": statistics.mean(inside) if inside else None,
        "advised": statistics.mean(advised) if advised else None,
        "healthy": float(healthy),
        "waste": float(waste),
    }


def bars_text(pairs: Pairs, halves: tuple[str, ...] = ("tune", "test", "fresh")) -> str:
    """A row for each part, without parts for all: the figure, and whether it holds."""
    wording = {
        "median": "median error, points",
        "p90": "90th percentile",
        "inside": "inside the range",
        "advised": "best edit among the first two",
        "healthy": 'false "healthy" (≥ 10 % was available)',
        "waste": 'false "waste" (≥ 5 % was available)',
    }
    lines = ["| part | models | edits | " + " | ".join(wording.values()) + " |", "|---" * 9 + "|"]
    parts = {half: {n: p for n, p in pairs.items() if half_of(n) == half} for half in halves}
    for part, mine in (parts or {"all": pairs}).items():
        mine = {name: both for name, both in mine.items() if is_steady(*both)}
        cells = [f"{part} | {len(mine)} | {len(errors(mine))}"]
        for key, value in bars(mine).items():
            if value is None:
                cells.append("–")
            elif key in ("healthy", "waste"):
                cells.append(f"{value:.0f} {'✓' if not value else '✗'}")
            else:
                good = value <= LIMITS[key] if key in ("median", "p90") else value >= LIMITS[key]
                cells.append(f"{100 * value:.1f} % {'✓' if good else '✗'}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table(pairs: Pairs) -> str:
    """A row a model, a column an edit: measured → predicted, in per cent of the time per sample."""
    edits = sorted(
        {e for model, _ in pairs.values() for e in (*model.saves, *model.failed)}
        - {"base", "base-again"}
    )
    lines = [
        "| model | part | step, ms | " + " | ".join(edits) + " |",
        "|---|---|--:" + "|--:" * len(edits) + "|",
    ]
    for name, (model, text) in sorted(pairs.items()):
        cells = []
        for edit in edits:
            truth, guess = model.saves.get(edit), text.edits.get(edit)
            left = (
                f"{100 * truth:.0f}"
                if truth is not None
                else "failed"
                if model.failed.get(edit, LATE) != LATE
                else ""
            )
            cells.append(f"{left} → {100 * guess[0]:.0f}" if guess and truth is not None else left)
        lines.append(
            f"| {name} | {half_of(name)} | {model.step_ms:.1f} | " + " | ".join(cells) + " |"
        )
    return "\n".join(lines)


def misses(pairs: Pairs) -> str:
    """Every prediction that is more than 12 points off, and every edit that failed, by name."""
    far = sorted((e for e in errors(pairs) if abs(e[0]) > LIMITS["p90"]), key=lambda e: -abs(e[0]))
    lines = [
        f"- {name}, {edit}: measured {100 * truth:.0f} %, predicted {100 * text[0]:.0f} % "
        f"({100 * text[1]:.0f} to {100 * text[2]:.0f} %)"
        for _, name, edit, truth, text in far
    ]
    for name, (model, text) in sorted(pairs.items()):
        if is_off_pace(model, text):
            lines.append(
                f"- {name} is not judged: recorded at {text.step_ms:.1f} ms, measured at {model.step_ms:.1f} ms"
            )
            continue
        if model.drift is not None and abs(model.drift) > STEADY:
            lines.append(
                f"- {name} is not judged: the base loop drifted by {100 * model.drift:+.0f} %"
            )
            continue
        late = [e for e, why in model.failed.items() if why == LATE and "base" not in e]
        lines += [f"- {name}, no time was left for {', '.join(late)}"] * bool(late)
        lines += [
            f"- {name}, {edit} failed: {why[:120]}"
            for edit, why in model.failed.items()
            if why != LATE
        ]
        lines += [
            f"- {name}, {edit} is not judged: around it the base loop drifted by {100 * drift:+.0f} %"
            for edit, drift in model.unsteady.items()
        ]
    return "\n".join(lines)


COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
           "#bcbd22", "#17becf", "#393b79", "#637939", "#843c39", "#7b4173")  # fmt: skip


def plot(pairs: Pairs, side: int = 520, low: float = -0.6, high: float = 1.0) -> str:
    """An SVG: measured to the right, predicted upwards; full dots are of models that nothing was tuned on."""
    edge = 60

    def at(value: float) -> float:
        return round(edge + side * (min(max(value, low), high) - low) / (high - low), 1)

    def up(value: float) -> float:
        return round(side + 2 * edge - at(value), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {side + 270} {side + 2 * edge}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<polygon fill="#eee" points="{at(low)},{up(low + 0.05)} {at(high - 0.05)},{up(high)} '
        f'{at(high)},{up(high)} {at(high)},{up(high - 0.05)} {at(low + 0.05)},{up(low)} {at(low)},{up(low)}"/>',
        f'<path stroke="#888" d="M{at(low)} {up(low)}L{at(high)} {up(high)}"/>',
        f'<text x="{at(0.2)}" y="{side + 2 * edge - 15}" text-anchor="middle">measured saving, %</text>',
        f'<text transform="rotate(-90 15 {up(0.2)})" x="15" y="{up(0.2)}" text-anchor="middle">predicted saving, %</text>',
    ]
    for tick in range(round(10 * low), round(10 * high) + 1, 2):
        value = tick / 10
        parts.append(
            f'<path stroke="#ddd" d="M{at(value)} {up(low)}V{up(high)}M{at(low)} {up(value)}H{at(high)}"/>'
        )
        parts.append(
            f'<text x="{at(value)}" y="{up(low) + 16}" text-anchor="middle">{100 * value:.0f}</text>'
        )
        parts.append(
            f'<text x="{at(low) - 6}" y="{up(value) + 4}" text-anchor="end">{100 * value:.0f}</text>'
        )
    rows: dict[str, list[str]] = defaultdict(list)
    ranges: dict[str, str] = defaultdict(str)
    for _, name, edit, truth, (guess, down, top) in sorted(errors(pairs), key=lambda row: row[1:3]):
        fill = ' fill="#fff"' if half_of(name) != "fresh" else ""
        says = f"{name}, {edit}: measured {100 * truth:.0f} %, predicted {100 * guess:.0f} %"
        rows[edit].append(
            f'<circle cx="{at(truth)}" cy="{up(guess)}" r="3.5"{fill}><title>{escape(says)}</title></circle>'
        )
        ranges[edit] += f"M{at(truth)} {up(down)}V{up(top)}"
    colours = dict(zip(sorted(rows), 2 * COLOURS, strict=False))
    for edit, colour in colours.items():
        parts.append(f'<path stroke="{colour}" stroke-opacity=".25" d="{ranges[edit]}"/>')
    for edit, colour in colours.items():
        parts += [f'<g stroke="{colour}" fill="{colour}">', *rows[edit], "</g>"]
    for line, (edit, colour) in enumerate(colours.items()):
        y = edge + 18 * line
        parts.append(f'<circle cx="{side + edge + 20}" cy="{y}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{side + edge + 30}" y="{y + 4}">{escape(edit)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def pair(
    results: dict[str, Measured],
    recordings: Path,
    predicts: Callable[[Path], Prediction],
) -> Pairs:
    """Each model that was measured and recorded, with what is predicted from its recording."""
    pairs: Pairs = {}
    for name, model in results.items():
        file = recordings / f"{name}.brrr"
        if not file.exists() or not model.step_ms:
            continue
        try:
            pairs[name] = model, predicts(file)
        except RuntimeError as fault:
            print(f"{name}: {fault}", file=sys.stderr)
    return pairs


HEAD = """# How right the predicted gains are

Written by `python -m benchmarks.gains.report --page docs/gains.md --svg docs/gains.svg`; do not edit.

Public models in the loops that their users write, each edit really made on an NVIDIA H200 (driver 580.159.04,
torch 2.11.0+cu130, 2026-11), beside what `brrrtop analyze` predicts from a record of the base loop: what `brrrtop attach`
recorded live, or, for most models of the parts *tune* and *test*, a torch.profiler trace. Figures are per cent of the
time per sample saved, measured → predicted.

The constants of `brrrtop/whatif/assumptions.py` were set with the parts *tune* and *test* in view. The models of *fresh*
were chosen before any of them was measured, and judged three times, each time by predictions fixed before:

| round | models | edits | median | 90th percentile | inside | best edit | problem found (since fixed) |
|---|--:|--:|--:|--:|--:|--:|---|
| 1 | 21 | 87 | 3.4 | 24.9 | 72 % | 84 % | recordings of 8 s end before shapes are recorded: bytes that no shapes tell are guessed by time and grid |
| 2 | 15 | 77 | 2.1 | 11.4 | 83 % | 79 % | one constant stood for every convolution in groups: each kind has its measured ratio |
| 3 | 19 | 111 | 2.4 | 15.2 | 86 % | 89 % | of a launch-bound loop with one burst, the burst's slower steps passed for the run's own |

Round 3 has five models that no round had before. A loop that was recorded live counts only if it ran within 5 % of the
measured pace, a rule made after round 1; round 2 has only models that were recorded anew. The figures of *fresh* below
are of today's predictions: of a part that was seen.

The host that they were measured on is shared, and launch-bound loops took up to a third longer at times. In the first three
runs (`h200-1` to `h200-3`) a model counts if its base loop took the same time at the end, within 3 %; in the second and
third of them the profiler was in the process before the edits, so that most launch-bound models were lost. In all later
runs the base loop was measured right before and right after each edit, up to three times, and an edit counts
if these two agree within 3 %; they replace what was known of a model before. Compiled loops ran in a
process of their own, but those of `h200-paired-1`, which count only if the base loop took what it had taken before anything
was compiled beside it: it took 4 % longer in the median. An empty cell is an edit that does not apply, was not made, or does
not count: the last are named below. {left_out} models are left out because nothing of theirs counts or no record of theirs was kept
(recordings here are kept small); what was measured of them is in `benchmarks/gains/measured/`.

![predicted against measured](gains.svg)

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    ours = Path(__file__).with_name("measured")
    # Later files win. Of the unpaired runs the first, whose host was the quietest, comes last.
    known = [
        *sorted(ours.glob("h200-[0-9].jsonl.xz"), reverse=True),
        *sorted(ours.glob("h200-paired-*.jsonl.xz")),
        *sorted(ours.glob("h200-fresh-*.jsonl.xz")),
    ]
    parser.add_argument("results", nargs="*", type=Path, default=known)
    parser.add_argument("--recordings", type=Path, default=ours)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    results = measured(args.results)
    pairs = pair(results, args.recordings, predict)
    judged = {name: both for name, both in pairs.items() if is_steady(*both)}
    text = "\n\n".join([bars_text(pairs), table(judged), "## Misses", misses(pairs)]) + "\n"
    print(text)
    if args.page:
        from benchmarks.gains.other_gpu import on_h100

        text += "\n" + on_h100() + "\n"
        args.page.write_text(HEAD.format(left_out=len(results) - len(judged)) + text)
    if args.svg:
        args.svg.write_text(plot(pairs))


if __name__ == "__main__":
    main()
