"""What every probe has in common, and the one way an attribute of somebody else's is replaced."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from time import time_ns
from typing import Any

from ..fault_guard import FaultGuard
from ..library import Native


class Probe:
    """One source of marks. Subclasses fill in `place`, `clear` and `wake`, callable at any time."""

    name = ""

    def __init__(self, native: Native, fence: FaultGuard) -> None:
        self.native, self.fence = native, fence
        self.live = 0
        """Which installation this is, 0 while removed: a wrapper left behind stays silent."""
        self._installed_count = 0
        self._patches: list[tuple[Any, str, Any, Any]] = []
        """Owner, attribute, ours and the original, in the order of their placing."""

    def install(self) -> None:
        """Put in place what is not yet: what a probe hooks may be imported later."""
        if not self.live:
            self.live = self._installed_count = self._installed_count + 1
        self.place()

    def remove(self) -> None:
        """Leave the trainer as it was.

        What somebody has wrapped since keeps our wrapper inside theirs; it does nothing then.
        """
        self.live = 0
        while self._patches:
            owner, attribute, ours, original = self._patches.pop()
            if vars(owner).get(attribute) is ours:
                setattr(owner, attribute, original)
        self.clear()

    def place(self) -> None:
        """Hook what the trainer has imported by now and is not hooked yet."""

    def clear(self) -> None:
        """Unhook what is not a patch; forget what was remembered of the trainer."""

    def wake(self, now_ns: int) -> None:
        """What there is to do off the training thread, at most twice a second."""

    def guard(self, call: Callable[..., Any]) -> Callable[..., Any]:
        return self.fence.guard(self.name, call)

    def patch(
        self,
        owner: Any,
        attribute: str,
        before: Callable[[Any], None] | None = None,
        after: Callable[[Any, int], None] | None = None,
    ) -> None:
        """Have each call of `owner.attribute` preceded and followed by a call of ours.

        They get the arguments, a tuple; `after` also when the call began, however it ended.
        Once only, and only what `owner` defines itself. A function that has two owners gets the
        same wrapper in both: pickling it by name has to find the same object.
        """
        original = vars(owner).get(attribute)
        if original is None or any(p[0] is owner and p[1] == attribute for p in self._patches):
            return
        wrapped = [patch[2] for patch in self._patches if patch[3] is original]
        ours = wrapped[0] if wrapped else self._around(original, before, after)
        self._patches.append((owner, attribute, ours, original))
        setattr(owner, attribute, ours)

    def _around(self, original: Any, before: Any, after: Any) -> Any:
        ahead, behind = before and self.guard(before), after and self.guard(after)
        made = self.live

        @functools.wraps(original)
        def brrrtop_around(*args: Any, **kwargs: Any) -> Any:
            if ahead is not None and self.live == made:
                ahead(args)
            start_ns = time_ns()
            try:
                return original(*args, **kwargs)
            finally:
                if behind is not None and self.live == made:
                    behind(args, start_ns)

        self.fence.exempt(brrrtop_around)
        return brrrtop_around


def find_imported(module: str, path: str = "") -> Any:
    """A module the trainer has imported to the end, or what the dotted `path` leads to in it.

    `None` where there is no such thing. Looks into dictionaries only: `getattr` on a module may
    import (torch and wandb load lazily).
    """
    value: Any = sys.modules.get(module)
    if value is None or getattr(getattr(value, "__spec__", None), "_initializing", False):
        return None
    for attribute in filter(None, path.split(".")):
        value = vars(value).get(attribute)
        if value is None:
            return None
    return value
