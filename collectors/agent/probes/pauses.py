"""What makes a training thread pause: compiles, collections, saves and logs, the allocator."""

from __future__ import annotations

import gc
from collections import deque
from functools import partial
from time import time_ns
from types import CodeType
from typing import Any

from ..library import ALLOCATOR, CHECKPOINT, COMPILE, LOGGING, STATUS, this_thread
from .probe import Probe, find_imported

_METRICS_WAIT_NS = 3_000_000_000
"""torch books a compile's metrics after its end callback; later than this they will not come."""

Compile = tuple[int, int, int, str, str]
"""An outermost compile: start and end in ns, thread, trigger, compile id."""
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


class Compiling(Probe):
    """Dynamo's start and end callbacks; reasons are looked up later, on the control thread.

    The mark's value is the recompile number; 0 for a first compile, and for what belongs to one
    already counted (a backward compiled late, CUDA graphs recorded).
    """

    name = "compile"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._started, self._ended = self.guard(self._start), self.guard(self._end)
        self._open: dict[int, Compile] = {}
        self._done: deque[Compile] = deque(maxlen=256)
        self._told_ns = 0
        self._skipped: set[CodeType] = set()

    def place(self) -> None:
        for callbacks, ours in self._places():  # torch._dynamo.reset() empties these lists
            if ours not in callbacks:
                callbacks.append(ours)
        skip = find_imported("torch._dynamo.eval_frame", "skip_code")
        if skip is not None:
            for code in self.fence.codes - self._skipped:
                self._skipped.add(code)
                skip(code)

    def clear(self) -> None:
        for callbacks, ours in self._places():
            while ours in callbacks:
                callbacks.remove(ours)
        self._open.clear()
        self._done.clear()

    def wake(self, now_ns: int) -> None:
        """Send what has ended, and say so when a compile takes more than a second."""
        read = (
            find_imported("torch._dynamo.utils", "get_compilation_metrics") if self._done else None
        )
        metrics = {str(one.compile_id): one for one in read()[-64:]} if read is not None else {}
        for _ in range(len(self._done)):
            compile_ = self._done.popleft()
            compilation = metrics.get(compile_[4])
            if compilation is None and now_ns - compile_[1] < _METRICS_WAIT_NS:
                self._done.append(compile_)
            else:
                self._send(compile_, compilation)
        for start_ns, _, _, trigger, compile_id in list(self._open.values()):
            if now_ns - start_ns > 1_000_000_000 and start_ns != self._told_ns:
                self._told_ns = start_ns
                message = f"torch.compile is at work ({trigger} {compile_id})"
                self.native.frame(STATUS, {"says": message, "compiling": True})
        if self._told_ns and not any(one[0] == self._told_ns for one in list(self._open.values())):
            self._told_ns = 0
            self.native.frame(STATUS, {"compiling": False})

    def _places(self) -> list[tuple[list[Any], Any]]:
        handler = find_imported("torch._dynamo.callback", "callback_handler")
        if handler is None:
            return []
        return [(handler.start_callbacks, self._started), (handler.end_callbacks, self._ended)]

    def _start(self, *arguments: Any) -> None:
        """Before torch 2.7 the callbacks are called with nothing."""
        trigger, compile_id = "DYNAMO", ""
        if arguments:
            trigger, compile_id = arguments[0].callback_trigger.name, str(arguments[0].compile_id)
        thread = this_thread()
        self._open[thread] = (time_ns(), 0, thread, trigger, compile_id)

    def _end(self, *_: Any) -> None:
        opened = self._open.pop(this_thread(), None)
        if opened is not None:
            self._done.append((opened[0], time_ns(), *opened[2:]))

    def _send(self, compile_: Compile, compilation: Any | None) -> None:
        start_ns, end_ns, thread, trigger, compile_id = compile_
        name = f"{trigger} {compile_id} {getattr(compilation, 'co_name', None) or ''}".strip()
        reason = getattr(compilation, "recompile_reason", None)
        if reason:
            name += f" | {' '.join(reason.split())[:240]}"
        # 2 of `7/2` or `7/2_1`: how often that frame had been compiled before.
        tail = compile_id.rpartition("/")[2].partition("_")[0]
        number = int(tail) if trigger == "DYNAMO" and tail.isdigit() else 0
        self.native.mark(COMPILE, start_ns, end_ns, number, self.native.name(name), thread)


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


class Collections(Probe):
    """A `gc.callbacks` entry. The mark's value is the generation.

    It is the library's own function, and no Python: the interpreter would run the trainer's signal
    handlers in that, and drops whatever a callback of `gc` raises.
    """

    name = "gc"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._callback = self.native.collection

    def place(self) -> None:
        if self._callback not in gc.callbacks:
            self._callback("start", {})  # one under way counts from here, not from an older start
            gc.callbacks.append(self._callback)

    def clear(self) -> None:
        while self._callback in gc.callbacks:
            gc.callbacks.remove(self._callback)


class Allocator(Probe):
    """No hook: reads torch's counters on the control thread, and only for devices in use."""

    name = "allocator"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._asked_ns = 0
        self._retries: dict[int, int] = {}

    def clear(self) -> None:
        self._retries.clear()

    def wake(self, now_ns: int) -> None:
        """Once a second, mark new retries."""
        read = find_imported("torch._C", "_cuda_memoryStats")
        if read is None or now_ns - self._asked_ns < 1_000_000_000:
            return
        self._asked_ns = now_ns
        for device in devices_in_use():
            count = read(device).get("num_alloc_retries", 0)
            retries = count - self._retries.get(device, count)
            self._retries[device] = count
            if retries > 0:
                name_id = self.native.name(f"allocator retry on device {device}")
                self.native.mark(ALLOCATOR, now_ns, now_ns, retries, name_id, this_thread())


def devices_in_use() -> list[int]:
    """CUDA ordinals on which the trainer has a context; none before it initialised CUDA itself."""
    ready = find_imported("torch.cuda", "is_initialized")
    count = find_imported("torch._C", "_cuda_getDeviceCount")
    context = find_imported("torch._C", "_cuda_hasPrimaryContext")
    if ready is None or count is None or context is None or not ready():
        return []
    return [device for device in range(count()) if context(device)]
