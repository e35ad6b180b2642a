"""The live runs of `live_zoo.py` as one file and one table.

    python benchmarks/live_table.py live.json [live.json ...] --json OUT.json --markdown OUT.md [--note TEXT]

Takes the findings as they are. A script is judged by what is planted in it: its advice counts as given
when all of it stands. What a run of `live_zoo.py` could not measure is a dash.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

PLANTED = {
    "gpt_bf16": ("compute", "none-healthy"),
    "gpt_bf16_compiled": ("compute", "none-healthy"),
    "item_sync": ("overhead", "sync-point"),
    "misaligned_gemm": ("compute", "tensor-core-alignment"),
    "naive_attention": ("mixed", "flash-attention"),
    "pointwise_chain": ("memory", "fuse-pointwise"),
    "resnet50_fp32": ("compute", "enable-tf32-or-amp", "channels-last"),
    "slow_loader": ("overhead", "dataloader-stall"),
    "tiny_mlp": ("overhead", "launch-bound-compile", "fused-optimizer"),
    "unpinned_h2d": ("overhead", "pin-memory"),
}
"""Regime and advice by script."""
HEAD = (
    "script", "through", "verdict", "sure", "cause", "first verdict", "stands since", "right advice",
    "meter on screen", "its/s alone", "watched",
)  # fmt: skip
MEASURED = ("first_verdict_s", "stable_since_s", "advised_s")


def advised_s(one: dict[str, Any]) -> float | None:
    """When the last of the planted advice was first given; None: not all of it was."""
    at = [one["first_advice_s"].get(kind) for kind in PLANTED[one["script"]][1:]]
    return None if None in at else max(at)


def found(path: Path) -> list[dict[str, Any]]:
    """The runs of a file, each with how it was watched and what was planted."""
    rows = []
    for one in json.loads(path.read_text()):
        regime, *advice = PLANTED[one["script"]]
        says = one.get("said") or []
        kept = {k: v for k, v in one.items() if k not in ("said", "trainer_tail")}
        rows.append({
            **kept, "through": "attach" if "trainer_alive" in one else "run", "advised_s": advised_s(one),
            "planted": {"regime": regime, "advice": advice, "right": one["regime"] == regime},
            "attach": next((line for line in says if line.startswith("attached")), None),
        })  # fmt: skip
    return rows


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


def cells(one: dict[str, Any]) -> list[str]:
    cost = one["overhead"]
    share, error = cost["step_cost_share"], cost["step_cost_error_share"]
    meter = "–" if share is None else f"{100 * share:+.1f} % ± {100 * error:.1f}"
    sure = "–" if one["confidence"] is None else f"{100 * one['confidence']:.0f} %"
    rates = ["–" if one.get(k) is None else f"{one[k]:.2f}" for k in ("alone", "watched")]
    wrong = "" if one["planted"]["right"] else f", planted {one['planted']['regime']}"
    return [
        one["script"], one["through"], f"{one['regime']}{wrong}", sure, one["cause"] or "–",
        *(seconds(one[key]) for key in MEASURED), meter, *rates,
    ]  # fmt: skip


def medians(rows: list[dict[str, Any]]) -> list[str]:
    """A row for each way of watching; times that some run lacks are of the others."""
    lines = []
    for through in ("attach", "run"):
        own = [one for one in rows if one["through"] == through]
        if own:
            times = [[one[key] for one in own if one[key] is not None] for key in MEASURED]
            middle = [seconds(statistics.median(some) if some else None) for some in times]
            lines.append([f"median of {len(own)}", through, "", "", "", *middle, "", "", ""])
    return ["| " + " | ".join(line) + " |" for line in lines]


def markdown(rows: list[dict[str, Any]], note: str) -> str:
    lines = [list(HEAD), ["---"] * len(HEAD), *(cells(one) for one in rows)]
    table = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([*([note, ""] if note else []), *table, *medians(rows), ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--markdown", type=Path, required=True)
    parser.add_argument("--note", default="", help="what stands above the table")
    args = parser.parse_args()
    rows = [one for path in args.files for one in found(path)]
    rows.sort(key=lambda one: (one["through"], one["script"]))
    args.json.write_text(json.dumps(rows, indent=1) + "\n")
    args.markdown.write_text(markdown(rows, args.note))


if __name__ == "__main__":
    main()
