"""What a report says as numbers and lines, and where they are logged to."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

PREFIX = "brrrtop/"
_LEAST = 0.001
"""Of wall time: idle causes below it are logged once they were above."""


class Log(Protocol):
    """Takes figures and lines; `step` is the training's own number."""

    def __call__(self, figures: Mapping[str, float], lines: tuple[str, ...], step: int) -> None: ...


def figures_of(report: Mapping[str, Any]) -> dict[str, float]:
    """Split, step time, idle time by cause and simulated gains of a report's plain data.

    What nobody measured has no figure.
    """
    figures: dict[str, Any] = {f"split/{name}": share for name, share in report["split"].items()}
    figures["step_ms"] = report["window"]["step_ms"]
    figures["confidence"] = report["confidence"]
    figures["cost_of_watching"] = report["overhead"]["step_cost_share"]
    whole, account = report["window"]["duration_ns"], report["account"]
    if whole:
        idle = {f"idle/{cause}": ns for cause, ns in account["idle_ns"].items()}
        exposed = {name: account[f"{name}_ns"] for name in ("exposed_comm", "exposed_copy")}
        for name, ns in (*idle.items(), *exposed.items()):
            if ns is not None and ns >= _LEAST * whole:
                figures[name] = ns / whole
    for row in report["whatif"] or ():
        figures[f"whatif/{row['edit']}"] = row["saves"]
    return {PREFIX + name: float(value) for name, value in figures.items() if value is not None}


def lines_of(report: Mapping[str, Any]) -> tuple[str, ...]:
    """The verdict, advice with its line to try, and the newest events."""
    sure = report["confidence"]
    verdict = f"{report['regime']}-bound" + (f" ({report['cause']})" if report["cause"] else "")
    lines = [verdict + (f", {sure:.0%} sure" if sure is not None else "")]
    lines += [f"{one['id']}: {one['says']} Try: {one['try']}" for one in report["advisories"] or ()]
    lines += [f"{one['kind']}: {one['says']}" for one in report.get("events", ())]
    return tuple(lines)


def to_tensorboard(writer: Any) -> Log:
    """Into a `SummaryWriter`: scalars, and the lines as text where they changed."""
    last_lines: list[tuple[str, ...]] = []

    def log(figures: Mapping[str, float], lines: tuple[str, ...], step: int) -> None:
        for name, value in figures.items():
            writer.add_scalar(name, value, step)
        if last_lines[-1:] != [lines]:
            last_lines[:] = [lines]
            writer.add_text(PREFIX + "says", "\n\n".join(lines), step)

    return log


def to_wandb(run: Any = None) -> Log:
    """Into a run of Weights & Biases; None: the one that is active when it is logged."""

    def log(figures: Mapping[str, float], lines: tuple[str, ...], step: int) -> None:
        active = run or import_module("wandb").run
        if active is not None:
            # No step of its own: W&B drops what comes with an older step than the loop's newest.
            active.log({**figures, PREFIX + "training_step": step}, commit=False)
            active.summary.update({PREFIX + "says": "\n".join(lines)})

    return log


def to_mlflow(run_id: str | None = None) -> Log:
    """Into a run of MLflow; None: the active one, which MLflow begins where there is none."""

    def log(figures: Mapping[str, float], lines: tuple[str, ...], step: int) -> None:
        mlflow = import_module("mlflow")
        mlflow.log_metrics(dict(figures), step=step, run_id=run_id)
        mlflow.log_text("\n".join(lines) + "\n", "brrrtop.txt", run_id=run_id)

    return log
