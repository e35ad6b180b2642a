"""Sends what a trial saves through torch and TensorBoard to a folder of its own.

A trial must not replace somebody's best checkpoint. `torch.load` of a path that the trial has written
reads what it has written. Files that the program writes by other means are left as they are.
"""

from __future__ import annotations

import functools
import os
from typing import Any


class Outputs:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def _inside(self, path: Any) -> str:
        full = os.path.abspath(os.fspath(path))
        return os.path.join(self._folder, full.lstrip(os.sep))

    def install_torch(self, torch: Any) -> None:
        save, load = torch.save, torch.load

        @functools.wraps(save)
        def save_inside(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, (str, os.PathLike)):
                f = self._inside(f)
                os.makedirs(os.path.dirname(f), exist_ok=True)
            return save(obj, f, *args, **kwargs)

        @functools.wraps(load)
        def load_inside(f: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, (str, os.PathLike)) and os.path.exists(self._inside(f)):
                f = self._inside(f)
            return load(f, *args, **kwargs)

        torch.save = torch.serialization.save = save_inside
        torch.load = torch.serialization.load = load_inside

    def install_tensorboard(self, module: Any) -> None:
        writer = module.SummaryWriter
        begin = writer.__init__

        @functools.wraps(begin)
        def begin_inside(self_: Any, logdir: Any = None, *args: Any, **kwargs: Any) -> None:
            logdir = kwargs.pop("log_dir", kwargs.pop("logdir", logdir)) or "runs"
            begin(self_, self._inside(logdir), *args, **kwargs)

        writer.__init__ = begin_inside
