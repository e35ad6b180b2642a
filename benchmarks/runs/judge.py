"""The table of what brrrtop says of each program beside the program's own clock: `python benchmarks/runs/judge.py [DIR_OR_TAR …]`.

Reads what `watch.py` kept, judges each recording as `brrrtop analyze` does today (`--live`: takes the last line that was
output while it ran), cuts the clock to the time watched and prints a row a program and the totals. A figure that a
report does not have is –. `own` is the program's clock, everything else is brrrtop's; shares are of the time watched.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

KEPT = Path(__file__).resolve().parents[2] / "tests" / "recordings" / "runs"
POINTS, BUSY_POINTS, LARGE = 0.05, 0.10, 0.05
"""Allowed differences of shares; a phase from this share on has to be right."""
SURE, CONTRADICTED = 0.8, 0.15
"""A verdict of such a confidence while its witness differs by so much is wrong to be sure."""
ALWAYS_AT_WORK = 2 / 3
"""Below such an activity idle time may be the largest of the three shares, whatever a program was thought to do."""
GAUGES, GRAPHICS_ACTIVE = 10, 27
"""Of the wire: a kind of frame, and one of its metrics."""

HOST = {
    "dataloader-stall",
    "checkpoint-stall",
    "host-stall",
    "python-overhead",
    "logging-stall",
}
LAUNCHES = {"launch-bound-compile", "cuda-graphs", "fuse-pointwise", "fused-optimizer", "bigger-batch", "underfilled-kernels",
            "sync-point", "graph-breaks", "none-healthy"}  # fmt: skip
INPUT = {"dataloader-stall"}
AT_WORK, IDLE = {"compute", "memory", "mixed"}, {"overhead", "mixed"}

EXPECTED: dict[str, tuple[set[str], set[str | None], set[str] | None]] = {
    **dict.fromkeys(("hf_trainer", "gpt2_saves", "item_eval"),
                    (IDLE, {"launch", "sync", "host", None}, LAUNCHES)),
    **dict.fromkeys(("ppo", "a2c_pipes"), ({"overhead"}, {"host", "sync", "launch"}, HOST | LAUNCHES)),
    **dict.fromkeys(("ppo_vector", "sac"), ({"overhead"}, {"host", "sync", "launch"}, HOST | LAUNCHES | {"rollout-share"})),
    **dict.fromkeys(("server", "http_generate"), ({"overhead"}, {"input", "host", "launch"}, LAUNCHES)),
    **dict.fromkeys(("molecules", "recsys", "late_loader", "memmap_table", "score_jsonl"), (AT_WORK | IDLE, {"launch", "sync", "host", None}, None)),
    "compile_shapes": (AT_WORK | IDLE, {"compile", "launch", None}, LAUNCHES | {"recompilation"}),
}  # fmt: skip
"""Regimes, causes and first advice that an engineer would accept where the loop has its data. The rest keeps the GPU
at work: no cause, and an advice about kernels. Where the clock says that data, saves or compiling cost the most, `wanted`
says so, whatever stands here. Written before any of them was watched."""
TINY_KERNELS = {"ppo", "item_eval", "server", "http_generate", "a2c_pipes", "molecules", "recsys", "ppo_vector", "sac",
                "memmap_table"}  # fmt: skip
"""Where the counter counts launches as activity."""
SAME_KIND = {
    "inference": ("inference", "evaluation", "generation", "other"),
    "train": ("train", "warm-up"),
}
"""A phase of its own clock, and the kinds by which brrrtop may call it."""


class Truth:
    """A program's clock, cut to the time watched. Shares of it."""

    def __init__(self, intervals: list[list[Any]], start_ns: int, end_ns: int) -> None:
        length, waited, by_hand = defaultdict[str, float](float), 0.0, 0.0
        whole, self.steps, train_ns = max(1, end_ns - start_ns), 0.0, 0.0
        # The clock was stopped in its last interval: how much of that was a wait that went on nobody wrote.
        clocked = max(1, min(end_ns, intervals[-1][1]) - start_ns) if intervals else whole
        for kind, start, end, waited_ns, hand_ns, steps in intervals:
            inside = min(end, end_ns) - max(start, start_ns)
            if inside <= 0:
                continue
            share = inside / max(1, end - start)
            length[kind] += inside / whole
            waited += waited_ns * share / clocked
            by_hand += hand_ns * share / clocked
            self.steps += steps * share
            train_ns += inside if kind in ("train", "warm-up", "inference") else 0
        self.phases, self.waits, self.by_hand = dict(length), waited, by_hand
        self.step_ms = train_ns / 1e6 / self.steps if self.steps else None


