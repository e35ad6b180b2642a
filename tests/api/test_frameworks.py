"""Loggers of the real frameworks, where these are installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import brrrtop
from brrrtop.api.watching import Log, figures_of, lines_of

TRACE = Path(__file__).parents[1] / "recordings" / "traces" / "stacks.json.gz"


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return brrrtop.analyze(TRACE).to_dict()


def send(log: Log, report: dict[str, Any]) -> dict[str, float]:
    figures = figures_of(report)
    for step in (1, 2):
        log(figures, lines_of(report), step)
    return figures


def test_tensorboard_has_scalars_and_the_lines_once(report: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    figures = send(brrrtop.to_tensorboard(writer), report)
    writer.close()
    result = EventAccumulator(str(tmp_path))
    result.Reload()
    assert set(result.Tags()["scalars"]) == figures.keys()
    steps = [one.step for one in result.Scalars("brrrtop/step_ms")]
    assert steps == [1, 2]
    assert len(result.Tensors("brrrtop/says/text_summary")) == 1


@pytest.mark.leaves_threads
def test_mlflow_has_metrics_and_a_text(
    report: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        figures = send(brrrtop.to_mlflow(), report)
    kept = mlflow.get_run(run.info.run_id).data.metrics
    assert kept == pytest.approx(figures)
    assert "bigger-batch" in mlflow.artifacts.load_text(f"{run.info.artifact_uri}/brrrtop.txt")


@pytest.mark.leaves_threads
def test_wandb_has_figures_with_the_loops_own_next_log(
    report: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    run = wandb.init(mode="offline", dir=str(tmp_path), settings={"silent": True, "console": "off"})
    try:
        figures = send(brrrtop.to_wandb(), report)
        run.log({"loss": 1.0})
        summary = dict(run.summary)
    finally:
        run.finish()
    assert summary["brrrtop/step_ms"] == figures["brrrtop/step_ms"]
    assert "bigger-batch" in summary["brrrtop/says"]
