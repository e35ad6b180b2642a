"""Marks the calls of well-known library functions that make a trainer wait: checkpoints and loggers."""

from __future__ import annotations

from time import time_ns
from typing import Any, Callable, Dict

from .native import CHECKPOINT, LOGGING
from .probe import Probe, imported

_CALLS = (
    # torch.save lives in two modules: pickling it by name has to find the same function in both.
    (CHECKPOINT, "torch", "save"),
    (CHECKPOINT, "torch.serialization", "save"),
    (CHECKPOINT, "torch.distributed.checkpoint", "save"),
    (CHECKPOINT, "torch.distributed.checkpoint", "async_save"),
    (CHECKPOINT, "torch.distributed.checkpoint.state_dict_saver", "save"),
    (CHECKPOINT, "torch.distributed.checkpoint.state_dict_saver", "async_save"),
    (CHECKPOINT, "safetensors.torch", "save_file"),
    (LOGGING, "torch.utils.tensorboard.writer", "SummaryWriter.add_scalar"),
    (LOGGING, "torch.utils.tensorboard.writer", "SummaryWriter.add_scalars"),
    (LOGGING, "torch.utils.tensorboard.writer", "SummaryWriter.add_histogram"),
    (LOGGING, "torch.utils.tensorboard.writer", "SummaryWriter.add_image"),
    (LOGGING, "torch.utils.tensorboard.writer", "SummaryWriter.flush"),
    (LOGGING, "tensorboardX.writer", "SummaryWriter.add_scalar"),
    (LOGGING, "tensorboardX.writer", "SummaryWriter.add_histogram"),
    (LOGGING, "wandb.sdk.wandb_run", "Run.log"),
    (LOGGING, "mlflow.tracking.fluent", "log_metric"),
    (LOGGING, "mlflow.tracking.fluent", "log_metrics"),
)


class Saving(Probe):
    """Class attributes reach objects that exist already; a function imported by name before us is missed."""

    name = "saving"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._wrappers: Dict[int, Any] = {}

    def install(self) -> None:
        super().install()
        for mark_class, module, path in _CALLS:
            owner_path, _, attribute = path.rpartition(".")
            owner = imported(module, owner_path)
            original = owner and vars(owner).get(attribute)
            if not callable(original) or self.patched(owner, attribute):
                continue
            wrapper = self._wrappers.get(id(original))
            if wrapper is None:
                ended = self._marker(mark_class, f"{module}.{path}")
                wrapper = self._wrappers[id(original)] = self.timed(original, ended)
            self.replace(owner, attribute, wrapper)

    def remove(self) -> None:
        super().remove()
        self._wrappers.clear()

    def _marker(self, mark_class: int, label: str) -> Callable[[int, Any], None]:
        def ended(start_ns: int, _: Any) -> None:
            native = self.native
            native.mark(mark_class, start_ns, time_ns(), 0, native.name(label), native.thread())

        return ended
