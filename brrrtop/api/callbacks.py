"""Callbacks for Lightning and transformers: a `watch` that begins and ends with the training.

Their classes must inherit from the framework's own, so each is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from brrrtop.api.watching import Log, Watch, watch


class _Watching:
    """A watch that some callback begins."""

    watch: Watch | None = None

    def _step(self, counter: Any) -> None:
        if self.watch is not None:
            self.watch.step(counter.global_step)

    def _end(self) -> None:
        if self.watch is not None:
            self.watch.stop()


def lightning_callback(**options: Any) -> Any:
    """A callback for Lightning's `Trainer(callbacks=[...])`: figures go to the trainer's loggers.

    Args:
        options: As for `watch`; `log` adds to the trainer's own loggers.

    Raises:
        ImportError: Neither `lightning` nor `pytorch_lightning` is installed.
    """
    try:
        base: Any = import_module("lightning.pytorch").Callback
    except ImportError:
        base = import_module("pytorch_lightning").Callback
    extra = options.pop("log", ())
    extra = (extra,) if callable(extra) else tuple(extra)

    class BrrrtopCallback(_Watching, base):  # type: ignore[misc]
        """Watches `fit` of rank 0."""

        def on_fit_start(self, trainer: Any, *_: Any) -> None:
            if trainer.is_global_zero:
                self.watch = watch(log=(_to_lightning(trainer), *extra), **options).start()

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            self._step(trainer)

        def on_fit_end(self, *_: Any) -> None:
            self._end()

        on_exception = on_fit_end

    return BrrrtopCallback()


def _to_lightning(trainer: Any) -> Log:
    def log(figures: Mapping[str, float], lines: tuple[str, ...], step: int) -> None:
        for logger in trainer.loggers:
            logger.log_metrics(dict(figures), step=step)

    return log


def transformers_callback(**options: Any) -> Any:
    """A callback for transformers' `Trainer(callbacks=[...])`.

    Args:
        options: As for `watch`; give `log`, as a callback of transformers has no logger of its own.

    Raises:
        ImportError: transformers is not installed.
    """
    base: Any = import_module("transformers").TrainerCallback

    class BrrrtopCallback(_Watching, base):  # type: ignore[misc]
        """Watches `train` of rank 0."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                self.watch = watch(**options).start()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self._step(state)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self._end()

    return BrrrtopCallback()