def wanted(
    name: str, truth: Truth, counter: float | None
) -> tuple[set[str], set[str | None], set[str] | None]:
    """Regimes, causes (None: none) and first advices that are right; no set of advice: any about kernels.

    Args:
        counter: The GPU's activity by its own counter.
    """
    regimes, causes, advice = EXPECTED.get(name, (AT_WORK, {None}, None))
    late: set[str | None] = {"input", "host"} if truth.by_hand > truth.waits / 2 else {"input"}
    helps = INPUT | (
        {"python-overhead", "host-stall"} if truth.by_hand > truth.waits / 2 else set()
    )
    if EXPECTED.get(name) != EXPECTED["server"] and truth.waits >= 0.30:
        return {"overhead"}, late, helps
    if truth.waits >= 0.12:
        regimes, causes = regimes | IDLE, causes | late
        advice = None if advice is None else advice | helps
    if counter is not None and counter < ALWAYS_AT_WORK:
        regimes, causes = regimes | IDLE, causes | {"launch"}
    if advice is not None and truth.phases.get("rollout", 0) >= 0.4:
        advice = advice | {"rollout-share"}
    for kind, cause, id_ in (
        ("saving", "checkpoint", "checkpoint-stall"),
        ("compile", "compile", "recompilation"),
    ):
        if truth.phases.get(kind, 0) >= 0.10:
            causes, advice = causes | {cause}, None if advice is None else advice | {id_}
            regimes = regimes | IDLE if truth.phases[kind] >= 0.25 else regimes
    return regimes, causes, advice


def fits(advice: str | None, allowed: set[str] | None, truth: Truth) -> bool:
    if allowed is not None:
        return advice in allowed
    late = INPUT if truth.waits >= 0.12 else set[str]()
    return advice is not None and advice not in HOST - late - (
        {"checkpoint-stall"} if truth.phases.get("saving", 0) > 0.05 else set()
    )


def active(recording: Path) -> float | None:
    """The mean of GPM's graphics activity in a recording."""
    from brrrtop.sources.registry import open_source

    source = open_source(recording, False)
    values: list[float] = []
    for frame in source.frames():
        if frame.kind == GAUGES:
            rows = frame.body
            values += rows["value"][rows["metric"] == GRAPHICS_ACTIVE].tolist()
    source.close()
    return statistics.fmean(values) if values else None


def ours(report: dict[str, Any]) -> dict[str, Any]:
    """What a report says of the run; None is not there."""
    run = report.get("run") or {}
    phases: dict[str, float] | None = None
    waits = None
    if run.get("phases"):
        phases, waits = defaultdict(float), 0.0
        for one in run["phases"]:
            phases[one["kind"]] += one["share"] or 0.0
            waits += (one["share"] or 0.0) * (one.get("waits_for_data") or 0.0)
    whole = report["window"]["duration_ns"] if not run else run["duration_ns"]
    loaders = (report.get("tables") or {}).get("loaders") or []
    witness, advice = run.get("witness") or {}, report.get("advisories") or [{}]
    table = [
        one["total_ns"] / one["of_ns"]
        for one in loaders
        if one.get("of_ns") and one.get("total_ns") is not None
    ]
    busy = report["busy_ns"] / whole if report.get("busy_ns") is not None and whole else None
    return {
        "phases": phases, "waits": waits, "loaders": sum(table) if table else None,
        "input": ((report.get("account") or {}).get("idle_ns") or {}).get("input", 0) / whole if whole else None,
        "busy": busy if witness.get("active_account") is None else witness["active_account"], "gpm": witness.get("active_counter"),
        "regime": report.get("regime"), "cause": report.get("cause"), "confidence": report.get("confidence"),
        "advice": advice[0].get("id"), "saves": advice[0].get("saves"), "duration_ns": run.get("duration_ns"),
        "step_ms": run.get("step_ms") or report["window"]["step_ms"],
    }  # fmt: skip


