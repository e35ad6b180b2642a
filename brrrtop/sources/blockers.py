"""What helps where the agent cannot trace: an end, with a command, to what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FREE = "end that one (nsys, Proton, another monitor); the next try comes by itself"
HELPS = {
    "another NVIDIA tool is in the trainer": "start it without nsys, ncu or compute-sanitizer: "
    "brrrtop run -- COMMAND",
    "no libcupti is mapped in the trainer": "its torch was built without Kineto; PyPI's has it: "
    "pip install --force-reinstall torch",
    "two copies of CUPTI are mapped": "start it without the tool that brought the second "
    "(Proton, a profiler): brrrtop run -- COMMAND",
    "another profiler holds CUPTI": _FREE,
    "no records arrive: another profiler": _FREE,
}
"""How the agent's sentence begins → what helps."""
_LOOK = frozenset({"absent", "off"})
"""States in which the agent stays where nothing above says why."""


def with_help(state: str, says: str, pid: int | None) -> str:
    """The agent's sentence about a state of its own, and what to type."""
    for begins, helps in HELPS.items():
        if says.startswith(begins):
            return f"{says}; {helps}"
    if state in _LOOK and pid is not None and says:
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
