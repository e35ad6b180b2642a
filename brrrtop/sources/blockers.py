"""What helps where the agent cannot trace: an end, with a command, to what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brrrtop.protocol.status import StatusCode

_FREE = "end that one (nsys, Proton, another monitor); the next try comes by itself"
HELPS = {
    StatusCode.OTHER_TOOL: "start it without nsys, ncu or compute-sanitizer: "
    "brrrtop run -- COMMAND",
    StatusCode.NO_CUPTI: "its torch was built without Kineto; PyPI's has it: "
    "pip install --force-reinstall torch",
    StatusCode.TWO_CUPTIS: "start it without the tool that brought the second "
    "(Proton, a profiler): brrrtop run -- COMMAND",
    StatusCode.CUPTI_TAKEN: _FREE,
    StatusCode.NO_RECORDS: _FREE,
    StatusCode.RECORDS_HELD: "a kernel that does not end holds up all behind it (a collective that waits "
    "for a rank); the next try comes by itself",
}
"""The agent's code → what helps."""
_UNTRACED = frozenset({"absent", "off"})
"""States in which the agent stays where nothing above says why."""


def with_help(state: str, code: str | None, says: str, pid: int | None) -> str:
    """The agent's sentence about a state of its own, and what to type."""
    if code in HELPS:
        return f"{says}; {HELPS[StatusCode(code)]}"
    if state in _UNTRACED and pid is not None and says:
        return f"{says}; what stands in the way: brrrtop doctor {pid}"
    return says


def without_gpu(hello: Mapping[str, Any]) -> str | None:
    """That a trainer which has not touched a GPU will not: its torch cannot. None where it can, or
    where nobody has said."""
    if not hello.get("torch") or hello.get("cuda"):
        return None
    return (
        f"its torch ({hello['torch']}) is built without CUDA: it uses no NVIDIA GPU, and no kernels "
        "will come; PyPI's for Linux has CUDA: pip install --force-reinstall torch"
    )
