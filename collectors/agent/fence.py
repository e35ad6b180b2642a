"""The fence: keeps our faults out of the trainer, counts them, and says when to stop."""

from __future__ import annotations

from types import CodeType
from typing import Any, Callable, Dict, Set

PROBE_FAULT_LIMIT = 3
FAULT_LIMIT = 10


class Fence:
    """Every call of ours from the trainer's threads goes through `guard`.

    Only `Exception` is held back: `KeyboardInterrupt`, `SystemExit` and their kin belong to the trainer.
    """

    def __init__(self) -> None:
        self.faults: Dict[str, int] = {}
        self.last: Dict[str, str] = {}
        self.codes: Set[CodeType] = set()
        """Our code that may run inside a compiled region: torch.compile has to leave it alone."""

    def caught(self, place: str, fault: Exception) -> None:
        """Count a fault of the probe called `place`."""
        self.faults[place] = self.faults.get(place, 0) + 1
        self.last[place] = f"{type(fault).__name__}: {fault}"[:200]

    def spent(self, place: str) -> bool:
        """True when that probe has failed too often to stay."""
        return self.faults.get(place, 0) >= PROBE_FAULT_LIMIT or self.tripped

    @property
    def tripped(self) -> bool:
        """True when there were so many faults in all that nothing of ours should stay."""
        return sum(self.faults.values()) >= FAULT_LIMIT

    def guard(self, place: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, except that its faults end here. Its answer is `None` then."""

        def guarded(*args: Any) -> Any:
            try:
                return call(*args)
            except Exception as fault:  # noqa: BLE001 - the fence
                self.caught(place, fault)
                return None

        # Without it torch.compile would trace into us, or refuse to compile what calls us.
        guarded._torchdynamo_disable = True  # type: ignore[attr-defined]
        self.codes.add(guarded.__code__)
        code = getattr(call, "__code__", None)
        if code is not None:
            self.codes.add(code)
        return guarded
