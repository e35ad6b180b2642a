"""The `sitecustomize.py` that `brrrtop run` puts before the trainer's own, as a text.

It acts late and little: the interpreter's own sitecustomize runs as if this one did not exist, and
only a process that imports torch and then makes a CUDA context gets an agent, or one that imports
another library for GPUs and has loaded the driver. So launchers such as
torchrun, loader workers, compile workers and other helpers stay as they are, and each rank gets
its own agent.
"""

from __future__ import annotations

SITE_NAME = "sitecustomize.py"
PID = "@PID@"
"""Stands for the process number where a path is not known before the process is."""

_TEXT = '''\
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
        payload: From `collectors.attach.bootstrap`, with `PID` in the socket's path.
        when: `cuda` or `torch`: what a process must have in it before it gets an agent.
    """
    text = _TEXT.replace("PAYLOAD", repr(payload), 1).replace("WHEN", repr(when), 1)
    return text.replace("(FOLDER)", f"({folder!r})", 1)
