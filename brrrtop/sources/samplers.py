"""The samplers beside an agent, as one: what they bring, and what they are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from brrrtop.scheduling.limits import Act, Decision
from collectors.gpu.feed import SamplerFeed
from collectors.protocol.frames import Frame
from collectors.vocabulary import Metric


class Feeds:
    """Started samplers; what a property is of one is in `SamplerFeed`."""

    def __init__(self, feeds: Sequence[SamplerFeed]) -> None:
        self._feeds = list(feeds)
        self._uuids: dict[int, str] = {}

    @property
    def says(self) -> list[str]:
        return [line for feed in self._feeds for line in feed.says]

    @property
    def facts(self) -> list[str]:
        return sorted({fact for feed in self._feeds for fact in feed.facts})

    @property
    def settling(self) -> bool:
        return any(feed.settling for feed in self._feeds)

    @property
    def workers(self) -> list[int]:
        return [pid for feed in self._feeds if (pid := feed.worker) is not None]

    def drain(self) -> Iterator[tuple[Frame, frozenset[Metric]]]:
        """Frames since the call before, each with the metrics that a better feed carries."""
        for feed in self._feeds:
            others = (one.carries for one in self._feeds if one is not feed and one.active)
            carried = frozenset[Metric]().union(*others)  # two sources would blur into one line
            for frame in feed.drain():
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

    def close(self) -> None:
        for feed in self._feeds:
            feed.close()
