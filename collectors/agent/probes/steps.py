"""Marks the end of each training step, from the optimizer's own hook, the waits for the next batch, and
the evaluation between two of them.

With several optimizers (GAN, Muon beside Adam) one of them is *the* step: the one that comes most
evenly in the beginning, or else a run would have steps of two kinds; when it is gone (the next trial of a
search, the next fold), whichever steps next. The others are marked as optimizer work.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from time import sleep, time_ns
from typing import Any
from weakref import ref

from ..library import EVALUATION, INPUT, OPTIMIZER, STEP, Native, this_thread
from .places import Places
from .probe import FaultGuard, Probe, find_imported

_MARKED_OPTIMIZERS = 8
"""With more (an optimizer per parameter), marking each would cost more than it tells."""
_TRIES = 400
"""Half a millisecond each. Where the steps leave no gap, the next round tries again."""
_OPTIONS = ("foreach", "fused", "capturable")


class Rhythm:
    __slots__ = ("label", "optimizer", "stamps")

    def __init__(self, label: str, optimizer: Any) -> None:
        self.label, self.optimizer = label, ref(optimizer)
        self.stamps: deque[int] = deque(maxlen=64)

    @property
    def gaps(self) -> list[int]:
        stamps = list(self.stamps)
        return sorted(b - a for a, b in zip(stamps, stamps[1:]))

    def is_silent(self, now_ns: int) -> bool:
        gaps = self.gaps
        return bool(gaps) and now_ns - self.stamps[-1] > 4 * gaps[-1]

    def unevenness(self, now_ns: int) -> float:
        """Spread of the middle half of the gaps over their median; infinite: too few, or silent."""
        gaps = self.gaps
        if len(gaps) < 8 or self.is_silent(now_ns):
            return float("inf")
        return (gaps[len(gaps) * 3 // 4] - gaps[len(gaps) // 4]) / max(gaps[len(gaps) // 2], 1)


class Steps(Probe):
    """Optimizer hook, and GradScaler, which may leave the optimizer out for a step."""

    name = "steps"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.places = Places(self.native)
        self._handle: Any | None = None
        self._inert = False
        # One function for the life of the process: torch.compile guards on which hooks there are.
        self._hook = self.guard(self._stepped)
        self._rhythms: dict[int, Rhythm] = {}
        self._primary: Rhythm | None = None
        self.last_ns = 0
        self.thread_ident = 0
        """The thread that steps, as `threading.get_ident()`; 0 before the first step."""
        self.on_step: Callable[[], None] | None = None
        """Called after each step, on the thread that steps."""

    def place(self) -> None:
        register = find_imported("torch.optim.optimizer", "register_optimizer_step_post_hook")
        self._inert = False
        if self._handle is None and register is not None:
            self._between_steps(lambda: setattr(self, "_handle", register(self._hook)))
        for module in ("torch.amp.grad_scaler", "torch.cuda.amp.grad_scaler"):
            scaler = find_imported(module, "GradScaler")
            if scaler is not None:
                self.patch(scaler, "_maybe_opt_step", after=self._on_scaler)

    def clear(self) -> None:
        self._inert = True  # what cannot be removed now does nothing from here on
        handle = self._handle
        if handle is not None and self._between_steps(handle.remove):
            self._handle = None

    @staticmethod
    def _between_steps(change: Callable[[], object]) -> bool:
        """Change torch's hooks while no thread goes through them; False: the time never came.

        torch iterates over the very dictionary: a change meanwhile raises in the trainer. A sleep
        comes back with a fresh turn of the GIL, 5 ms long, of which this takes some microseconds.
        """
        file = getattr(sys.modules.get("torch.optim.optimizer"), "__file__", None)
        for _ in range(_TRIES):
            if len(sys._current_frames()) > 1:  # a forked child has nobody to wait for
                sleep(0.0005)
            for frame in sys._current_frames().values():
                at: Any = frame
                while at is not None and at.f_code.co_filename != file:
                    at = at.f_back
                if at is not None:
                    break
            else:
                change()
                return True
        return False

    def wake(self, now_ns: int) -> None:
        """Settle which optimizer is the step."""
        rhythms, primary = list(self._rhythms.values()), self._primary
        if primary is None or len(rhythms) < 2:
            return
        silent = primary.is_silent(now_ns)
        best = min(rhythms, key=lambda rhythm: rhythm.unevenness(now_ns))
        settled = len(primary.stamps) == primary.stamps.maxlen and not silent
        if not settled and best.unevenness(now_ns) < primary.unevenness(now_ns) / 2:
            self._primary = best
        elif silent:
            self._primary = max(rhythms, key=lambda rhythm: rhythm.stamps[-1])

    @property
    def usual_ns(self) -> int:
        gaps = self._primary.gaps if self._primary is not None else []
        return gaps[len(gaps) // 2] if gaps else 0

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._inert:
            return
        now_ns = time_ns()
        rhythm = self._rhythms.get(id(optimizer))
        if (
            rhythm is None or rhythm.optimizer() is not optimizer
        ):  # one that is gone left its address
            rhythm = self._rhythm_of(optimizer)
        rhythm.stamps.append(now_ns)
        self.last_ns = now_ns
        native = self.native
        if rhythm is self._primary:
            native.step(now_ns, this_thread())
            if now_ns >= self.places.due.get(STEP, 0):
                self.places.note(STEP, STEP, now_ns)
            on_step = self.on_step
            if on_step is not None:
                on_step()
        elif len(self._rhythms) <= _MARKED_OPTIMIZERS:
            name_id = native.name(rhythm.label)
            native.mark(OPTIMIZER, now_ns, now_ns, 0, name_id, this_thread())

    def _rhythm_of(self, optimizer: Any) -> Rhythm:
        if len(self._rhythms) >= 1024:
            self._rhythms.clear()
        defaults = getattr(optimizer, "defaults", {})
        options = ", ".join(f"{key}={defaults[key]}" for key in _OPTIONS if key in defaults)
        label = f"{type(optimizer).__name__}({options})"
        self._rhythms = {
            key: one for key, one in self._rhythms.items() if one.optimizer() is not None
        }
        self._rhythms[id(optimizer)] = rhythm = Rhythm(label, optimizer)
        self.thread_ident = get_ident()
        if self._primary is None or self._primary.optimizer() is None:
            self._primary = rhythm
        return rhythm

    def _on_scaler(self, args: Any, start_ns: int) -> None:
        """A step that the scaler left out because of infinite gradients is a step all the same."""
        rhythm = self._rhythms.get(id(args[1]))
        if rhythm is not None and rhythm.stamps and rhythm.stamps[-1] < start_ns:
            self._stepped(args[1])


_BEGIN_GAP_NS = 250_000_000
"""Of iterations that begin more often, not each tells its place."""
_LOADER_OPTIONS = ("num_workers", "pin_memory", "prefetch_factor", "persistent_workers")


class Loader(Probe):
    """Every `next()` on a torch DataLoader, also in the middle of a running iteration.

    An INPUT mark's name tells how the loader is set up, its value the batches that lay ready behind
    the one drawn (-1: no workers). From a batch drawn with gradients off to the next one is
    evaluation, unless an optimizer stepped meanwhile: some loops prefetch with gradients off.
    """

    name = "loader"

    def __init__(self, native: Native, fence: FaultGuard, steps: Steps) -> None:
        super().__init__(native, fence)
        self._steps = steps
        self._names: dict[int, int] = {}
        self._evaluating_ns = self._begun_ns = 0
        self._grad_enabled: Callable[[], bool] = lambda: True

    def place(self) -> None:
        base = find_imported("torch.utils.data.dataloader", "_BaseDataLoaderIter")
        if base is None:
            return
        self._grad_enabled = find_imported("torch", "is_grad_enabled") or self._grad_enabled
        for owner in (base, *base.__subclasses__()):
            self.patch(owner, "__next__", after=self._on_wait)

    def clear(self) -> None:
        self._names.clear()
        self._evaluating_ns = 0

    def _on_wait(self, args: Any, start_ns: int) -> None:
        end_ns = time_ns()
        loader = args[0]
        name_id = self._names.get(id(loader))
        # An address is used again by the next epoch's iterator, which starts counting anew.
        if name_id is None or loader._num_yielded <= 1:
            name_id = self._on_loader(loader, end_ns)
        queue = getattr(loader, "_data_queue", None)
        ready = -1 if queue is None else queue.qsize()
        native = self.native
        thread = this_thread()
        native.mark(INPUT, start_ns, end_ns, ready, name_id, thread)
        places = self._steps.places
        if end_ns >= places.due.get(id(loader), 0):
            places.note(INPUT, id(loader), end_ns)
        if self._evaluating_ns > self._steps.last_ns:
            native.mark(EVALUATION, self._evaluating_ns, start_ns, 0, name_id, thread)
        self._evaluating_ns = 0 if self._grad_enabled() else start_ns

    def _on_loader(self, loader: Any, now_ns: int) -> int:
        due = self._steps.places.due
        if abs(now_ns - self._begun_ns) >= _BEGIN_GAP_NS:
            self._begun_ns = now_ns
            due.pop(id(loader), None)
        else:
            due.setdefault(id(loader), now_ns + _BEGIN_GAP_NS)
        if len(self._names) >= 64:
            self._names.clear()
        options = [f"{key}={getattr(loader, '_' + key, None)}" for key in _LOADER_OPTIONS]
        options.append(f"dataset={type(getattr(loader, '_dataset', None)).__name__}")
        self._names[id(loader)] = name_id = self.native.name(f"DataLoader({', '.join(options)})")
        return name_id
