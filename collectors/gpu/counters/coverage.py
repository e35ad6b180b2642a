"""Which share of the time counter samples cover, in words that do not change all the time."""

from __future__ import annotations

from collections import deque

BACK_S = 10.0
"""How far back it is looked."""
LEAST_S = 2.0
"""After less than that the share says little: one reading is full and the next one empty."""
WHOLE, STEP = 0.9, 0.1
"""From the first on nothing is said; a share is told anew when it is off by the second."""


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
