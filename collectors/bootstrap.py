"""The text that loads the agent inside the trainer. Runs in the monitor; only the text goes over.

The text is run by `PyRun_SimpleString`, from a pending call in the trainer's main thread, or by
`sys.remote_exec`. Both may run it in the user's `__main__`, so it defines no name there, raises
nothing (a pending call that fails becomes a `SystemError` in the user's code) and only starts a
thread, in which the rest happens.
"""

from __future__ import annotations

from collectors.agent.facts import VERSION

PAYLOAD_LIMIT_BYTES = 2048
REFUSED_SUFFIX = ".refused"
"""Beside the socket: a file with the sentence why the agent did not start."""

_BOOT = """\
def boot(folder, library, socket, options, version):
    try:
        import sys
        if sys.version_info < (3, 9):
            was = "Python %d.%d is too old: brrrtop enters 3.9 and newer"
            raise ImportError(was % sys.version_info[:2])
        if "_brrrtop_agent" not in sys.modules:
            from importlib.util import module_from_spec, spec_from_file_location
            spec = spec_from_file_location("_brrrtop_agent", folder + "/__init__.py",
                                           submodule_search_locations=[folder])
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules["_brrrtop_agent"] = module
        from _brrrtop_agent.pieces import load
        told = load()(library, socket, options, version)
    except Exception as fault:
        told = "%s: %s" % (type(fault).__name__, fault)
    if told:
        try:
            import os
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(socket + ".refused", flags, 0o600), "wb") as file:
                file.write(told.encode("utf-8", "replace"))
        except Exception:
            pass
import _thread
_thread.start_new_thread(boot, ARGUMENTS)
"""

_OUTER = """\
try: exec({code!r}, {{"__name__": "_brrrtop_boot"}})
except KeyboardInterrupt: __import__("_thread").interrupt_main()
except: pass
"""
"""Ctrl-C that strikes here is handed on: it was meant for the trainer."""


def payload(agent_dir: str, library_path: str, socket_path: str, options: str = "") -> str:
    """The text to run in the trainer.

    Args:
        agent_dir: The folder `collectors/agent`, as the trainer sees it (containers).
        library_path: The native library, as the trainer sees it.
        socket_path: Where the agent is to listen; a refusal lands beside it (`REFUSED_SUFFIX`).
        options: `key=value;key=value`, see `collectors/agent/entry.py` and the native header.

    Raises:
        ValueError: The paths are too long for the room a text may take.
    """
    arguments = repr((agent_dir, library_path, socket_path, options, VERSION))
    text = _OUTER.format(code=_BOOT.replace("ARGUMENTS", arguments))
    if len(text.encode()) > PAYLOAD_LIMIT_BYTES:
        raise ValueError(f"the paths make the payload longer than {PAYLOAD_LIMIT_BYTES} bytes")
    if "\0" in text:
        raise ValueError("a path holds a zero byte")
    return text
