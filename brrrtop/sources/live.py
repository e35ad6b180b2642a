"""A running trainer as a source: the agent's frames, the GPU's gauges and our own, merged and stamped.

Whoever reads it gets what was gathered and never waits. Nothing here judges what a frame means, or
orders anything: that is `session.controller`'s part.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from brrrtop.errors import BrrrtopError
from brrrtop.model.snapshot import SourceInfo
from brrrtop.model.tables import Span
from brrrtop.scheduling.burst import Act, Decision
from brrrtop.sources.agent_link import AgentLink
from brrrtop.sources.recording import RecordingWriter
from brrrtop.sources.source import merge_frames, with_hello
from brrrtop.sources.tee import WriterThread
from collectors.gpu.feed import SamplerFeed
from collectors.process.load import HostLoad
from collectors.protocol.frames import OBSERVED, WIRE_VERSION, Frame, Kind
from collectors.vocabulary import Metric

if TYPE_CHECKING:
    from collectors.attach.client import Client

LATE_NS = 300_000_000_000
"""No frame is on its way for longer; nor does one come before it was sent, by the clock we share."""
Hear = Callable[[Frame, int], bool]
"""Takes a frame and the present; False: it is not to be passed on."""


class LiveSource:
    """Implements `Source` for one trainer, or for GPUs alone.

    Args:
        agent: None: counters only.
        pid: The trainer; None: nobody in particular.
        feeds: Started samplers; closed with the source.
        load: What this process and the trainer cost the host.
        sink: Gets every frame, for `--record`.
        now_ns: CLOCK_REALTIME.
        cmdline: Of the trainer, for the label when there is no agent to say it.
    """

    span: Span | None = None
    """It is still growing."""

    def __init__(
        self,
        agent: Client | None,
        pid: int | None = None,
        feeds: Sequence[SamplerFeed] = (),
        load: HostLoad | None = None,
        sink: RecordingWriter | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        cmdline: str | None = None,
    ) -> None:
        self.pid = pid
        self.now_ns = now_ns
        self.tee = WriterThread(sink)
        self.link = AgentLink(agent, now_ns)
        self.feeds = Feeds(feeds)
        self.load = load or HostLoad(pid)
        self.hello: dict[str, Any] = {"wire": WIRE_VERSION, "pid": pid}
        if cmdline is not None:
            self.hello["cmdline"] = cmdline
        if agent is not None:
            self.hello.update(agent.hello)
        self.status: dict[str, Any] = {}
        """All that was said, later words over earlier ones."""
        self.describe: Callable[[SourceInfo], SourceInfo] = lambda info: info
        """Adds what its controller knows of it."""
        self._pending: list[Frame] = []
        self._sent_ns: dict[bool, int] = {}
        self._floor_ns = 0
        self._end: str | None = None
        self._closed = False
        opened_ns = now_ns()
        self.put(Kind.HELLO, dict(self.hello), opened_ns)
        # Says that this source is traced in spans, so that silence is not taken for idleness.
        self.put(Kind.OBSERVED, np.zeros(0, OBSERVED), opened_ns)
        if not self.link.there:
            message = "counters only: what holds the trainer back needs an agent in it"
            self.say({"tier": "nvml", "state": "watching", "says": message}, opened_ns)
        self.link.keep_alive()

    # --- Source -----------------------------------------------------------------

    @property
    def info(self) -> SourceInfo:
        label = f"pid {self.pid}" if self.pid is not None else "this machine's GPUs"
        info = with_hello(SourceInfo(kind="live", label=label), self.hello)
        return self.describe(replace(info, pid=self.pid))

    @property
    def ended(self) -> bool:
        return self._end is not None and not self._pending

    def frames(self, until_ns: int | None = None) -> Iterator[Frame]:
        """What was gathered, in order; each frame is also kept and recorded.

        A frame that comes after a reader has passed its time is stamped with the present, so that
        a replay lets every frame out at the same reading as here.
        """
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
        """Detaches and lets go of everything: seconds at the longest, more only for a slow disk.

        What was on its way is recorded: it tells of the last half second.
        """
        if self._closed:
            return
        self._closed = True
        left = self.link.leave()
        self.feeds.close()
        self.load.close()
        if self._end is None:
            with contextlib.suppress(Exception):  # as in `gather`: nothing of it keeps us here
                self._take_rest(left)
        left_ns = max(self.now_ns(), self._floor_ns)
        last = Frame(Kind.END, {"reason": "the monitor left"}, left_ns)
        self.tee.close(None if self._end is not None else last)

    def _take_rest(self, left: Sequence[Frame]) -> None:
        now_ns = self.now_ns()
        for frame in left:
            self._take(frame, now_ns, None, lambda one, _: one.kind != Kind.STATUS)
        for frame, carried in self.feeds.drain():
            self._take(frame, now_ns, carried, lambda *_: True)
        for _ in self.frames():
            pass

    # --- in ---------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        return self._closed or self._end is not None

    @property
    def over(self) -> str | None:
        return self._end or self.link.lost

    def gather(self, now_ns: int, hear: Hear) -> None:
        try:
            for frame in merge_frames(self.link.frames()):
                self._take(frame, now_ns, None, hear)
        except Exception as fault:  # noqa: BLE001  a frame nobody foresaw costs its agent, not the monitor
            self.link.refuse(fault)
        if self.link.fault is not None:
            self._lose_agent(self.link.fault)
        elif self.link.hung_up_why and self.link.is_over(
            now_ns, self.load.trainer_running is False
        ):
            self._lose_agent(self.link.hung_up_why)
        for frame, carried in self.feeds.drain():
            self._take(frame, now_ns, carried, hear)

    def put(self, kind: Kind, body: Any, now_ns: int) -> None:
        self._pending.append(Frame(kind, body, now_ns))

    def say(self, status: dict[str, Any], now_ns: int) -> None:
        """What of a status is new, as a frame of our own."""
        fresh = {name: value for name, value in status.items() if self.status.get(name) != value}
        if "gauges" in fresh:  # together, or they would be read off the sentences
            fresh["facts"] = status["facts"]
        if fresh:
            self.status.update(fresh)
            self.put(Kind.STATUS, fresh, now_ns)

    def end(self, reason: str, now_ns: int) -> None:
        if self._end is None:
            self._end = reason
            self.put(Kind.END, {"reason": reason}, now_ns)

    def refuse(self, fault: Exception) -> bool:
        """Lets go of the agent whose frames could not be taken in; False: there never was one."""
        if not self.link.refuse(fault):
            return False
        self._lose_agent(str(self.link.fault))
        return True

    def clock_fell(self, now_ns: int) -> None:
        """Somebody set CLOCK_REALTIME back, for us and the trainer: stamps of before bind nobody."""
        self._sent_ns.clear()
        self._pending = [replace(f, sent_ns=min(f.sent_ns, now_ns)) for f in self._pending]
        self._floor_ns = 0
        self.link.clock_fell()

    def _take(
        self, frame: Frame, now_ns: int, carried: frozenset[Metric] | None, hear: Hear
    ) -> None:
        if frame.kind == Kind.END:
            self.link.hang_up(str(frame.body.get("reason", "the agent ended")))
            return
        if frame.kind == Kind.HELLO:
            self.hello = {**self.hello, **frame.body}
        elif frame.kind == Kind.DEVICE:
            self.feeds.learn_device(frame.body)
        elif frame.kind == Kind.OBSERVED:
            self.feeds.traced(frame.body)
        elif frame.kind in (Kind.MARKS, Kind.NAMES) and carried is None:
            self.feeds.hear(frame)
        if not hear(frame, now_ns):
            return
        if frame.kind == Kind.GAUGES and carried:
            frame = replace(frame, body=frame.body[~np.isin(frame.body["metric"], list(carried))])
        # Each side's own order stands: names come before what uses them, though sealed after it.
        stamp_ns = min(max(frame.sent_ns or now_ns, now_ns - LATE_NS), now_ns)
        sent_ns = max(stamp_ns, self._sent_ns.get(carried is None, 0))
        self._sent_ns[carried is None] = sent_ns
        self._pending.append(frame if frame.sent_ns == sent_ns else replace(frame, sent_ns=sent_ns))

    def _lose_agent(self, why: str) -> None:
        if self.link.lost is not None:
            return
        now_ns = self.now_ns()
        if self.load.trainer_running is False:
            self.link.lost = "the trainer exited"
            self.end(self.load.trainer_end, now_ns)
            return
        self.link.lost = f"the agent is gone ({why}): counters only"
        self.say({"tier": "nvml", "state": "lost", "says": self.link.lost}, now_ns)

    # --- out --------------------------------------------------------------------

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


class Feeds:
    def __init__(self, feeds: Sequence[SamplerFeed]) -> None:
        self._feeds = list(feeds)
        self._uuids: dict[int, str] = {}

    @property
    def remarks(self) -> list[str]:
        return [line for feed in self._feeds for line in feed.remarks]

    @property
    def facts(self) -> list[str]:
        return sorted({fact for feed in self._feeds for fact in feed.facts})

    @property
    def settling(self) -> bool:
        return any(feed.settling for feed in self._feeds)

    @property
    def replace_agent(self) -> bool:
        return any(feed.replaces_agent for feed in self._feeds)

    def share(self, ranks: int) -> None:
        """Samples are as sparse as of so many ranks of a job: all together cost no more than a few."""
        for feed in self._feeds:
            feed.ranks = ranks

    @property
    def workers(self) -> list[int]:
        return [pid for feed in self._feeds if (pid := feed.worker) is not None]

    def drain(self) -> Iterator[tuple[Frame, frozenset[Metric]]]:
        """Frames since the call before, each with the metrics that a better feed carries."""
        for feed in self._feeds:
            others = (one.carries for one in self._feeds if one is not feed and one.active)
            carried = frozenset[Metric]().union(*others)  # two sources would blur into one line
            for frame in merge_frames(feed.drain()):
                yield frame, carried

    def learn_device(self, facts: dict[str, Any]) -> None:
        """A device as the agent knows it: samplers number GPUs in their own way."""
        uuid = facts.get("uuid")
        if uuid and "device_id" in facts:
            self._uuids[int(facts["device_id"])] = str(uuid)
            for feed in self._feeds:
                feed.match(dict(self._uuids))

    def expect(self, decision: Decision, now_ns: int) -> None:
        """The agent was told to trace kernels, or to leave it."""
        until_ns = None if decision.act is Act.CONTINUOUS_ON else 0
        if decision.act is Act.BURST:
            until_ns = now_ns + decision.longest_ns
        for feed in self._feeds:
            feed.expect(until_ns)

    def traced(self, spans: Any) -> None:
        for feed in self._feeds:
            feed.traced(spans)

    def hear(self, frame: Frame) -> None:
        for feed in self._feeds:
            feed.hear(frame)

    def close(self) -> None:
        for feed in self._feeds:
            feed.close()
