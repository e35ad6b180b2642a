"""Marks the library calls that make a trainer wait: checkpoints and loggers."""

from __future__ import annotations

from time import time_ns
from typing import Any

from .native import CHECKPOINT, LOGGING
from .probe import Hook, Probe, imported

_CALLS = (
    # torch.save lives in two modules: pickling it by name has to find the same function in both.
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

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._wrappers: dict[int, Any] = {}

    def place(self) -> None:
        for mark_class, where, attributes in _CALLS:
            module, _, path = where.partition(":")
            owner = imported(module, path)
            for attribute in attributes.split() if owner is not None else ():
                original = vars(owner).get(attribute)
                if callable(original) and not self.patched(owner, attribute):
                    ours = self._wrappers.get(id(original))
                    if ours is None:
                        after = self._marker(mark_class, f"{path or module}.{attribute}")
                        ours = self._wrappers[id(original)] = self.around(original, after=after)
                    self.replace(owner, attribute, ours)

    def clear(self) -> None:
        self._wrappers.clear()

    def _marker(self, mark_class: int, label: str) -> Hook:
        def ended(_: Any, start_ns: int) -> None:
            native = self.native
            native.mark(mark_class, start_ns, time_ns(), 0, native.name(label), native.thread())

        return ended
