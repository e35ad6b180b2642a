"""What every probe has in common, and the one way an attribute of somebody else's is replaced."""

from __future__ import annotations

import functools
import sys
from time import time_ns
from typing import Any, Callable, Optional

from .fence import Fence
from .native import Native

_ABSENT = object()
Hook = Optional[Callable[..., None]]


class Probe:
    """One source of marks. Subclasses fill in `place`, `clear` and `wake`, callable at any time."""

    name = ""

    def __init__(self, native: Native, fence: Fence) -> None:
        self.native, self.fence = native, fence
        self.live = False
        self._patches: list[tuple[Any, str, Any, Any]] = []

    def install(self) -> None:
        """Put in place what is not yet: what a probe hooks may be imported later."""
        self.live = True
        self.place()

    def remove(self) -> None:
        """Leave the trainer as it was.

        What somebody has wrapped since keeps our wrapper inside theirs; it does nothing then.
        """
        self.live = False
        while self._patches:
            owner, attribute, ours, before = self._patches.pop()
            if vars(owner).get(attribute) is ours:
                if before is _ABSENT:
                    delattr(owner, attribute)
                else:
                    setattr(owner, attribute, before)
        self.clear()

    def place(self) -> None:
        """Hook what the trainer has imported by now and is not hooked yet."""

    def clear(self) -> None:
        """Unhook what is not a patch; forget what was remembered of the trainer."""

    def wake(self, now_ns: int) -> None:
        """What there is to do off the training thread, at most twice a second."""

    def guard(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call` behind the fence, under this probe's name."""
        return self.fence.guard(self.name, call)

    def patched(self, owner: Any, attribute: str) -> bool:
        """True when that attribute is replaced already."""
        return any(patch[0] is owner and patch[1] == attribute for patch in self._patches)

    def replace(self, owner: Any, attribute: str, ours: Any) -> None:
        """Set `owner.attribute`, to be undone by `remove`."""
        before = vars(owner).get(attribute, _ABSENT)
        self._patches.append((owner, attribute, ours, before))
        setattr(owner, attribute, ours)

    def around(self, original: Any, before: Hook = None, after: Hook = None) -> Any:
        """`original` after `before(arguments)` and, raise or not, before `after(arguments, start_ns)`."""
        ahead, behind = before and self.guard(before), after and self.guard(after)

        @functools.wraps(original)
        def brrrtop_around(*args: Any, **kwargs: Any) -> Any:
            if ahead is not None and self.live:
                ahead(args)
            start_ns = time_ns()
            try:
                return original(*args, **kwargs)
            finally:
                if behind is not None and self.live:
                    behind(args, start_ns)

        self.fence.exempt(brrrtop_around)
        return brrrtop_around


def imported(module: str, path: str = "") -> Any | None:
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
