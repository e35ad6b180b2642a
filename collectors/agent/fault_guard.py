"""The fence: keeps our faults out of the trainer, counts them, and says when to stop."""

from __future__ import annotations

from types import CodeType
from typing import Any, Callable

from .signal_handlers import raised_by_handler

_PROBE_LIMIT = 3
_LIMIT = 10


class FaultGuard:
    """Every call of ours on the trainer's threads goes through `guard`.

    Only `Exception` is held back: `KeyboardInterrupt` and its kin are the trainer's. So is what a
    signal handler of the trainer raises, which the interpreter may run in the midst of our code.
    """

    def __init__(self) -> None:
        self.faults: dict[str, int] = {}
        self.last: dict[str, str] = {}
        self.codes: set[CodeType] = set()
        """Our code that may run inside a compiled region: torch.compile has to leave it alone."""

    def caught(self, place: str, fault: Exception) -> None:
        """Count a fault of the probe called `place`."""
        self.faults[place] = self.faults.get(place, 0) + 1
        self.last[place] = f"{type(fault).__name__}: {fault}"[:200]

    def spent(self, place: str) -> bool:
        """True when that probe has failed too often to stay."""
        return self.faults.get(place, 0) >= _PROBE_LIMIT or self.tripped

    @property
    def tripped(self) -> bool:
        """True when there were so many faults in all that nothing of ours should stay."""
        return sum(self.faults.values()) >= _LIMIT

    def guard(self, place: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, except that its faults end here. Its answer is `None` then."""

        def guarded(*args: Any) -> Any:
            try:
                return call(*args)
            except Exception as fault:
                try:
                    theirs = raised_by_handler(fault)
                    if not theirs:
                        self.caught(place, fault)
                except (RecursionError, MemoryError):
                    theirs = False  # the trainer left no room to look at it
                if theirs:
                    raise
                return None

        if hasattr(call, "__code__"):
            self.codes.add(call.__code__)
        self.exempt(guarded)
        return guarded

    def exempt(self, function: Any) -> None:
        """Keep torch.compile out of a function of ours: it would change what is compiled."""
        function._torchdynamo_disable = True
        self.codes.add(function.__code__)
