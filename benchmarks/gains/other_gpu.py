"""The part of the page about an H100: models of the H200's rounds, and those of the fourth round."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gains import report

HERE = Path(__file__).parent
HARM = -0.02
"""A step that takes 2 % longer is slower."""
KNOWN = """## On an H100

Nothing was fitted on this GPU, which has two thirds of the H200's memory bandwidth (NVIDIA H100 80GB HBM3, driver 580.159.04,
torch 2.11.0+cu130, 2026-11-23; recorded live). Ten of the models above were measured there, 59 edits: median 2.0 points, 90th percentile 7.8,
92 % inside the range, the best edit, or one near it, among the first two for ten of ten. The five that are kept here,
in `benchmarks/gains/h100/`:

"""
FOURTH = """## Round 4, on an H100

The models of `benchmarks/gains/fourth.py` were chosen before any of them was measured, the predictions are those of
commit {commit}, made before the results were read, and no constant was set with them in view (NVIDIA H100 80GB HBM3, driver
580.159.04, torch 2.11.0+cu130, 2026-11-27; recorded live with default options for 15 s; `benchmarks/gains/h100-4/`).

The round is cut short: in the 200 s that two GPUs were there for it, three of its sixteen models were recorded (HuBERT for a part
of the 15 s), and few base loops were steady. What was measured of the others is in the same folder. **Harm**: the first edit advised
of HuBERT's short recording is CUDA graphs, with which it took 9.8 times as long (the base loop drifted by 6 %, so it is not in the table).
Since then graphs and compile lead only where steps were compared: of that recording no surely winning edit leads.

{first}

"""


def firsts(pairs: report.Pairs) -> str:
    """What came of the first edit that each model is advised to make."""
    fine, bad, open_ = [], [], []
    for name, (model, text) in pairs.items():
        edit = next((one for one in text.advised if one not in report.OFFERS), None)
        if edit is None:
            continue
        if edit in model.saves:
            gain = f"{name}: {edit}, measured {100 * model.saves[edit]:.0f} %"
            (fine if model.saves[edit] >= HARM else bad).append(gain)
        elif model.failed.get(edit, report.LATE) != report.LATE:
            bad.append(f"{name}: {edit}, which failed")
        else:
            open_.append(f"{name}: {edit}")
    told = [f"The first edit advised was no slower than {100 * HARM:.0f} % for {len(fine)} of "
            f"{len(fine) + len(bad)} models"]  # fmt: skip
    told.append(f"Harm: {'; '.join(bad)}" if bad else "None did harm")
    if open_:
        told.append(f"Not measured, or not steadily: {'; '.join(open_)}")
    return ". ".join(told) + "."


def section(folder: str) -> report.Pairs:
    ours = HERE / folder
    measured = report.measured([ours / "results.jsonl.xz"])
    pairs = report.pair(measured, ours, report.predict)
    return {name: both for name, both in pairs.items() if both[0].saves}


def on_h100(commit: str) -> str:
    """What is kept of the H100: measured and predicted."""
    known = section("h100")
    text = [KNOWN + report.bars_text(known, ()), report.table(known)]
    if (HERE / "h100-4").is_dir():
        fourth = section("h100-4")
        head = FOURTH.format(commit=commit, first=firsts(fourth)) + report.bars_text(fourth, ())
        text = [head, report.table(fourth), report.misses(fourth), *text]
    return "\n\n".join(text)
