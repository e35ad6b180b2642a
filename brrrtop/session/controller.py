"""What decides about one live trainer: when its agent traces, what else it is asked for, what is said of it.

Owns the governor and the requests. A source brings the frames; nothing else gives orders to an agent.
"""

from typing import Any

import numpy as np
from msgspec.structs import replace

from brrrtop.errors import BrrrtopError, report_survived
from brrrtop.model.snapshot import SourceInfo
from brrrtop.scheduling.burst import SECOND, Act
from brrrtop.scheduling.governor import Governor
from brrrtop.scheduling.requests import Requests, disturbances
from brrrtop.session.agent_state import STAGE_LINES, AgentState
from brrrtop.sources.live import LiveSource
from brrrtop.sources.source import FELL_NS
from collectors.protocol.frames import GAUGE, Frame, Kind, plausible
from collectors.protocol.requests import Op
from collectors.vocabulary import MarkClass, Metric

REST_NS = 3_000_000_000  # between two orders to rest, which hold for 5 s
OLD_S = 60.0
"""A trainer as old as that is past its beginnings, as far as anybody can tell."""


class Controller:
    """Hears what comes of a trainer, and orders.

    Args:
        source: Gathers frames whenever this polls.
        governor: When to trace.
        shapes: Of one step: see `Requests`.
    """

    def __init__(
        self, source: LiveSource, governor: Governor | None = None, shapes: bool | None = None
    ) -> None:
        self.source = source
        self.governor = governor or Governor()
        self.requests = Requests(source.link.order, shapes)
        self._agent_state = AgentState(source.pid)
        self._polled_ns = 0
        self._second_ns = self._rest_ns = 0
        self._stopped: str | None = None
        """That the trainer stands still, as of the last second."""
        source.describe = self._describe
        if (source.load.trainer_age_s or OLD_S) < OLD_S:
            self.governor.await_steps(bool(source.hello.get("torch")))

    # --- what a person may ask for ------------------------------------------------

    @property
    def tier(self) -> str:
        if not self.source.link.there or self._agent_state.cannot_trace:
            return "nvml"
        return "continuous" if self.governor.continuous else "bursts"

    def continuous(self, on: bool) -> str:
        if on:
            self._require_tracing()
        self.governor.want_continuous(on)
        self._order(self.source.now_ns())
        return "tracing every step" if on else "tracing in bursts again"

    def burst(self) -> str:
        """Has a few steps traced now, whatever the pause; says so.

        Raises:
            BrrrtopError: Nothing can be traced, or everything is.
        """
        self._require_tracing()
        if self.tier == "continuous":
            raise BrrrtopError("every step is traced already", "c goes back to bursts")
        self.governor.want_burst()
        return "tracing the next steps"

    def shapes(self) -> str:
        """Has the ops of one step recorded with their shapes; what came of it is told in the log."""
        self._require_tracing()
        self.requests.shapes(self.governor)
        self._order(self.source.now_ns())
        return "recording the shapes of one step"

    def exited(self, message: str) -> None:
        """Takes the word of whoever waited for the trainer; what it sent before is read first."""
        self.source.load.tell_end(message)
        self._second_ns = 0

    def _require_tracing(self) -> None:
        """Raises BrrrtopError where what a person asks for cannot be traced: says why."""
        why = self.source.over or self._agent_state.refuses
        if why is not None:
            raise BrrrtopError(f"nothing can be traced: {why}")
        if not self.source.link.there:
            raise BrrrtopError(
                "there is no agent in the trainer to trace with", "attach: brrrtop attach PID"
            )

    # --- in -----------------------------------------------------------------------

    def poll(self) -> None:
        """Has the source gather what has arrived, and gives the orders that are due."""
        source = self.source
        if source.is_over:
            return
        now_ns = source.now_ns()
        if now_ns < self._polled_ns - FELL_NS:
            source.clock_fell(now_ns)
            self.governor.clock_fell(now_ns)
            self._second_ns = self._rest_ns = 0
        self._polled_ns = now_ns
        source.gather(now_ns, self._hear)
        self._order(now_ns)
        if not source.is_over and now_ns - self._second_ns >= SECOND:
            self._second_ns = now_ns
            self._each_second(now_ns)

    def _hear(self, frame: Frame, now_ns: int) -> bool:
        """What a frame tells the governor; False: it is passed on in other words, or not at all."""
        governor = self.governor
        if frame.kind == Kind.MARKS:
            rows = plausible(frame.body, now_ns)
            governor.add_steps(rows["end_ns"][rows["mark_class"] == MarkClass.STEP])
            waits = rows[(rows["mark_class"] == MarkClass.INPUT) & (rows["value"] >= 0)]
            governor.add_waits(waits["start_ns"], waits["end_ns"])
            governor.watch.add_marks(rows)
            for span, recorded_ns in disturbances(rows):
                governor.add_disturbed(span, recorded_ns)
            self.requests.on_marks(rows)
        elif frame.kind == Kind.OBSERVED:
            for row in plausible(frame.body, now_ns):
                governor.add_observed(int(row["start_ns"]), int(row["end_ns"]))
        elif frame.kind == Kind.STATUS:
            self._hear_status(frame)
            return False
        elif frame.kind == Kind.NAMES:
            governor.watch.add_names(frame.body)
        elif frame.kind in (Kind.KERNELS, Kind.COPIES):
            governor.add_records(frame.body["start_ns"], frame.body["end_ns"])
        elif frame.kind == Kind.GAUGES:
            for row in frame.body:
                governor.add_gauge(int(row["device"]), int(row["metric"]), float(row["value"]))
        return True

    def _hear_status(self, frame: Frame) -> None:
        """Passes on what is new in the agent's words."""
        status: dict[str, Any] = dict(frame.body)
        sent_ns = frame.sent_ns or self.source.now_ns()
        if status.get("by") == "agent":
            status = self._agent_state.hear(status, self.source.hello)
            self.governor.add_state(self._agent_state.state)
            if "traced" in status:
                held_us = dict(status["traced"] or {}).get("held_us") or {}
                self.governor.add_traced(1000 * sum(map(int, held_us.values())))
        elif "upkeep_ns" in status:
            self.governor.add_upkeep(int(status["upkeep_ns"]), sent_ns)
            return
        elif "shapes" in status:  # with its time: the same reason may come twice
            status = {"shapes": [frame.sent_ns, str(status.get("says"))]}
        else:  # one part of the agent: its tier and state are not those of the whole
            if "compiling" in status:
                self.governor.add_compiling(bool(status.pop("compiling")))
            status = {k: v for k, v in status.items() if k not in ("tier", "state") and v != ""}
        self.source.say(status, sent_ns)

    # --- out ----------------------------------------------------------------------

    def _order(self, now_ns: int) -> None:
        source = self.source
        if not source.link.there or source.feeds.settling:
            return
        try:
            decision = self.governor.decide(now_ns)
        except Exception as fault:  # noqa: BLE001  of what the agent told: the rest goes on
            report_survived(fault)
            source.refuse(fault)
            return
        if decision is None:
            return
        source.feeds.expect(decision, now_ns)
        if decision.act is Act.BURST:
            source.link.order(Op.BURST, decision.steps, decision.longest_ns)
            if decision.shapes:
                source.link.order(Op.SHAPES)
                self.requests.ordered(now_ns)
            source.say({"burst": decision.message}, now_ns)
        else:
            source.link.order(Op.CONTINUOUS, int(decision.act is Act.CONTINUOUS_ON))

    def _each_second(self, now_ns: int) -> None:
        source, load = self.source, self.source.load
        rows = load.sample(source.feeds.workers)
        self._stopped = stopped = load.trainer_stopped
        if len(rows):
            source.put(Kind.GAUGES, rows, now_ns)
            own = rows["value"][rows["metric"] == Metric.MONITOR_CPU_SHARE]
            self.governor.pace.add(float(own.sum()))
        estimate = self.governor.estimate(now_ns)
        if estimate is not None:
            result = [
                (now_ns, estimate.share, -1, int(Metric.STEP_COST_SHARE)),
                (now_ns, estimate.error_share, -1, int(Metric.STEP_COST_ERROR_SHARE)),
            ]
            source.put(Kind.GAUGES, np.array(result, GAUGE), now_ns)
        status: dict[str, Any] = {
            "tier": self.tier, "gauges": self._notes(), "facts": source.feeds.facts, **load.status,
        }  # fmt: skip
        if source.link.there:
            status["sampling"] = self.governor.describe()
            stage = self._agent_state.stage or self.governor.stage(now_ns)
            status["stage"] = None if stage is None else stage.value
            if estimate is not None:
                status["worst_step_ns"] = estimate.worst_step_ns
            self.requests.on_tick(now_ns, self.governor)
            if source.feeds.replace_agent and now_ns - self._rest_ns >= REST_NS:
                self._rest_ns = now_ns
                source.link.order(Op.REST)
        source.say(status, now_ns)
        if load.trainer_running is False:
            source.end(load.trainer_end, now_ns)
        if (stopped is not None) != source.status.get("stopped", False):
            message = stopped or "the trainer runs again"
            source.say({"stopped": stopped is not None, "says": message}, now_ns)
        if (failed := source.tee.stopped) is not None:
            source.say({"recording": failed, "says": failed}, now_ns)

    def _describe(self, info: SourceInfo) -> SourceInfo:
        return replace(
            info,
            tier=self.tier,
            notes=tuple(self._notes()),
            waits=frozenset(filter(None, (self._agent_state.waits, self.governor.waiting))),
            gauges=frozenset(filter(None, (*self.source.feeds.remarks, self._holds))),
        )

    def _notes(self) -> list[str]:
        source, blocker = self.source, self._agent_state.blocker
        waits = None
        if source.link.there and blocker is None:
            waits = STAGE_LINES.get(source.status.get("stage") or "") or self.governor.waiting
        known = (
            source.over, blocker, self.governor.forbidden, waits, self._stopped,
            source.tee.stopped, *source.feeds.remarks, self._holds,
        )  # fmt: skip
        return list(dict.fromkeys(line for line in known if line is not None))

    @property
    def _holds(self) -> str | None:
        """A note that is no reason for anything on screen."""
        return self._agent_state.holds if self.source.link.there else None
