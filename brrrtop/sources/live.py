"""A running trainer as a source: the agent's frames, the GPU's gauges and our own, as one stream.

Whoever reads it gets what has arrived and never waits. Nothing here judges what a frame means,
except as far as the governor needs it to order the next burst.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import SourceInfo
from brrrtop.model.tables import Span
from brrrtop.scheduling.governor import Governor
from brrrtop.scheduling.limits import Act
from brrrtop.scheduling.requests import Requests
from brrrtop.sources.agent_link import AgentLink
from brrrtop.sources.agent_state import STAGE_LINES, AgentState, disturbances
from brrrtop.sources.recording import RecordingWriter
from brrrtop.sources.samplers import Feeds
from brrrtop.sources.source import FELL_NS, merge_frames, with_hello
from brrrtop.sources.tee import FrameHistory
from collectors.gpu.feed import SamplerFeed
from collectors.process.load import HostLoad
from collectors.protocol.frames import GAUGE, OBSERVED, WIRE_VERSION, Frame, Kind, plausible
from collectors.protocol.requests import Op
from collectors.vocabulary import MarkClass, Metric

if TYPE_CHECKING:
    from collectors.attach.client import Client

SECOND = 1_000_000_000
OLD_S = 60.0
"""A trainer as old as that is past its beginnings, as far as anybody can tell."""
LATE_NS = 300 * SECOND
"""No frame is on its way for longer; nor does one come before it was sent, by the clock we share."""


class LiveSource:
    """Implements `Source` for one trainer, or for GPUs alone.

    Args:
        agent: None: counters only.
        pid: The trainer; None: nobody in particular.
        feeds: Started samplers; closed with the source.
        load: What this process and the trainer cost the host.
        governor: When to trace.
        sink: Gets every frame, for `--record`.
        now_ns: CLOCK_REALTIME.
        cmdline: Of the trainer, for the label when there is no agent to say it.
        shapes: Of one step: see `Requests`.
    """

    span: Span | None = None
    """It is still growing."""

    def __init__(
        self,
        agent: Client | None,
        pid: int | None = None,
        feeds: Sequence[SamplerFeed] = (),
        load: HostLoad | None = None,
        governor: Governor | None = None,
        sink: RecordingWriter | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        cmdline: str | None = None,
        shapes: bool | None = None,
    ) -> None:
        self.governor = governor or Governor()
        self.tee = FrameHistory(sink)
        self._link = AgentLink(agent, now_ns)
        self._pid = pid
        self._feeds = Feeds(feeds)
        self._load = load or HostLoad(pid)
        self._now_ns = now_ns
        self._hello: dict[str, Any] = {"wire": WIRE_VERSION, "pid": pid}
        if cmdline is not None:
            self._hello["cmdline"] = cmdline
        if agent is not None:
            self._hello.update(agent.hello)
        self._pending: list[Frame] = []
        self._sent_ns: dict[bool, int] = {}
        self._floor_ns = 0
        self._gathered_ns = 0
        self._second_ns = 0
        self._ended: str | None = None
        self._status: dict[str, Any] = {}
        self._agent_state = AgentState(pid)
        self.requests = Requests(self._link.order, shapes)
        self._closed = False
        if (self._load.trainer_age_s or OLD_S) < OLD_S:
            self.governor.await_steps(bool(self._hello.get("torch")))
        self._put_opening(now_ns())
        self._link.keep_alive()

    # --- Source -----------------------------------------------------------------

    @property
    def info(self) -> SourceInfo:
        info = SourceInfo(
            kind="live",
            label=f"pid {self._pid}" if self._pid is not None else "this machine's GPUs",
            waits=frozenset(filter(None, (self._agent_state.waits, self.governor.waiting))),
            gauges=frozenset(filter(None, (*self._feeds.says, self._holds))),
        )
        notes = tuple(self._notes())
        return replace(with_hello(info, self._hello), pid=self._pid, tier=self.tier, notes=notes)

    @property
    def ended(self) -> bool:
        return self._ended is not None and not self._pending

    def frames(self, until_ns: int | None = None) -> Iterator[Frame]:
        """What has arrived, in order; each frame is also kept and recorded.

        A frame that comes after a reader has passed its time is stamped with the present, so that
        a replay lets every frame out at the same reading as here.
        """
        self.poll()
        self._pending.sort(key=lambda frame: frame.sent_ns)
        count = sum(until_ns is None or frame.sent_ns <= until_ns for frame in self._pending)
        self._pending[:count] = merge_frames(self._pending[:count])
        while self._pending:
            if until_ns is not None and max(self._pending[0].sent_ns, self._floor_ns) > until_ns:
                return
            yield self._emit(self._pending.pop(0))
        self._floor_ns = max(self._floor_ns, until_ns + 1 if until_ns is not None else 0)

    def seek(self, t_ns: int) -> None:
        raise BrrrtopError("a live source has no past to go to", "save it and replay the file")

    def close(self) -> None:
        """Detaches and lets go of everything: seconds at the longest, more only for a slow disk."""
        if self._closed:
            return
        self._closed = True
        self._link.leave()
        self._feeds.close()
        self._load.close()
        left_ns = max(self._now_ns(), self._floor_ns)
        left = Frame(Kind.END, {"reason": "the monitor left"}, left_ns)
        self.tee.close(None if self._ended is not None else left)

    # --- what a person may ask for ------------------------------------------------

    @property
    def tier(self) -> str:
        """`continuous`, `bursts`, or `nvml` without an agent that can trace."""
        if not self._link.there or self._agent_state.cannot_trace:
            return "nvml"
        return "continuous" if self.governor.continuous else "bursts"

    def require_tracing(self) -> None:
        """Raises BrrrtopError where what a person asks for cannot be traced: says why."""
        why = self._ended or self._link.lost or self._agent_state.refuses
        if why is not None:
            raise BrrrtopError(f"nothing can be traced: {why}")
        if not self._link.there:
            raise BrrrtopError(
                "there is no agent in the trainer to trace with", "attach: brrrtop attach PID"
            )

    def continuous(self, on: bool) -> str:
        """Traces without pauses, or in bursts again; says what was done."""
        if on:
            self.require_tracing()
        self.governor.want_continuous(on)
        self._govern(self._now_ns())
        return "tracing every step" if on else "tracing in bursts again"

    def shapes(self) -> str:
        """Has the ops of one step recorded with their shapes; says what was done."""
        self.require_tracing()
        self.requests.shapes(self.governor)
        self._govern(self._now_ns())
        return "recording the shapes of one step"

    def exited(self, says: str) -> None:
        """Takes the word of whoever waited for the trainer; what it sent before is read first."""
        self._load.tell_end(says)
        self._second_ns = 0

    # --- gathering ------------------------------------------------------------------

    def poll(self) -> None:
        """Takes in what has arrived and gives the orders that are due, without letting anything out."""
        if self._closed or self._ended is not None:
            return
        now_ns = self._now_ns()
        if now_ns < self._gathered_ns - FELL_NS:
            self._clock_fell(now_ns)
        self._gathered_ns = now_ns
        try:
            for frame in self._link.frames():
                self._take(frame, now_ns, None)
        except Exception as fault:  # noqa: BLE001  a frame nobody foresaw costs its agent, not the monitor
            self._link.refuse(fault)
        if self._link.fault is not None:
            self._lose_agent(self._link.fault)
        elif self._link.is_over(now_ns, self._load.trainer_running is False):
            self._lose_agent(self._link.hung_up_why)
        for frame, carried in self._feeds.drain():
            self._take(frame, now_ns, carried)
        self._govern(now_ns)
        if self._ended is None and now_ns - self._second_ns >= SECOND:
            self._second_ns = now_ns
            self._each_second(now_ns)

    def _clock_fell(self, now_ns: int) -> None:
        """Somebody set CLOCK_REALTIME back, for us and the trainer: stamps of before bind nobody."""
        self._sent_ns.clear()
        self._pending = [replace(f, sent_ns=min(f.sent_ns, now_ns)) for f in self._pending]
        self._floor_ns = self._second_ns = 0
        self._link.clock_fell()
        self.governor.clock_fell(now_ns)

    def _take(self, frame: Frame, now_ns: int, carried: frozenset[Metric] | None) -> None:
        """One frame of the agent (`carried` is None) or of a feed."""
        if frame.kind == Kind.END:
            self._link.hang_up(str(frame.body.get("reason", "the agent ended")))
            return
        if frame.kind == Kind.HELLO:
            self._hello = {**self._hello, **frame.body}
        elif frame.kind == Kind.DEVICE:
            self._feeds.learn_device(frame.body)
        elif frame.kind == Kind.MARKS:
            rows = plausible(frame.body, now_ns)
            self.governor.add_steps(rows["end_ns"][rows["mark_class"] == MarkClass.STEP])
            waits = rows[(rows["mark_class"] == MarkClass.INPUT) & (rows["value"] >= 0)]
            self.governor.add_waits(waits["start_ns"], waits["end_ns"])
            self.governor.watch.add_marks(rows)
            for span, recorded_ns in disturbances(rows):
                self.governor.add_disturbed(span, recorded_ns)
            self.requests.on_marks(rows)
        elif frame.kind == Kind.OBSERVED:
            self._feeds.traced(frame.body)
            for row in plausible(frame.body, now_ns):
                self.governor.add_observed(int(row["start_ns"]), int(row["end_ns"]))
        elif frame.kind == Kind.STATUS:
            self._take_status(frame)
            return
        elif frame.kind == Kind.NAMES:
            self.governor.watch.add_names(frame.body)
        elif frame.kind in (Kind.KERNELS, Kind.COPIES):
            self.governor.add_records(frame.body["start_ns"], frame.body["end_ns"])
        elif frame.kind == Kind.GAUGES:
            self._weigh(frame.body)
            if carried:
                kept = ~np.isin(frame.body["metric"], list(carried))
                frame = replace(frame, body=frame.body[kept])
        # Each side's own order stands: names come before what uses them, though sealed after it.
        stamp_ns = min(max(frame.sent_ns or now_ns, now_ns - LATE_NS), now_ns)
        sent_ns = max(stamp_ns, self._sent_ns.get(carried is None, 0))
        self._sent_ns[carried is None] = sent_ns
        self._pending.append(frame if frame.sent_ns == sent_ns else replace(frame, sent_ns=sent_ns))

    def _take_status(self, frame: Frame) -> None:
        """Passes on what is new in the agent's words."""
        status = dict(frame.body)
        if status.get("by") == "agent":
            status = self._agent_state.hear(status, self._hello)
            self.governor.add_state(self._agent_state.state)
            if "traced" in status:
                held_us = dict(status["traced"] or {}).get("held_us") or {}
                self.governor.add_traced(1000 * sum(map(int, held_us.values())))
        elif "upkeep_ns" in status:
            self.governor.add_upkeep(int(status["upkeep_ns"]), frame.sent_ns or self._now_ns())
            return
        elif "shapes" in status:  # with its time: the same reason may come twice
            status = {"shapes": [frame.sent_ns, str(status.get("says"))]}
        else:  # one part of the agent: its tier and state are not those of the whole
            if "compiling" in status:
                self.governor.add_compiling(bool(status.pop("compiling")))
            status = {k: v for k, v in status.items() if k not in ("tier", "state") and v != ""}
        self._put_status(status, frame.sent_ns or self._now_ns())

    def _weigh(self, rows: Any) -> None:
        for row in rows:
            self.governor.add_gauge(int(row["device"]), int(row["metric"]), float(row["value"]))

    # --- orders -----------------------------------------------------------------------

    def _govern(self, now_ns: int) -> None:
        if not self._link.there or self._feeds.settling:
            return
        try:
            decision = self.governor.decide(now_ns)
        except Exception as fault:  # noqa: BLE001  of what the agent told: the rest goes on
            self.refuse(fault)
            return
        if decision is None:
            return
        self._feeds.expect(decision, now_ns)
        if decision.act is Act.BURST:
            self._link.order(Op.BURST, decision.steps, decision.longest_ns)
            if decision.shapes:
                self._link.order(Op.SHAPES)
                self.requests.ordered(now_ns)
            self._put_status({"burst": decision.says}, now_ns)
        else:
            self._link.order(Op.CONTINUOUS, int(decision.act is Act.CONTINUOUS_ON))

    # --- our own frames ---------------------------------------------------------------

    def _put(self, kind: Kind, body: Any, now_ns: int) -> None:
        self._pending.append(Frame(kind, body, now_ns))

    def _put_opening(self, now_ns: int) -> None:
        self._put(Kind.HELLO, dict(self._hello), now_ns)
        # Says that this source is traced in spans, so that silence is not taken for idleness.
        self._put(Kind.OBSERVED, np.zeros(0, OBSERVED), now_ns)
        if not self._link.there:
            says = "counters only: what holds the trainer back needs an agent in it"
            self._put_status({"tier": "nvml", "state": "watching", "says": says}, now_ns)

    def _put_status(self, status: dict[str, Any], now_ns: int) -> None:
        fresh = {name: value for name, value in status.items() if self._status.get(name) != value}
        if "gauges" in fresh:  # together, or they would be read off the sentences
            fresh["facts"] = status["facts"]
        if fresh:
            self._status.update(fresh)
            self._put(Kind.STATUS, fresh, now_ns)

    def _each_second(self, now_ns: int) -> None:
        rows = self._load.sample(self._feeds.workers)
        if len(rows):
            self._put(Kind.GAUGES, rows, now_ns)
        estimate = self.governor.estimate(now_ns)
        if estimate is not None:
            result = [
                (now_ns, estimate.share, -1, int(Metric.STEP_COST_SHARE)),
                (now_ns, estimate.error_share, -1, int(Metric.STEP_COST_ERROR_SHARE)),
            ]
            self._put(Kind.GAUGES, np.array(result, GAUGE), now_ns)
        status: dict[str, Any] = {
            "tier": self.tier, "gauges": self._notes(), "facts": self._feeds.facts,
            **self._load.status,
        }  # fmt: skip
        if self._link.there:
            status["sampling"] = self.governor.says()
            stage = self._agent_state.stage or self.governor.stage(now_ns)
            status["stage"] = None if stage is None else stage.value
            if estimate is not None and estimate.worst_step_ns is not None:
                status["worst_step_ns"] = estimate.worst_step_ns
            self.requests.on_tick(now_ns, self.governor)
        self._put_status(status, now_ns)
        if self._load.trainer_running is False:
            self._end(self._load.trainer_end, now_ns)
        stopped = self._load.trainer_stopped
        if (stopped is not None) != self._status.get("stopped", False):
            says = stopped or "the trainer runs again"
            self._put_status({"stopped": stopped is not None, "says": says}, now_ns)
        if self.tee.stopped is not None:
            self._put_status({"recording": self.tee.stopped, "says": self.tee.stopped}, now_ns)

    def _notes(self) -> list[str]:
        waits = None
        if self._link.there and self._agent_state.blocker is None:
            waits = STAGE_LINES.get(self._status.get("stage") or "") or self.governor.waiting
        known = (
            self._ended or self._link.lost, self._agent_state.blocker, self.governor.forbidden, waits,
            self._load.trainer_stopped, self.tee.stopped, *self._feeds.says, self._holds,
        )  # fmt: skip
        return list(dict.fromkeys(line for line in known if line is not None))

    @property
    def _holds(self) -> str | None:
        """A note that is no reason for anything on screen."""
        return self._agent_state.holds if self._link.there else None

    def refuse(self, fault: Exception) -> bool:
        """Lets go of the agent whose frames could not be taken in; False: there never was one."""
        if not self._link.refuse(fault):
            return False
        self._lose_agent(str(self._link.fault))
        return True

    def _lose_agent(self, why: str) -> None:
        if self._link.lost is not None:
            return
        now_ns = self._now_ns()
        if self._load.trainer_running is False:
            self._link.lost = "the trainer exited"
            self._end(self._load.trainer_end, now_ns)
            return
        self._link.lost = f"the agent is gone ({why}): counters only"
        self._put_status({"tier": "nvml", "state": "lost", "says": self._link.lost}, now_ns)

    def _end(self, reason: str, now_ns: int) -> None:
        if self._ended is None:
            self._ended = reason
            self._put(Kind.END, {"reason": reason}, now_ns)

    # --- out --------------------------------------------------------------------------

    def _emit(self, frame: Frame) -> Frame:
        if frame.sent_ns < self._floor_ns:
            frame = replace(frame, sent_ns=self._floor_ns)
        self._floor_ns = frame.sent_ns
        try:
            self.tee.add(frame)
        except Exception as fault:
            if not self.refuse(fault):
                raise
        return frame
