"""The interface of a sampler beside the monitor; a sampler overrides what it needs."""

import threading
from collections import deque
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from collectors.protocol.frames import Frame
from collectors.vocabulary import Metric

MOST = 4096
"""Frames put by; the oldest are dropped where nobody takes them."""


class SamplerFeed:
    """Something that samples beside the monitor; `drain` never waits."""

    carries: frozenset[Metric] = frozenset()
    """Metrics that it brings better than any other, while it is `active`."""
    facts: frozenset[str] = frozenset()
    """What a reader of its gauges must know, for programs: what of `collectors.vocabulary` holds."""

    ranks = 1
    """Of a job, that have such a sampler each."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque(maxlen=MOST)
        """Put by from one thread, taken from another."""

    @property
    def remarks(self) -> list[str]:
        """The same for people."""
        raise NotImplementedError

    @property
    def active(self) -> bool:
        return False

    @property
    def settling(self) -> bool:
        """It is being switched on: no moment to begin tracing."""
        return False

    @property
    def worker(self) -> int | None:
        return None

    def drain(self) -> list[Frame]:
        """What was put by since the call before."""
        frames = []
        while self._frames:
            frames.append(self._frames.popleft())
        return frames

    def close(self) -> object:
        raise NotImplementedError

    @property
    def replaces_agent(self) -> bool:
        """It samples the trainer's stack better than the agent."""
        return False

    def hear(self, frame: Frame) -> None:
        """Marks, or names, that the agent sent."""

    def match(self, uuids: Mapping[int, str]) -> None:
        """Learns the trainer's devices by its own numbers."""

    def expect(self, until_ns: int | None) -> None:
        """Kernels will be traced until about then; None: from here on, 0: no more."""

    def traced(self, spans: npt.NDArray[np.void]) -> None:
        """Kernels were traced in these `protocol.frames.OBSERVED` spans."""


class SamplerThread(SamplerFeed):
    """A sampler that reads on a thread of its own: a driver that hangs holds nobody up."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, wait_s: float = 1.0) -> bool:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        raise NotImplementedError