def best_waits(ours_: dict[str, Any]) -> float | None:
    """What the report says of the run's waits: by its phases, else (older ones) nowhere but in its account."""
    return ours_["waits"] if ours_["waits"] is not None else ours_["input"]


def judge(kept: dict[str, Any], recording: Path, live: bool) -> dict[str, Any]:
    """A row of the table and its scores: True, False, or None where there is nothing to judge."""
    name, watch = kept["program"], kept["watch"]
    report = kept["whole"]["last"]
    if not live:
        import brrrtop

        report = brrrtop.analyze(recording).to_dict()
    ours_ = ours(report)
    if ours_["gpm"] is None and recording.exists():
        ours_["gpm"] = active(recording)
    start = (
        watch["ended_ns"] - ours_["duration_ns"] if ours_["duration_ns"] else watch["first_line_ns"]
    )
    truth = Truth(kept["clock"]["intervals"], start or watch["began_ns"], watch["ended_ns"])
    regimes, causes, advice = wanted(name, truth, ours_["gpm"])
    waits = best_waits(ours_)

    def right(row: dict[str, Any]) -> bool:
        return row["regime"] in regimes and (
            row["cause"] in causes or row["regime"] in ("compute", "memory")
        )

    verdicts = [row for row in kept["lines"] if row["regime"] not in (None, "unknown")]
    after_10 = [row for row in kept["lines"] if row["s"] >= 10]
    witnesses = [(row, row.get("witness") or {}) for row in verdicts]
    too_sure = [row for row, w in witnesses if (row["confidence"] or 0) > SURE and w.get("active_counter") is not None
                and w.get("active_account") is not None and abs(w["active_counter"] - w["active_account"]) > CONTRADICTED]  # fmt: skip
    return {
        "name": name, "truth": truth, "ours_": ours_, "phases": phase_scores(truth, ours_["phases"]),
        "first_s": verdicts[0]["s"] if verdicts else None, "core": watch["core_share"],
        "kb": recording.stat().st_size / 1024 if recording.exists() else None,
        "scores": {
            "waits": None if waits is None else abs(waits - truth.waits) <= POINTS,
            "busy": None if name in TINY_KERNELS or None in (ours_["busy"], ours_["gpm"]) else abs(ours_["busy"] - ours_["gpm"]) <= BUSY_POINTS,
            "regime": right(ours_), "advice": fits(ours_["advice"], advice, truth),
            "first": bool(verdicts) and verdicts[0]["s"] <= 3.0, "at_10_s": right(after_10[0]) if after_10 else None,
            "not_too_sure": not too_sure,
        },
    }  # fmt: skip


def phase_scores(
    truth: Truth, phases: dict[str, float] | None
) -> list[tuple[str, float, float | None, bool | None]]:
    """Kind, own share, brrrtop's, whether they agree: of each phase above 5 % of either.

    Data that the loop makes by hand may be part of its phase, or `data`.
    """
    result: list[tuple[str, float, float | None, bool | None]] = []
    taken: set[str] = set()
    for kind, own in sorted(truth.phases.items(), key=lambda pair: -pair[1]):
        if own < LARGE:
            continue
        kinds = SAME_KIND.get(kind, (kind,))
        kinds += (
            ("data",)
            if truth.by_hand > 0.01 and kind == max(truth.phases, key=lambda k: truth.phases[k])
            else ()
        )
        taken.update(kinds)
        theirs = None if phases is None else sum(phases.get(one, 0.0) for one in kinds)
        result.append((kind, own, theirs, None if theirs is None else abs(theirs - own) <= POINTS))
    for kind, theirs in (phases or {}).items():
        if theirs >= LARGE and kind not in taken:
            own = truth.phases.get(kind, 0.0)
            result.append((kind, own, theirs, abs(theirs - own) <= POINTS))
    return result


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f}"


def marked(text: str, good: bool | None) -> str:
    return text if good is not False else f"**{text}**"


