"""Marks the end of each training step, from the optimizer's own hook.

With several optimizers (GAN, Muon beside Adam) one of them is *the* step: the one that comes most
evenly. The others are marked as optimizer work.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from time import time_ns
from typing import Any, Deque, Dict, List, Optional

from .native import OPTIMIZER
from .probe import Probe, imported

_STAMPS = 64
_MARKED_OPTIMIZERS = 8
"""With more (an optimizer per parameter), marking each would cost more than it tells."""
_SILENT_SHARE = 4
"""The step moves to another optimizer when its own has been silent this many times its period."""


class Rhythm:
    """When one optimizer stepped."""

    __slots__ = ("label", "name_id", "stamps")

    def __init__(self, label: str, name_id: int) -> None:
        self.label, self.name_id = label, name_id
        self.stamps: Deque[int] = deque(maxlen=_STAMPS)

    @property
    def gaps(self) -> List[int]:
        """Nanoseconds between steps, sorted."""
        stamps = list(self.stamps)
        return sorted(b - a for a, b in zip(stamps, stamps[1:]))

    def unevenness(self, now_ns: int) -> float:
        """Spread of the middle half of the gaps over their median; infinite when too few or gone quiet."""
        gaps = self.gaps
        if len(gaps) < 8:
            return float("inf")
        middle = max(gaps[len(gaps) // 2], 1)
        if now_ns - self.stamps[-1] > _SILENT_SHARE * max(gaps[-1], middle):
            return float("inf")
        return (gaps[len(gaps) * 3 // 4] - gaps[len(gaps) // 4]) / middle


class Steps(Probe):
    """Optimizer hook, and GradScaler, which may leave the optimizer out for a step."""

    name = "steps"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._handle: Optional[Any] = None
        # One function for the life of the process: torch.compile guards on which hooks there are.
        self._hook = self.guard(self._stepped)
        self._rhythms: Dict[int, Rhythm] = {}
        self._primary: Optional[Rhythm] = None
        self.last_ns = 0
        self.thread_ident = self.thread_id = 0
        """The thread that steps, as `threading.get_ident()` and as the kernel names it; 0 before."""

    def install(self) -> None:
        super().install()
        register = imported("torch.optim.optimizer", "register_optimizer_step_post_hook")
        if self._handle is None and register is not None:
            self._handle = register(self._hook)
        scaler = imported("torch.amp.grad_scaler", "GradScaler") or imported(
            "torch.cuda.amp.grad_scaler", "GradScaler"
        )
        if scaler is not None and not self.patched(scaler, "_maybe_opt_step"):
            original = vars(scaler).get("_maybe_opt_step")
            if original is not None:
                self.replace(scaler, "_maybe_opt_step", self._scaled(original))

    def remove(self) -> None:
        super().remove()
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def wake(self, now_ns: int) -> None:
        """Settle which optimizer is the step."""
        rhythms = list(self._rhythms.values())
        if len(rhythms) > 1 and self._primary is not None:
            held = self._primary.unevenness(now_ns)
            best = min(rhythms, key=lambda rhythm: rhythm.unevenness(now_ns))
            if best.unevenness(now_ns) < held / 2:
                self._primary = best

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        now_ns = time_ns()
        rhythm = self._rhythms.get(id(optimizer))
        if rhythm is None:
            rhythm = self._met(optimizer)
        rhythm.stamps.append(now_ns)
        self.last_ns = now_ns
        native = self.native
        if rhythm is self._primary:
            native.step(now_ns, native.thread())
        elif len(self._rhythms) <= _MARKED_OPTIMIZERS:
            native.mark(OPTIMIZER, now_ns, now_ns, 0, rhythm.name_id, native.thread())

    def _met(self, optimizer: Any) -> Rhythm:
        if len(self._rhythms) >= 1024:
            self._rhythms.clear()
        label = type(optimizer).__name__
        rhythm = Rhythm(label, self.native.name(label))
        self._rhythms[id(optimizer)] = rhythm
        self.thread_ident, self.thread_id = get_ident(), self.native.thread()
        if self._primary is None:
            self._primary = rhythm
        return rhythm

    def _scaled(self, original: Any) -> Any:
        """A step that was skipped because of infinite gradients is a step all the same."""
        skipped = self.guard(self._skipped)

        def brrrtop_maybe_step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before_ns = time_ns()
            done = original(scaler, optimizer, *args, **kwargs)
            if self.live:
                skipped(optimizer, before_ns)
            return done

        brrrtop_maybe_step._torchdynamo_disable = True  # type: ignore[attr-defined]
        return brrrtop_maybe_step

    def _skipped(self, optimizer: Any, before_ns: int) -> None:
        rhythm = self._rhythms.get(id(optimizer))
        if rhythm is not None and rhythm.stamps and rhythm.stamps[-1] < before_ns:
            self._stepped(optimizer)
