"""Starts the agent in the trainer once, stops it, and keeps forked children clean."""

from __future__ import annotations

import atexit
import os
from _thread import allocate_lock, start_new_thread

from .control import Control
from .facts import VERSION, hello
from .library import Native, NativeError

_lock = allocate_lock()
_control: Control | None = None
_watching = False


def start(library_path: str, socket_path: str, options: str = "", version: str = VERSION) -> str:
    """Start the agent, or leave a running one alone.

    Args:
        library_path: The native library.
        socket_path: Where it is to listen.
        options: `key=value;key=value` for the library.
        version: The brrrtop that asks. Loaded code is never replaced: another version is refused.

    Returns:
        Nothing when the agent runs, else the reason why not.
    """
    global _control
    if version != VERSION:
        return (
            f"brrrtop {VERSION} is loaded in this process already and {version} cannot replace "
            f"it: watch with brrrtop {VERSION}, or restart the trainer"
        )
    with _lock:
        if _control is not None and not _control.ended:
            if socket_path == _control.socket_path:
                return ""
            if os.path.exists(_control.socket_path):
                return f"the agent listens at {_control.socket_path} already"
            _control.end()  # its folder is gone, nobody can reach it there
        _watch()
        try:
            native = Native(library_path)
            native.start(socket_path, hello(), options)
        except NativeError as fault:
            return str(fault)
        _control = Control(native, socket_path)
        start_new_thread(_control.run, ())  # a raw one: `threading.enumerate` does not list it
        return ""


def stop() -> None:
    """Undo everything. The library stays mapped and asleep."""
    global _control
    control, _control = _control, None
    if control is not None:
        control.end()


def _watch() -> None:
    """Be told of forks and of the end. Neither can be taken back; they do nothing with no agent."""
    global _watching
    if not _watching:
        _watching = True
        os.register_at_fork(after_in_child=_on_fork)
        atexit.register(stop)


def _on_fork() -> None:
    global _control, _lock
    control, _control, _lock = _control, None, allocate_lock()
    if control is not None:
        control.end(forked=True)
