"""The C library as Python calls. Knows nothing of probes, nor of what a mark is for."""

from __future__ import annotations

import ctypes
import json
import os
from _thread import get_ident
from typing import Any

# Frame kinds and mark classes by number, as in `collectors/protocol/frames.py`, which is not in the trainer.
HELLO, DEVICE, MARKS, OPS, STATUS = 1, 3, 7, 8, 13
STEP, INPUT, COMPILE, GC, CHECKPOINT, ALLOCATOR, LOGGING, EVALUATION, OPTIMIZER, STACK = range(
    1, 11
)
PERTURBED, RECORDED_OP, PLACE = 14, 15, 16

# What `wait` answers, bit by bit.
STOP, CONNECTED, GONE, TRACING, ENDED, SHAPES, REST = 1, 8, 16, 64, 256, 512, 1024
"""STOP with GONE: nobody watches, unhook and wait. STOP alone: the monitor asked to detach."""

_U16, _I64, _U32, _TEXT = ctypes.c_uint16, ctypes.c_int64, ctypes.c_uint32, ctypes.c_char_p
_NAME_LIMIT = 4096


class NativeError(Exception):
    """The library cannot be loaded, or refused to start."""


class Native:
    """One loaded library.

    Calls from hooks go through `PyDLL`: letting go of the GIL and taking it again would cost the
    training thread far more than the call. Calls that may wait go through `CDLL`.
    """

    def __init__(self, library_path: str) -> None:
        try:
            quick, slow = ctypes.PyDLL(library_path), ctypes.CDLL(library_path)
            self.mark = _with_types(quick.brrr_mark, None, _U16, _I64, _I64, _I64, _U32, _U32)
            self.step = _with_types(quick.brrr_step, None, _I64, _U32)
            self.collection = _builtin(quick.brrr_collection)
            self._name = _with_types(quick.brrr_name, _U32, _TEXT)
            self._frame = _with_types(slow.brrr_frame, ctypes.c_int, _U16, _TEXT, _U32, _U32)
            self._start = _with_types(slow.brrr_start, ctypes.c_int, _TEXT, _TEXT, _TEXT)
            self._error = _with_types(slow.brrr_last_error, _TEXT)
            self._yield = _with_types(slow.brrr_yield, None, _TEXT)
            self.wait = _with_types(slow.brrr_wait, ctypes.c_int, ctypes.c_int)
            self.graphs = _with_types(slow.brrr_graphs, None, ctypes.c_int)
            self.capture = _with_types(quick.brrr_capture, None, ctypes.c_int)
            self.resume = _with_types(slow.brrr_resume, None)
            self.stop = _with_types(slow.brrr_stop, None)
        except (OSError, AttributeError) as fault:
            raise NativeError(f"the agent library cannot be used: {fault}") from fault
        self._names: dict[str, int] = {}

    def start(self, socket_path: str, hello: dict[str, Any], options: str) -> None:
        """Begin to listen at `socket_path`.

        Raises:
            NativeError: With the library's own reason.
        """
        code = self._start(os.fsencode(socket_path), to_json(hello), options.encode())
        if code != 0:
            reason = (self._error() or b"no reason given").decode("utf-8", "replace")
            raise NativeError(reason)

    def name(self, text: str) -> int:
        """The id of a name, asking the library once per name."""
        name_id = self._names.get(text)
        if name_id is None:
            if len(self._names) >= _NAME_LIMIT:
                self._names.clear()
            name_id = self._name(text.encode("utf-8", "replace").replace(b"\0", b""))
            self._names[text] = name_id
        return name_id

    def forget_names(self) -> None:
        """Ask the library anew for each name: once nobody watches, its table may begin anew."""
        self._names.clear()

    def frame(self, kind: int, body: Any) -> int:
        payload = to_json(body)
        return int(self._frame(kind, payload, len(payload), 0))

    def send_marks(self, records: bytes, count: int) -> int:
        """Send marks as the wire has them; negative: they were not taken."""
        return int(self._frame(MARKS, records, len(records), count))

    def give_way(self, who: str) -> None:
        """Take our hands off CUPTI; comes back when that is done."""
        self._yield(who.encode())

    def disarm(self) -> None:
        """In a forked child: the library's threads did not come along, so nothing may call it."""
        calls = "mark step _name _frame _yield wait resume stop graphs capture"
        for call in calls.split():
            setattr(self, call, _nothing)


def thread_number(ident: int) -> int:
    """A `threading.get_ident()` as CUPTI numbers threads: the low half of `pthread_self()`."""
    return ident & 0xFFFFFFFF


def this_thread() -> int:
    return get_ident() & 0xFFFFFFFF


def to_json(body: Any) -> bytes:
    """JSON without lone surrogates, which no reader would take."""
    return json.dumps(body, default=str, ensure_ascii=False).encode("utf-8", "replace")


def _with_types(call: Any, result: Any, *arguments: Any) -> Any:
    call.restype, call.argtypes = result, list(arguments)
    return call


def _builtin(method: Any) -> Any:
    """A function as the interpreter's own: of calls of ctypes' audit hooks are told from 3.14 on."""
    make = ctypes.PyDLL(None)["PyCFunction_NewEx"]
    definition = _with_types(method, ctypes.c_void_p)()
    something, address = ctypes.py_object, ctypes.c_void_p
    return _with_types(make, something, address, something, something)(definition, None, None)


def _nothing(*_: Any) -> int:
    return 0
