"""Python frames as torch.profiler names them: `/a/b/train.py(12): fetch`, `<built-in function sleep>`."""

from __future__ import annotations

import re

_FRAME = re.compile(r"(?P<file>[^<(][^(]*)\((?P<line>\d+)\): (?P<function>.+)")
_LIBRARY = re.compile(
    r"torch/|.*/(site|dist)-packages/|.*/torch/(nn|optim|autograd|utils|cuda|profiler|_)"
    r"|(.*/)?lib/python3"
    r"|(threading|contextlib|runpy|functools|typing|random|abc|queue|enum|os|copy|inspect|warnings|re"
    r"|weakref|(collections|logging)/__init__|(multiprocessing|concurrent|asyncio|importlib|json)/[\w/]+"
    r")\.py\("
)
_OBJECT = re.compile(r" object at 0x[0-9a-f]+|(?<= of )pybind11_builtins\.\w+")


def is_users(name: str) -> bool:
    """Is this a function of the user's own code, and not of torch, a package or the standard library?"""
    return _FRAME.match(name) is not None and _LIBRARY.match(name) is None


def without_object(name: str) -> str:
    """The name of a method without which object it was called on."""
    return _OBJECT.sub("", name)


def placed(name: str) -> str:
    """`b/train.py:12 fetch`, as samples of a live stack have it."""
    frame = _FRAME.match(name)
    if frame is None:
        return without_object(name)
    path = "/".join(frame["file"].rsplit("/", 2)[-2:])
    return f"{path}:{frame['line']} {frame['function']}"
