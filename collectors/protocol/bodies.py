"""The JSON bodies of frames: one type each, so that a body of another shape is told at once.

What a type names is checked; what it does not name passes, so that a newer sender may say more.
Whoever takes a frame gets plain dicts and lists, and may rely on the types given here.
"""

import contextlib
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from collectors.vocabulary import MPS, StatusCode

_Time = Annotated[int, Meta(ge=-(2**62), le=2**62)]
_Id = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Small = Annotated[int, Meta(ge=0, le=2**20)]
_Bytes = Annotated[int, Meta(ge=0, le=2**60)]
_OpId = Annotated[int, Meta(ge=0, le=2**40 - 1)]
_Size = Annotated[int, Meta(ge=-(2**62), le=2**62)]
_Word = _Size | float | str | None
_Sizes = list[_Size | list[_Size | None] | None]
"""Of a tensor, or of a list of tensors."""


class Hello(Struct):
    """Who speaks, and of which trainer."""

    wire: int
    pid: _Id | None = None
    rank: _Size | None = None
    world: _Size | None = None
    cmdline: str | list[str] | None = None
    torch: str | None = None
    cuda: str | None = None
    cuda_runtime: _Size | None = None
    tier: str | None = None
    notes: list[Any] | None = None
    provenance: dict[str, Any] | None = None


class DeviceFacts(Struct):
    device_id: _Id = 0
    name: str | None = None
    sm_count: _Small | None = None
    capability: tuple[_Small, _Small] | None = None
    memory_bytes: _Bytes | None = None
    max_threads_per_sm: _Small | None = None
    registers_per_sm: _Bytes | None = None
    shared_bytes_per_sm: _Bytes | None = None
    uuid: str | None = None


class Op(Struct, array_like=True):
    """A framework op as called; `strides` is absent where nobody tells them."""

    id: _OpId
    name: str
    dims: list[_Size | _Sizes | None]
    types: list[_Word]
    concrete: list[_Word]
    strides: list[_Size | _Sizes | None] = []


class LogLine(Struct, array_like=True):
    """A line of the log that the monitor wrote: its number, time, kind and sentence."""

    number: _Size
    t_ns: _Time
    kind: str
    says: str


class Status(Struct):
    """What the agent or the monitor wants on the status line: sentences, and codes to decide by."""

    tier: str | None = None
    state: str | None = None
    code: str | None = None
    by: str | None = None
    says: str | None = None
    upkeep_ns: _Size | None = None
    worst_step_ns: _Size | None = None
    gauges: list[str] | None = None
    facts: list[str] | None = None
    workers: str | None = None
    sampling: str | None = None
    burst: str | None = None
    recording: str | None = None
    stopped: bool | None = None
    shapes: str | list[_Word] | None = None
    notes: list[str] | None = None
    log: list[LogLine] | None = None


class End(Struct):
    reason: str = "ended"


Loss = dict[str, _Size | float | None]
"""Running totals by place."""
FAULTS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises of bytes that are no JSON, or of another shape."""


def decode(payload: bytes, shape: msgspec.json.Decoder[Any]) -> Any:
    """The body as plain dicts and lists.

    Raises:
        ValueError: It is not JSON, or of another shape; the message says where.
    """
    try:
        shape.decode(payload)
        return msgspec.json.decode(payload)
    except FAULTS as fault:
        raise ValueError(str(fault)) from fault


def plausible_device(facts: dict[str, Any]) -> dict[str, Any]:
    """What of `facts` a frame may carry; values of other types and sizes are left out."""
    kept = {}
    for name, value in facts.items():
        with contextlib.suppress(msgspec.ValidationError):
            msgspec.convert({name: value}, DeviceFacts)
            if value is not None:
                kept[name] = value
    return kept


EVENT_LINES = "log"
"""Key of a status frame that carries lines of the event log."""

_AGENT_SENTENCES = {
    "kernel tracing is ready, without": StatusCode.NO_CALLS,
    "kernel tracing is ready": StatusCode.READY,
    "tracing a burst": StatusCode.TRACING,
    "tracing continuously": StatusCode.TRACING,
    "waiting for the trainer": StatusCode.GPU_UNTOUCHED,
    "kernel tracing waits to hear": StatusCode.GRAPHS_UNKNOWN,
    "no libcupti is mapped": StatusCode.NO_CUPTI,
    "two copies of CUPTI": StatusCode.TWO_CUPTIS,
    "another NVIDIA tool": StatusCode.OTHER_TOOL,
    "another profiler holds CUPTI": StatusCode.CUPTI_TAKEN,
    "no records arrive": StatusCode.NO_RECORDS,
}
"""How the sentences begin of an agent that sends no codes; what is not here decides nothing."""
_MPS_SENTENCE = "shared through MPS"


def add_codes(status: dict[str, Any]) -> None:
    """Gives a status frame of before there were codes those that its sentences stand for."""
    sentence = status.get("says")
    if sentence and status.get("by") == "agent" and "code" not in status:
        known = (code for begins, code in _AGENT_SENTENCES.items() if sentence.startswith(begins))
        code = next(known, None)
        if code is not None:
            status["code"] = code.value
    gauges = status.get("gauges")
    if gauges is not None and "facts" not in status:
        status["facts"] = [MPS] if any(_MPS_SENTENCE in line for line in gauges) else []
