"""Loggers and callbacks with the real frameworks, where these are installed."""

from __future__ import annotations

import os
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


def test_lightning_watches_a_fit(tmp_path: Path) -> None:
    pl = pytest.importorskip("lightning.pytorch")
    import torch

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.layer(batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    callback = brrrtop.lightning_callback(when="cuda")
    trainer = pl.Trainer(
        max_steps=3, accelerator="cpu", callbacks=[callback], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(32, 8), batch_size=8))
    assert callback.watch is not None and callback.watch.problem is None
    assert callback.watch._steps == 3 and callback.watch._thread is None


def test_transformers_watches_a_training(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    os.environ.setdefault("WANDB_DISABLED", "true")
    import torch

    config = transformers.GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config)
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(6)]
    callback = brrrtop.transformers_callback(when="cuda")
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=2, report_to=[],
        use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, callbacks=[callback]
    ).train()
    assert callback.watch is not None and callback.watch._steps == 3
    assert callback.watch._thread is None
