"""What a status frame says to programs: codes beside its sentences. Sentences are for people alone.

An agent or a recording from before there were codes has sentences only; `add_codes` reads the codes off
them where frames enter, and nowhere else is a sentence compared with anything.
"""

from __future__ import annotations

from typing import Any

from collectors.vocabulary import StrEnum


class StatusCode(StrEnum):
    """Where kernel tracing stands, and why; the agent's in `collectors/agent/native/wire.h`."""

    READY = "ready"
    TRACING = "tracing"
    GPU_UNTOUCHED = "gpu-untouched"
    """The trainer has no CUDA context yet."""
    NO_CALLS = "no-calls"
    """Ready, without the host's launches: CUPTI is too old to tell them."""
    GRAPHS_UNKNOWN = "graphs-unknown"
    """Ready, and every burst is held back until it is known whether the trainer has CUDA graphs."""
    NO_PAUSE = "no-pause"
    """Ready, or leaving, and the trainer is never outside CUDA for long enough."""
    NO_STEP = "no-step"
    """Ready, and no training step has ended for a while."""
    UNREADABLE = "unreadable"
    """The agent cannot look through its process."""
    NO_CUPTI = "no-cupti"
    TWO_CUPTIS = "two-cuptis"
    CUPTI_UNUSABLE = "cupti-unusable"
    """It does not load, or its records have a layout that is not known."""
    OTHER_TOOL = "other-tool"
    """nsys, ncu or compute-sanitizer is in the trainer."""
    PROFILER_RECORDS = "profiler-records"
    """The trainer's own profiler has its turn."""
    CUPTI_TAKEN = "cupti-taken"
    """Another profiler has subscribed to CUPTI."""
    NO_RECORDS = "no-records"
    """Another profiler has CUPTI's callbacks."""
    RECORDS_HELD = "records-held"
    """CUPTI keeps the records, as it does until the work that they are of has ended."""
    NOT_PERMITTED = "not-permitted"
    CUPTI_FAILED = "cupti-failed"
    GRAPH_TIMES = "graph-times"
    """CUPTI loses the times of kernels in CUDA graphs."""
    CUPTI_SLOW = "cupti-slow"
    """CUPTI takes longer than the trainer's threads may be held."""


UNHINDERED = frozenset({StatusCode.READY, StatusCode.TRACING})
"""Nothing is in the agent's way."""

MPS = "mps"
"""Among a status frame's `facts`: the GPU is shared through MPS."""

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
