"""Runs inside the program of a trial: edits it from outside and writes its steps to a file.

`start` is called by a `sitecustomize.py` before the program begins. Nothing happens until the program
imports torch; then hooks of torch make the edits at the first use of what they change. A fault of ours
becomes a line of the file, never an exception in the program.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from .edits import Edits
from .outputs import Outputs
from .steps import Steps


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
