"""What every probe has in common, and the one way an attribute of somebody else's is replaced."""

from __future__ import annotations

import functools
import sys
from time import time_ns
from typing import Any, Callable, List, Optional

from .fence import Fence
from .native import Native

_ABSENT = object()


class Patch:
    """One attribute of a class or module, replaced until `remove`."""

    def __init__(self, owner: Any, attribute: str, replacement: Any) -> None:
        self.owner, self.attribute, self.ours = owner, attribute, replacement
        self._before = vars(owner).get(attribute, _ABSENT)
        setattr(owner, attribute, replacement)

    def remove(self) -> None:
        """Put back what was there, unless somebody has wrapped ours since: theirs must go on working."""
        if vars(self.owner).get(self.attribute) is not self.ours:
            return
        if self._before is _ABSENT:
            delattr(self.owner, self.attribute)
        else:
            setattr(self.owner, self.attribute, self._before)


class Probe:
    """One source of marks. `install` may be called again and again: what it needs may be imported later."""

    name = ""

    def __init__(self, native: Native, fence: Fence) -> None:
        self.native, self.fence = native, fence
        self.patches: List[Patch] = []
        self.live = False

    def install(self) -> None:
        """Put in place what is not yet. Imports nothing: only looks at what the trainer has imported."""
        self.live = True

    def remove(self) -> None:
        """Leave the trainer as it was."""
        self.live = False
        while self.patches:
            self.patches.pop().remove()

    def wake(self, now_ns: int) -> None:
        """What there is to do off the training thread, at most twice a second."""

    def guard(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call` behind the fence, under this probe's name."""
        return self.fence.guard(self.name, call)

    def patched(self, owner: Any, attribute: str) -> bool:
        """True when that attribute is replaced already."""
        return any(p.owner is owner and p.attribute == attribute for p in self.patches)

    def replace(self, owner: Any, attribute: str, replacement: Any) -> None:
        """Patch `owner.attribute`, to be undone by `remove`."""
        self.patches.append(Patch(owner, attribute, replacement))

    def timed(self, original: Any, ended: Callable[[int, Any], None]) -> Any:
        """`original`, followed by `ended(start_ns, its first argument)`, however it ends."""
        ended = self.guard(ended)

        @functools.wraps(original)
        def brrrtop_timed(*args: Any, **kwargs: Any) -> Any:
            start_ns = time_ns()
            try:
                return original(*args, **kwargs)
            finally:
                if self.live:
                    ended(start_ns, args[0] if args else None)

        brrrtop_timed._torchdynamo_disable = True  # type: ignore[attr-defined]
        self.fence.codes.add(brrrtop_timed.__code__)
        return brrrtop_timed


def imported(module: str, path: str = "") -> Optional[Any]:
    """A module the trainer has imported to the end, or what the dotted `path` leads to in it.

    Looks into dictionaries only: `getattr` on a module may import (torch and wandb load lazily).
    """
    found: Any = sys.modules.get(module)
    if found is None or getattr(getattr(found, "__spec__", None), "_initializing", False):
        return None
    for attribute in filter(None, path.split(".")):
        found = vars(found).get(attribute)
        if found is None:
            return None
    return found
