"""The edits of a trial, made from outside: each at the first use of what it changes.

Models: the calls of an `nn.Module` that no other module makes ("root" calls). `nn.Module.__call__` is
replaced only between root calls of the first steps, so that a step that is measured pays nothing for it.
Loaders and optimizers: when they are constructed. Everything here runs on the training thread.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import inspect
import sys
from collections.abc import Callable
from typing import Any

FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers of torch with an argument `fused`."""
COMPILE: dict[str, dict[str, Any]] = {
    "compile": {},
    "compile-reduce-overhead": {"mode": "reduce-overhead"},
    "compile-dynamic": {"dynamic": True},
}
TRAINERS = {
    "transformers.trainer": "transformers", "pytorch_lightning.trainer.trainer": "lightning",
    "lightning.pytorch.trainer.trainer": "lightning",
}  # fmt: skip
"""Modules whose loops run other people's models, and have arguments of their own for most edits."""
PREFETCH = 4
"""Batches ahead a worker, in place of torch's 2."""


class Edits:
    """What to change, how often it was changed, and what the program is made of."""

    def __init__(self, ids: list[str], workers: int) -> None:
        self.ids, self._workers = frozenset(ids), workers
        self.counts = dict.fromkeys(ids, 0)
        """How many things each edit has changed."""
        self.problems: dict[str, str] = {}
        self.models: list[dict[str, Any]] = []
        self.loaders: list[dict[str, Any]] = []
        self.optimizers: list[dict[str, Any]] = []
        self._doubled: set[tuple[int, int]] = set()
        self._torch: Any = None
        self._call: Any = None
        self._roots: list[Any] = []

    def install(self, torch: Any, on_model: Callable[[], None]) -> None:
        """Called once, when torch is imported.

        Args:
            on_model: Called at each root call of the first steps.
        """
        self._torch = Forward.torch = torch
        if "tf32" in self.ids:
            torch.set_float32_matmul_precision("high")
        if "cudnn-benchmark" in self.ids:
            torch.backends.cudnn.benchmark = True
        loader = torch.utils.data.DataLoader
        loader.__init__ = self._around_loader(loader.__init__)
        for name in FUSED:
            optimizer = getattr(torch.optim, name)
            optimizer.__init__ = self._around_optimizer(optimizer.__init__)
        module = torch.nn.Module
        self._call = original = vars(module)["__call__"]

        def call(model: Any, *args: Any, **kwargs: Any) -> Any:
            module.__call__ = original
            try:
                on_model()
                self._prepare(model)
                return original(model, *args, **kwargs)
            finally:
                if self._call is not None:
                    module.__call__ = call

        module.__call__ = call

    def settle(self) -> dict[str, Any]:
        torch = self._torch
        if self._call is not None:
            torch.nn.Module.__call__, self._call = self._call, None
        if "gc-freeze" in self.ids:
            gc.collect()
            gc.freeze()
            self.counts["gc-freeze"] += 1
        precise = torch.get_float32_matmul_precision() == "highest"
        benchmark = bool(torch.backends.cudnn.benchmark)
        if "tf32" in self.ids:
            self.counts["tf32"] = int(not precise)
        if "cudnn-benchmark" in self.ids:
            self.counts["cudnn-benchmark"] = int(benchmark)
        for edit in self.ids & COMPILE.keys():
            self.counts[edit] = compiled_graphs()
            if self.models and not self.counts[edit]:
                self.problems.setdefault(edit, "torch.compile finds nothing in it to compile")
        return {
            "counts": self.counts, "problems": self.problems, "models": self.models,
            "loaders": self.loaders, "optimizers": self.optimizers, "tf32": not precise,
            "cudnn_benchmark": benchmark,
            "frozen": gc.get_freeze_count(),
        }  # fmt: skip

    def _prepare(self, model: Any) -> None:
        """Edits a model at its first root call. A fault is kept: the program goes on without the edit."""
        copied = isinstance(vars(model).get("forward"), Forward)
        if copied or any(root is model for root in self._roots):
            return
        if not any(p.requires_grad for p in model.parameters()):
            return
        self._roots.append(model)
        self.models.append(self._facts(model))
        if not self.ids and not self.models[-1]["compiled"]:
            with contextlib.suppress(Exception):  # a model that takes no hooks
                self._see_autocast(model, self.models[-1])
        ways: dict[str, Callable[[Any, str], bool]] = {
            **dict.fromkeys(COMPILE, self._compile),  # what wraps it later stays outside, as by hand
            "channels-last": self._channels_last, "sdpa": self._sdpa, "bf16": self._autocast,
        }  # fmt: skip
        for edit, make in ways.items():
            if edit in self.ids:
                try:
                    self.counts[edit] += bool(make(model, edit))
                except Exception as fault:
                    self.problems[edit] = f"{type(fault).__name__}: {fault}"

    def _facts(self, model: Any) -> dict[str, Any]:
        torch = self._torch
        first = next(model.parameters())
        attention = {_attention(module) for module in model.modules()} - {None}
        return {
            "class": type(model).__name__,
            "device": first.device.type,
            "dtypes": sorted({str(p.dtype).rpartition(".")[2] for p in model.parameters()}),
            "images": any(p.dim() == 4 for p in model.parameters()),
            "channels_last": any(
                p.dim() == 4 and p.is_contiguous(memory_format=torch.channels_last)
                and not p.is_contiguous() for p in model.parameters()
            ),
            "compiled": any(
                hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
                for module in model.modules()
            ),
            "autocast": _autocast(torch),
            "written_attention": bool(attention & {"eager", False}),
            "trainer": _trainer(),
        }  # fmt: skip

    def _see_autocast(self, model: Any, facts: dict[str, Any]) -> None:
        """Whether it computes under autocast is known inside: Accelerate begins it in `forward`."""
        hooks: list[Any] = []

        def see(*_: Any) -> None:
            facts["autocast"] = facts["autocast"] or _autocast(self._torch)
            while hooks:
                hooks.pop().remove()

        own = (
            module
            for module in model.modules()
            if next(module.parameters(recurse=False), None) is not None
        )
        hooks.extend(module.register_forward_pre_hook(see) for module in own)

    def _compile(self, model: Any, edit: str) -> bool:
        # `Module.compile` leaves modules of torch.nn itself, a Sequential say, as they are (torch 2.13).
        model.forward = Compiled(model.forward, COMPILE[edit])
        return True

    def _autocast(self, model: Any, _: str) -> bool:
        model.forward = Autocast(model.forward, next(model.parameters()).device.type)
        return True

    def _channels_last(self, model: Any, _: str) -> bool:
        if not any(p.dim() == 4 for p in model.parameters()):
            return False
        model.to(memory_format=self._torch.channels_last)
        model.forward = ChannelsLast(model.forward)
        return True

    def _sdpa(self, model: Any, _: str) -> bool:
        changed = False
        for module in model.modules():
            attention = _attention(module)
            if attention == "eager" and hasattr(module, "set_attn_implementation"):
                module.set_attn_implementation("sdpa")
                changed = True
            elif attention is False:
                module.fused_attn = changed = True
        return changed

    def _around_loader(self, begin: Any) -> Any:
        signature = inspect.signature(begin)

        @functools.wraps(begin)
        def begin_loader(*args: Any, **kwargs: Any) -> None:
            given = signature.bind(*args, **kwargs)
            try:
                self._edit_loader(given.arguments)
            except Exception as fault:
                self.problems["loader"] = f"{type(fault).__name__}: {fault}"
            begin(*given.args, **given.kwargs)
            loader = given.arguments["self"]
            if len(self.loaders) < 16:
                self.loaders.append({
                    "workers": loader.num_workers, "pinned": bool(loader.pin_memory),
                    "persistent": bool(loader.persistent_workers), "batch": loader.batch_size,
                    "iterable": isinstance(loader.dataset, self._torch.utils.data.IterableDataset),
                })  # fmt: skip

        return begin_loader

    def _edit_loader(self, given: dict[str, Any]) -> None:
        data = given["dataset"]
        iterable = isinstance(data, self._torch.utils.data.IterableDataset)
        if "loader-workers" in self.ids and not given.get("num_workers") and not iterable:
            given["num_workers"] = self._workers
            self.counts["loader-workers"] += 1
        if "loader-pinned" in self.ids and not given.get("pin_memory"):
            given["pin_memory"] = True
            self.counts["loader-pinned"] += 1
        if given.get("num_workers"):
            if "loader-persistent" in self.ids and not given.get("persistent_workers"):
                given["persistent_workers"] = True
                self.counts["loader-persistent"] += 1
            if "loader-prefetch" in self.ids:
                given["prefetch_factor"] = 2 * (given.get("prefetch_factor") or PREFETCH // 2)
                self.counts["loader-prefetch"] += 1
        if "double-batch" in self.ids:
            self._double(data, given)

    def _double(self, data: Any, given: dict[str, Any]) -> None:
        """Twice the batch; a loader made from one that is doubled (Accelerate does that) stays."""
        sampler = given.get("batch_sampler")
        size = (
            given.get("batch_size", 1) if sampler is None else getattr(sampler, "batch_size", None)
        )
        if not isinstance(size, int) or (id(data), size) in self._doubled:
            return
        self._doubled.add((id(data), 2 * size))
        if sampler is None:
            given["batch_size"] = 2 * size
        else:
            sampler.batch_size = 2 * size
        self.counts["double-batch"] += 1

    def _around_optimizer(self, begin: Any) -> Any:
        takes_fused = "fused" in inspect.signature(begin).parameters

        @functools.wraps(begin)
        def begin_optimizer(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            if "fused-optimizer" in self.ids and takes_fused and kwargs.get("fused") is None:
                kwargs.update(fused=True, foreach=None)
                self.counts["fused-optimizer"] += 1
            begin(optimizer, *args, **kwargs)
            if not any(known["id"] == id(optimizer) for known in self.optimizers):
                fused = bool(optimizer.defaults.get("fused"))
                kind = type(optimizer).__name__
                self.optimizers.append({"id": id(optimizer), "class": kind, "fused": fused})

        return begin_optimizer


def compiled_graphs() -> int:
    dynamo = sys.modules.get("torch._dynamo.utils")
    counters = getattr(dynamo, "counters", None)
    return 0 if counters is None else int(counters["stats"]["unique_graphs"])


def _autocast(torch: Any) -> bool:
    return bool(torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())


def _trainer() -> str | None:
    """The library whose loop calls us."""
    frame: Any = sys._getframe()
    while frame is not None:
        trainer = TRAINERS.get(frame.f_globals.get("__name__"))
        if trainer is not None:
            return trainer
        frame = frame.f_back
    return None


def _attention(module: Any) -> Any:
    """`eager` or `sdpa` of a transformers model, True or False of a timm layer; None of others."""
    config = getattr(module, "config", None)
    chosen = getattr(config, "_attn_implementation", None)
    return vars(module).get("fused_attn") if chosen is None else chosen


class Forward:
    """A module's `forward` with an edit.

    A copy of the module (averaged weights, say) has one of its own, over its own weights; in a file that the
    program saves the module with, `forward` is as it was.
    """

    torch: Any = None

    def __init__(self, forward: Any, way: Any = None) -> None:
        self._forward, self._way = forward, way
        functools.update_wrapper(self, forward, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Forward:
        return type(self)(copy.deepcopy(self._forward, memo), self._way)

    def __reduce__(self) -> Any:
        return self._forward.__reduce__()


class Compiled(Forward):
    def __init__(self, forward: Any, way: Any) -> None:
        super().__init__(forward, way)
        self._compiled = self.torch.compile(forward, **way)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)


class Autocast(Forward):
    """Under autocast to bf16, on the device `way`.

    What it returns becomes float32 again, as with Accelerate, unless the loss is computed inside: a loss
    function that is called outside would else add up in bf16, which under autocast it does not.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.torch.autocast(self._way, dtype=self.torch.bfloat16):
            result = self._forward(*args, **kwargs)
        return self._in_float32(result)

    def _in_float32(self, value: Any) -> Any:
        if isinstance(value, self.torch.Tensor):
            return value.float() if value.dtype is self.torch.bfloat16 else value
        parts = value.values() if isinstance(value, dict) else value
        if not isinstance(value, (dict, tuple, list)) or any(
            isinstance(one, self.torch.Tensor) and one.dim() == 0 for one in parts
        ):
            return value
        if isinstance(value, dict):  # of torchvision's segmentation, of transformers
            for name, one in list(value.items()):
                value[name] = self._in_float32(one)
            return value
        plain = type(value) in (tuple, list)
        return type(value)(map(self._in_float32, value)) if plain else value


class ChannelsLast(Forward):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kwargs = {name: self._converted(value) for name, value in kwargs.items()}
        return self._forward(*map(self._converted, args), **kwargs)

    def _converted(self, value: Any) -> Any:
        if isinstance(value, self.torch.Tensor) and value.dim() == 4:
            return value.contiguous(memory_format=self.torch.channels_last)
        return value
