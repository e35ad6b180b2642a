"""Runs inside the program of a trial: edits it from outside and writes its steps to a file.

`start` is called by a `sitecustomize.py` before the program begins. Nothing happens until the program
imports torch; then hooks of torch make the edits at the first use of what they change. A fault of ours
becomes a line of the file, never an exception in the program.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from .edits import Edits
from .steps import Steps


class Outputs:
    """Sends what a trial saves through torch and TensorBoard to a folder of its own.

    A trial must not replace somebody's best checkpoint. `torch.load` of a path that the trial has written
    reads what it has written. Files that the program writes by other means are left as they are.
    """

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


class AfterImport:
    """Calls back with a module as soon as its import is complete; the import goes its usual way."""

    def __init__(self, callbacks: dict[str, Callable[[Any], None]]) -> None:
        self._callbacks = callbacks

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        callback = self._callbacks.pop(name, None)
        if callback is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _call_after(spec.loader, callback)
                return spec
        return None


def _call_after(loader: Any, callback: Callable[[Any], None]) -> None:
    """Replaces `exec_module` of this one loader, which loads this one module."""
    load = loader.exec_module

    def load_and_call(module: Any) -> None:
        load(module)
        callback(module)

    loader.exec_module = load_and_call


def start(config_path: str) -> None:
    """Prepares the trial that the file at `config_path` describes.

    Its fields: `folder` (where files of steps go), `edits` (ids), `workers` (of a DataLoader that has
    none), `outputs` (where files go that the program saves through torch and TensorBoard).
    """
    with open(config_path, encoding="utf-8") as file:
        config = json.load(file)
    edits, outputs = Edits(config["edits"], config["workers"]), Outputs(config["outputs"])

    def on_torch(torch: Any) -> None:
        steps = Steps(torch, config["folder"], edits)
        try:
            edits.install(torch, steps.on_model)
            outputs.install_torch(torch)
            steps.install()
        except Exception as fault:
            steps.fail(f"{type(fault).__name__}: {fault}")

    callbacks: dict[str, Callable[[Any], None]] = {"torch": on_torch}
    for writer in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        callbacks[writer] = outputs.install_tensorboard
    sys.meta_path.insert(0, AfterImport(callbacks))