def line(row: dict[str, Any]) -> str:
    """A row of the table; what is wrong is bold."""
    truth, ours_, scores = row["truth"], row["ours_"], row["scores"]
    phases = ", ".join(
        marked(f"{kind} {percent(own)}/{percent(theirs)}", good)
        for kind, own, theirs, good in row["phases"]
    )
    verdict = marked(
        f"{ours_['regime']}{' ' + ours_['cause'] if ours_['cause'] else ''} {percent(ours_['confidence'])}",
        scores["regime"],
    )
    cells = (
        row["name"], marked(f"{percent(truth.waits)} / {percent(ours_['waits'])}", scores["waits"]), percent(ours_["input"]), percent(ours_["loaders"]), phases,
        marked(f"{percent(ours_['busy'])} / {percent(ours_['gpm'])}", scores["busy"]), verdict,
        marked(f"{ours_['advice'] or '–'} {percent(ours_['saves'])}", scores["advice"]), f"{number(truth.step_ms)} / {number(ours_['step_ms'])}",
        marked(number(row["first_s"]), scores["first"]), marked("yes" if scores["at_10_s"] else "no", scores["at_10_s"]),
        f"{100 * row['core']:.1f}", number(row["kb"]),
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def totals(rows: list[dict[str, Any]]) -> list[str]:
    """Each sentence of what it must reach, with what was reached."""

    def count(name: str) -> str:
        known = [row["scores"][name] for row in rows if row["scores"][name] is not None]
        return f"{sum(known)} of {len(known)}"

    phases = [good for row in rows for *_, good in row["phases"] if good is not None]
    cores = [row["core"] for row in rows]
    return [
        f"waits for data within 5 points of the program's own clock: {count('waits')} (wanted: 95 %)",
        f"phases above 5 % within 5 points: {sum(phases)} of {len(phases)} (wanted: 9 of 10)",
        f"busy within 10 points of the counter, kernels not tiny: {count('busy')} (wanted: all)",
        f"regime and cause right: {count('regime')} (wanted: all but one)",
        f"first advice names what can be won: {count('advice')} (wanted: all but two)",
        f"first verdict within 3 s of starting brrrtop: {count('first')}; right at 10 s: {count('at_10_s')}; never sure against its witness: {count('not_too_sure')}",
        f"monitor's share of a core: median {100 * statistics.median(cores):.1f} %, most {100 * max(cores):.1f} % (its start included)",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "places", type=Path, nargs="*", default=[KEPT], help="folders or tars that watch.py made"
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="the verdict at the end of the watch, not today's analysis",
    )
    args = parser.parse_args()
    rows, faults = [], []
    with tempfile.TemporaryDirectory() as scratch:
        folders = []
        for number_, place in enumerate(args.places):
            folder = place
            if place.is_file():
                folder = Path(scratch) / str(number_)
                with tarfile.open(place) as whole:
                    whole.extractall(folder, filter="data")
            folders.append(folder)
        for path in sorted(path for folder in folders for path in folder.glob("*.json")):
            kept = json.loads(path.read_text())
            if not kept.get("clock") or not (kept.get("whole") or {}).get("last"):
                faults.append(
                    f"{kept['program']}: {kept.get('fault') or kept.get('watch', {}).get('ours_') or 'no clock'} {kept.get('tail', '')}"
                )
                continue
            try:
                rows.append(judge(kept, path.with_suffix(".brrr"), args.live))
            except Exception as fault:
                faults.append(f"{kept['program']}: {type(fault).__name__}: {fault}")
    print(
        "| program | waits own / ours | account input | loader table | phases own/ours | busy / GPM | verdict, sure | first advice, saves | step ms own / ours | first verdict s | right at 10 s | core % | KB |"
    )
    print("|---|--:|--:|--:|---|--:|---|---|--:|--:|---|--:|--:|")
    print("\n".join(line(row) for row in rows))
    print(
        "\n"
        + "\n".join([*(totals(rows) if rows else ()), *(f"not judged: {one}" for one in faults)])
    )
    return 0 if rows and not faults else 1


if __name__ == "__main__":
    sys.exit(main())
