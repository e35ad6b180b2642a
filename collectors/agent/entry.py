"""Starts the agent in the trainer once, stops it, and keeps forked children clean."""

from __future__ import annotations

import atexit
import os
import sys
from _thread import allocate_lock
from typing import List, Optional, Set, Tuple

from . import facts
from .control import Control
from .native import Native, NativeError

_OURS = ("probes",)
"""Options that are for us; the library refuses those it does not know."""

_lock = allocate_lock()
_control: Optional[Control] = None
_watching_forks = False


def start(library_path: str, socket_path: str, options: str = "", version: str = facts.VERSION) -> str:
    """Start the agent, or leave a running one alone. Never raises on the trainer's account.

    Args:
        library_path: The native library, as the trainer sees its path.
        socket_path: Where it is to listen.
        options: `key=value;key=value`; `probes=steps,loader` limits the probes, the rest is the library's.
        version: The brrrtop that asks. Loaded code is never replaced, so another version is refused.

    Returns:
        Nothing when the agent runs, else the sentence that says why it does not.
    """
    global _control
    if sys.version_info < facts.OLDEST_PYTHON:
        return f"Python {sys.version.split()[0]} is too old: brrrtop enters 3.9 and newer"
    if version != facts.VERSION:
        return (
            f"brrrtop {facts.VERSION} is loaded in this process already and {version} cannot replace it: "
            f"watch with brrrtop {facts.VERSION}, or restart the trainer"
        )
    with _lock:
        if _control is not None and not _control.ended:
            if socket_path == _control.socket_path:
                return ""
            if os.path.exists(_control.socket_path):
                return f"the agent listens at {_control.socket_path} already"
            _control.end()  # its folder is gone, nobody can reach it there
        wanted, rest = _split(options)
        try:
            native = Native(library_path)
            native.start(socket_path, facts.hello(), rest)
        except NativeError as fault:
            return str(fault)
        _watch_forks()
        _control = Control(native, socket_path, wanted)
        _control.begin()
        return ""


def stop() -> None:
    """Undo everything. The library stays mapped and asleep."""
    global _control
    control, _control = _control, None
    if control is not None:
        control.end()


def _split(options: str) -> Tuple[Optional[Set[str]], str]:
    wanted: Optional[Set[str]] = None
    rest: List[str] = []
    for part in filter(None, options.split(";")):
        key, _, value = part.partition("=")
        if key.strip() in _OURS:
            wanted = set(filter(None, value.split(",")))
        else:
            rest.append(part)
    return wanted, ";".join(rest)


def _watch_forks() -> None:
    """These two cannot be taken back, or need not be: they do nothing while no agent runs."""
    global _watching_forks
    if not _watching_forks:
        _watching_forks = True
        os.register_at_fork(after_in_child=_forked)
        atexit.register(stop)


def _forked() -> None:
    global _control, _lock
    control, _control, _lock = _control, None, allocate_lock()
    if control is not None:
        control.forked()
