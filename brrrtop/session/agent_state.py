"""What the agent says of itself: its state, and what keeps it from tracing kernels."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from brrrtop.scheduling.burst import UNABLE, Stage
from brrrtop.text import units
from collectors.vocabulary import UNHINDERED, StatusCode

CANNOT = UNABLE - {"waiting"}
"""States of the agent that may last; a trainer that has not touched its GPU yet soon will."""
ROUTINE = frozenset({"ready", "tracing"})
"""States between which every burst moves the agent."""
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
STAGE_LINES = {
    Stage.LOADING.value: "loading: its GPU has next to nothing to do yet; what is traced now is not judged",
    Stage.COMPILING.value: "compiling: torch.compile is at work; what is traced now is not judged",
    Stage.WARMING_UP.value: "warming up: the first three steps load and tune; they are not judged",
}


class AgentState:
    """Follows the statuses of an agent in process `pid`."""

    def __init__(self, pid: int | None = None) -> None:
        self._pid = pid
        self._gpuless = False
        self.state = ""
        """`undecided` where a ready agent does not know yet whether it may trace; else its own."""
        self.blocker: str | None = None
        """What keeps it from tracing, or from tracing all, in its own words, and what helps."""
        self._code: str | None = None
        self._holds_all = False
        self._holds_us: deque[int] = deque(maxlen=20)

    @property
    def cannot_trace(self) -> bool:
        return self.state in CANNOT

    @property
    def stage(self) -> Stage | None:
        return Stage.LOADING if self.state == "waiting" and not self._gpuless else None

    @property
    def waits(self) -> str | None:
        """The blocker, where it goes away by itself once the trainer uses its GPU."""
        untouched = self._code == StatusCode.GPU_UNTOUCHED and not self._gpuless
        return self.blocker if untouched else None

    @property
    def holds(self) -> str | None:
        """What switching does to a program all of whose threads are held for it; None: it is not that."""
        if not self._holds_all:
            return None
        duration = "a moment"
        if self._holds_us:
            usual_us = sorted(self._holds_us)[len(self._holds_us) // 2]
            duration = f"some {units.duration(float(f'{1000 * usual_us:.0e}'))}"
        return (
            f"all threads are held outside CUDA for {duration} at each switch of tracing; "
            "--no-trace-graphs leaves that out"
        )

    @property
    def refuses(self) -> str | None:
        """Why nothing can be traced that a person asks for; None where it can, at once or soon."""
        if not self.cannot_trace and not self._gpuless:
            return None
        return self.blocker or "the agent cannot trace at present"

    def hear(self, body: dict[str, Any], hello: Mapping[str, Any]) -> dict[str, Any]:
        """The part of a status that is worth passing on; that it traces a burst is no news.

        Args:
            hello: What the agent said of its trainer when it was met.
        """
        status = dict(body)
        state, message = str(status.get("state")), str(status.get("says") or "")
        code = status.get("code")
        traced = status.get("traced")
        self._holds_all |= bool(status.pop("all_threads", False))
        if isinstance(traced, dict) and traced.get("all_threads"):
            held_us = dict(traced.get("held_us") or {})
            self._holds_all = True
            self._holds_us += [int(held_us.get(switch, 0)) for switch in ("on", "off")]
        if code == StatusCode.GRAPHS_UNKNOWN:
            state = "undecided"
        gpuless = _without_gpu(hello) if state == "waiting" else None
        self._gpuless, message = gpuless is not None, gpuless or message
        blocker = None
        if message and code not in UNHINDERED:
            blocker = _with_help(state, code, message, self._pid)
        if blocker is not None:
            status["says"] = blocker
        if {state, self.state} <= ROUTINE and blocker is None and self.blocker is None:
            status.pop("says", None)
        self.state, self._code, self.blocker = state, code, blocker
        return status


def _with_help(state: str, code: str | None, message: str, pid: int | None) -> str:
    """The agent's sentence about a state of its own, and what to type."""
    if code in HELPS:
        return f"{message}; {HELPS[StatusCode(code)]}"
    if state in _UNTRACED and pid is not None and message:
        return f"{message}; what stands in the way: brrrtop doctor {pid}"
    return message


def _without_gpu(hello: Mapping[str, Any]) -> str | None:
    """That a trainer which has not touched a GPU will not: its torch cannot. None where it can, or
    where nobody has said."""
    if not hello.get("torch") or hello.get("cuda"):
        return None
    return (
        f"its torch ({hello['torch']}) is built without CUDA: it uses no NVIDIA GPU, and no kernels "
        "will come; PyPI's for Linux has CUDA: pip install --force-reinstall torch"
    )
