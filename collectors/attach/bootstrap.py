"""The texts that load the agent inside the trainer. Runs in the monitor; only the texts go over.

A `payload` is run in a thread of ours (`collectors.attach.ptrace.worker`), or in the trainer's main thread by
`sys.remote_exec`, there in the user's `__main__`. So it defines no name there, raises nothing and
only starts a thread, in which the rest happens. A forked child inherits what was asked of its parent:
in any process but the one it was made for the text does nothing.

A `site_text` is the `sitecustomize.py` that `brrrtop run` puts before the trainer's own. It acts late and
little: the interpreter's own sitecustomize runs as if this one did not exist, and only a process that
imports torch and then makes a CUDA context gets an agent, or one that imports another library for GPUs
and has loaded the driver. So launchers such as torchrun, loader workers, compile workers and other
helpers stay as they are, and each rank gets its own agent.
"""

from __future__ import annotations

from collectors.agent.facts import VERSION

PAYLOAD_LIMIT_BYTES = 2048
REFUSED_SUFFIX = ".refused"
"""Beside the socket: a link whose target is the sentence why the agent did not start. A link comes whole,
and needs no descriptor where the trainer has none left."""

BOOT = """\
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
        from _brrrtop_agent.loading import load
        told = load()(library, socket, options, version)
    except Exception as fault:
        told = "%s: %s" % (type(fault).__name__, fault)
    if told:
        try:
            os.symlink(told.encode("utf-8", "replace").replace(b"\\0", b"")[:4000],
                       os.fsencode(socket) + b".refused")
        except Exception:
            pass
import os
"""
"""`boot` loads the agent, and never raises."""
_START = """\
import _thread
if PID in (0, os.getpid()): _thread.start_new_thread(boot, ARGUMENTS)
"""

_OUTER = """\
try: exec({code!r}, {{"__name__": "_brrrtop_boot"}})
except KeyboardInterrupt: __import__("_thread").interrupt_main()
except: pass
"""
"""Ctrl-C that strikes here is handed on: it was meant for the trainer."""


def payload(
    agent_dir: str, library_path: str, socket_path: str, options: str = "", pid: int = 0
) -> str:
    """The text to run in the trainer.

    Args:
        agent_dir: The folder `collectors/agent`, as the trainer sees it (containers).
        library_path: The native library, as the trainer sees it.
        socket_path: Where the agent is to listen; a refusal lands beside it (`REFUSED_SUFFIX`).
        options: `key=value;key=value`, see `collectors/agent/entry.py` and the native header.
        pid: The only process in which the text is to do anything, by its own number; 0: any.

    Raises:
        ValueError: The paths are too long for the room a text may take.
    """
    arguments = repr((agent_dir, library_path, socket_path, options, VERSION))
    text = _OUTER.format(
        code=BOOT + _START.replace("PID", str(pid)).replace("ARGUMENTS", arguments)
    )
    if len(text.encode()) > PAYLOAD_LIMIT_BYTES:
        raise ValueError(f"the paths make the payload longer than {PAYLOAD_LIMIT_BYTES} bytes")
    if "\0" in text:
        raise ValueError("a path holds a zero byte")
    return text


SITE_NAME = "sitecustomize.py"
PID = "@PID@"
"""Stands for the process number where a path is not known before the process is."""

CHAIN = """\
def _chain(folder):
    import sys
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = sys.modules["sitecustomize"] = module_from_spec(spec)
    spec.loader.exec_module(module)
"""
"""`_chain` runs the interpreter's own sitecustomize, as if ours in `folder` did not exist."""
_SITE = '''

def _watch(payload, when):
    import os, sys, time, _thread

    def driver():
        if not others & sys.modules.keys():
            return False
        try:
            import _ctypes
            _ctypes.dlopen("libcuda.so.1", os.RTLD_NOLOAD | os.RTLD_LAZY)
        except (ImportError, OSError):
            return False
        return True

    def ready():
        torch = sys.modules.get("torch")
        if torch is None:
            return driver()
        if getattr(getattr(torch, "__spec__", None), "_initializing", False):
            return False
        return when == "torch" or getattr(getattr(torch, "cuda", None), "_initialized", False)

    def follow():
        try:
            pause = 0.05
            while not ready():
                time.sleep(pause)
                pause = min(pause * 1.05, 1.0)
            text = payload.replace("@PID@", str(os.getpid()))
            exec(text, {"__name__": "_brrrtop_boot"})
        except BaseException:
            pass

    others = {"jax", "jaxlib", "cupy", "tensorflow", "paddle", "mxnet", "numba.cuda", "pycuda", "cuda",
              "warp", "tinygrad", "onnxruntime", "tensorrt"}

    class Torch:
        """Sees torch being imported and finds nothing, so that the import goes its usual way."""
        seen = False

        @classmethod
        def find_spec(cls, name, path=None, target=None):
            if (name == "torch" or name in others) and not cls.seen:
                cls.seen = True
                if os.environ.pop("BRRRTOP_INJECT", None):  # that way is for programs without Python
                    os.environ.pop("CUDA_INJECTION64_PATH", None)
                try:
                    _thread.start_new_thread(follow, ())
                except BaseException:
                    pass
            return None

    sys.meta_path.insert(0, Torch)


try:
    _watch(PAYLOAD, WHEN)
except Exception:
    pass
_chain(FOLDER)
'''


def site_text(folder: str, payload: str, when: str) -> str:
    """The file's text.

    Args:
        folder: Where the file lies; taken out of the module search path again.
        payload: Of `payload`, with `PID` in the socket's path.
        when: `cuda` or `torch`: what a process must have in it before it gets an agent.
    """
    text = (CHAIN + _SITE).replace("PAYLOAD", repr(payload), 1).replace("WHEN", repr(when), 1)
    return text.replace("(FOLDER)", f"({folder!r})", 1)
