"""Which counter samples are worth their cost: those of spans in which kernels are traced. And how much
of the time they cover.

Evaluating a sample costs the monitor about 19 us, so most are not. While a burst is expected or
under way all are, and those of spans that were traced go out; otherwise enough for the gauges.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from collectors.protocol.frames import on_host_clock

Rows = npt.NDArray[np.void]

SECOND = 1_000_000_000
SLACK_NS = SECOND // 2
"""How much later than ordered a burst may begin: it waits for the end of a step."""
QUIET_NS = SECOND // 4
"""The agent reports spans every 150 ms while it traces; after that long without one it is over."""
MARGIN_NS = 10_000_000
"""Sent before and after a traced span: host times of samples are a little off."""
PATIENCE_NS = 3 * SECOND
"""A span whose last samples have not come after this long is sent without them."""
DENSE_A_SECOND, DENSE_MOST = 1_500, 8_000
"""Samples evaluated one by one: on average (3 % of a core) and at once."""
KEPT_SAMPLES = 20_000
FOREVER = 1 << 62
BACK_S = 10.0
"""How far back it is looked."""
LEAST_S = 2.0
"""After less than that the share says little: one reading is full and the next one empty."""
WHOLE, STEP = 0.9, 0.1
"""From the first on nothing is said; a share is told anew when it is off by the second."""


class Bursts:
    """When to evaluate every sample, and which of them to send. Times are CLOCK_REALTIME."""

    def __init__(self, now_ns: int) -> None:
        self._until_ns = 0
        self._spans: list[tuple[int, int, int]] = []
        """Traced and not sent yet: start, end, when heard of."""
        self._buffered: deque[Rows] = deque()
        self._sent_ns: dict[int, int] = {}
        """End of the last sample that was sent, by device, on the GPU's clock."""
        self._allowed = float(DENSE_MOST)
        self._now_ns = now_ns

    def expect(self, until_ns: int | None, now_ns: int) -> None:
        """Kernels will be traced until about then; None: until told otherwise, 0: no more."""
        if until_ns is None:
            self._until_ns = FOREVER
        else:
            self._until_ns = until_ns + SLACK_NS if until_ns > now_ns else 0

    def traced(self, spans: Rows, now_ns: int) -> None:
        """`wire.OBSERVED` rows of the agent."""
        for row in spans:
            if row["end_ns"] > row["start_ns"]:
                self._spans.append((int(row["start_ns"]), int(row["end_ns"]), now_ns))
        if self._until_ns < FOREVER:
            self._until_ns = now_ns + QUIET_NS

    def wanted(self, now_ns: int) -> bool:
        """Whether all samples that are read now, those since the call before, are to be evaluated."""
        before_ns, self._now_ns = self._now_ns, now_ns
        since = max(0, now_ns - before_ns)
        self._allowed = min(DENSE_MOST, self._allowed + since / SECOND * DENSE_A_SECOND)
        return before_ns <= self._until_ns and self._allowed > 0

    def keep(self, rows: Rows) -> None:
        """Takes in samples in order of time. Between two there may be a gap, of which nothing is known."""
        self._allowed -= len(rows)
        self._buffered.append(rows)
        while sum(map(len, self._buffered)) > KEPT_SAMPLES:
            self._buffered.popleft()

    def due(self, now_ns: int) -> list[Rows]:
        """Samples to send: of traced spans, each once, one array a device."""
        if not self._spans or not self._buffered:
            self._spans = [s for s in self._spans if now_ns - s[2] < PATIENCE_NS]
            return []
        rows = np.concatenate(self._buffered)
        starts, ends = on_host_clock(rows)
        newest = int(ends.max())
        ready = [s for s in self._spans if s[1] + MARGIN_NS < newest or now_ns - s[2] > PATIENCE_NS]
        if not ready:
            return []
        self._spans = [s for s in self._spans if s not in ready]
        near = np.zeros(len(rows), np.bool_)
        for low, high, _ in ready:
            near |= (ends > low - MARGIN_NS) & (starts < high + MARGIN_NS)
        due_rows = []
        for device in np.unique(rows["device"][near]).tolist():
            of_device = near & (rows["device"] == device)
            of_device &= rows["end_ns"] > self._sent_ns.get(device, -FOREVER)
            if of_device.any():
                due_rows.append(rows[of_device])
                self._sent_ns[device] = int(rows["end_ns"][of_device].max())
        return due_rows


class Coverage:
    """Fed with the time of all samples so far; times are CLOCK_MONOTONIC in seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._last_share: float | None = None

    def add(self, now_s: float, covered_ns: int) -> None:
        """What all samples that were read until now cover together, of one device."""
        self._seen.append((now_s, covered_ns))
        while len(self._seen) > 2 and self._seen[1][0] < now_s - BACK_S:
            self._seen.popleft()

    @property
    def share(self) -> float | None:
        """0..1 of late; None: too early to say."""
        if not self._seen:
            return None
        (low_s, low_ns), (high_s, high_ns) = self._seen[0], self._seen[-1]
        if high_s - low_s < LEAST_S:
            return None
        return min(1.0, (high_ns - low_ns) / 1e9 / (high_s - low_s))

    def is_news(self) -> bool:
        """Whether `reported_share` would say something else than it did."""
        share = self.share
        last_share = 1.0 if self._last_share is None else self._last_share
        return share is not None and abs(share - last_share) >= STEP

    def reported_share(self) -> float | None:
        """The share to tell in tenths, at least one; None: nothing is missing, or too early to say."""
        share = self.share
        if share is None:
            return None
        self._last_share = share
        return None if share >= WHOLE else max(0.1, round(share, 1))
