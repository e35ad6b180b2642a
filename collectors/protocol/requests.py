"""What a monitor may ask of the agent, as frames. Knows nothing of sockets."""

import struct
import time
from enum import IntEnum, IntFlag

from collectors.protocol.frames import HEADER

CONTROL_KIND = 64
_CONTROL = struct.Struct("<IIqq")


class Op(IntEnum):
    """The wish; what `a` and `b` mean depends on it."""

    BURST = 1
    """Trace `a` whole steps, and at most `b` nanoseconds whatever happens; `a` 0: for `b`."""
    BURST_END = 2
    CONTINUOUS = 3
    """Trace until told otherwise: `a` 1, else 0."""
    DETACH = 4
    """Leave the trainer. With other monitors there only this one leaves."""
    PING = 5
    """The monitor is awake. One that has pinged and then stays silent for 5 s gets no continuous
    tracing, and after 30 s it is let go. `a` 1: answer with a STATUS frame."""
    KINDS = 7
    """Trace what the bits of `a` name (`Wanted`)."""
    SHAPES = 8
    """Record the ops of the next whole step, with their shapes. What comes of it are OPS, marks
    (`MarkClass.PERTURBED`, `RECORDED_OP`), or a STATUS with `shapes` that says why not."""

    REST = 9
    """Take no stack samples for 5 s: somebody takes them without the interpreter's lock."""


class Wanted(IntFlag):
    DEFAULT = 15
    """Kernels, copies, launches and waits: traced in any case."""
    GRAPHS = 32
    """Trace although nobody can tell where the trainer launches: the user's choice."""
    HOLDS = 64
    """The same of a program without torch only, all of whose threads are held for each switch."""


def control(op: Op, a: int = 0, b: int = 0) -> bytes:
    header = HEADER.pack(_CONTROL.size, CONTROL_KIND, 0, time.time_ns())
    return header + _CONTROL.pack(op, 0, a, b)


def burst(steps: int, longest_ns: int) -> bytes:
    """Ask for a burst of whole steps that ends after `longest_ns` in any case."""
    return control(Op.BURST, steps, longest_ns)


def continuous(wanted: bool) -> bytes:
    return control(Op.CONTINUOUS, int(wanted))


def kinds(wanted: Wanted) -> bytes:
    return control(Op.KINDS, int(wanted))


def detach() -> bytes:
    return control(Op.DETACH)
