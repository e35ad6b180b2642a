"""Marks the library calls that make a trainer wait: checkpoints and loggers."""

from __future__ import annotations

from functools import partial
from time import time_ns
from typing import Any

from ..library import CHECKPOINT, LOGGING, this_thread
from .probe import Probe, find_imported

_CALLS = (
    (CHECKPOINT, "torch", "save"),
    (CHECKPOINT, "torch.serialization", "save"),
    (CHECKPOINT, "torch.distributed.checkpoint", "save async_save"),
    (CHECKPOINT, "torch.distributed.checkpoint.state_dict_saver", "save async_save"),
    (CHECKPOINT, "safetensors.torch", "save_file"),
    (LOGGING, "mlflow.tracking.fluent", "log_metric log_metrics"),
    (LOGGING, "wandb.sdk.wandb_run:Run", "log"),
    (LOGGING, "tensorboardX.writer:SummaryWriter", "add_scalar add_histogram add_image"),
    (LOGGING, "torch.utils.tensorboard.writer:SummaryWriter", "add_scalar add_histogram"),
)


class Saving(Probe):
    """Methods are seen on objects made before; a function imported by name before us is not."""

    name = "saving"

    def place(self) -> None:
        for mark_class, where, attributes in _CALLS:
            module, _, path = where.partition(":")
            owner = find_imported(module, path)
            if owner is not None:
                for attribute in attributes.split():
                    label = f"{path or module}.{attribute}"
                    self.patch(owner, attribute, after=partial(self._ended, mark_class, label))

    def _ended(self, mark_class: int, label: str, _: Any, start_ns: int) -> None:
        native = self.native
        native.mark(mark_class, start_ns, time_ns(), 0, native.name(label), this_thread())
