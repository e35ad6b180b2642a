"""A driver over prepared snapshots, that writes down what it was asked for."""

from collections.abc import Sequence
from threading import Event as Flag

from msgspec.structs import replace

from brrrtop.model.snapshot import Event, Snapshot

ALL = frozenset({"step", "seek", "speed", "continuous", "follow"})


class ListDriver:
    """Hands out its snapshots in turn, the last one for ever."""

    def __init__(
        self,
        snapshots: Sequence[Snapshot],
        capabilities: frozenset[str] = ALL,
        fails: BaseException | None = None,
    ) -> None:
        self._snapshots = list(snapshots)
        self._at = -1
        self._fails = fails
        self.capabilities = capabilities
        self.asked: list[str] = []
        self.closed = Flag()
        self.paused = False

    def advance(self) -> Snapshot:
        if self._at >= len(self._snapshots) - 1 and self._fails is not None:
            raise self._fails
        if not self.paused:
            self._at = min(self._at + 1, len(self._snapshots) - 1)
        return replace(self._snapshots[max(0, self._at)], paused=self.paused)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def step(self, count: int) -> None:
        self.asked.append(f"step {count}")
        self.paused = True
        self._at = max(0, min(self._at + count, len(self._snapshots) - 1))

    def seek(self, share: float) -> None:
        self.asked.append(f"seek {share:.2f}")

    def faster(self) -> None:
        self.asked.append("faster")

    def slower(self) -> None:
        self.asked.append("slower")

    def select_device(self, device_id: int) -> None:
        self.asked.append(f"device {device_id}")

    def mark_baseline(self) -> str:
        self.asked.append("baseline")
        return "baseline marked"

    def silence(self, kind: str) -> str:
        self.asked.append(f"silence {kind}")
        every = (*self._snapshots[-1].advisories, *self._snapshots[-1].silenced)
        quiet = {one.kind for one in self._snapshots[-1].silenced} ^ {kind}
        self._snapshots[-1] = replace(
            self._snapshots[-1],
            advisories=tuple(one for one in every if one.kind not in quiet),
            silenced=tuple(one for one in every if one.kind in quiet),
        )
        return f"{kind} is silenced"

    def continuous(self, on: bool) -> str:
        self.asked.append(f"continuous {on}")
        return "tracing without pauses" if on else "tracing in bursts"

    def burst(self) -> str:
        self.asked.append("burst")
        return "tracing the next steps"

    def shapes(self) -> str:
        self.asked.append("shapes")
        event = Event(self._snapshots[-1].now_ns, "shapes", "shapes of one step recorded: 812 ops")
        last = self._snapshots[-1]
        self._snapshots[-1] = replace(last, events=(*last.events, event))
        return "recording the shapes of one step"

    def follow(self) -> str:
        self.asked.append("follow")
        return "watching pid 4712"

    def close(self) -> None:
        self.closed.set()
