"""Puts the GPU's own time stamps on the host's clock."""

from __future__ import annotations

from collections import deque

_KEPT = 100
_SAME_NS = 1_000_000_000
"""Clocks this near are one and the same, read late: CUPTI 13.4 stamps samples on the host's clock
(H200: within 5 us of the kernels, while reading was 8 ms late)."""


class ClockMatch:
    """The offset between two clocks, from pairs of which one is always a little late.

    A sample can only be read after its interval has ended, so host time at reading minus the
    sample's end is the offset plus a delay that is never negative. The smallest seen of late is
    the offset, too large by the smallest delay (about ten milliseconds).
    """

    def __init__(self) -> None:
        self._seen: deque[int] = deque(maxlen=_KEPT)

    def offset_ns(self, device_ns: int, host_ns: int) -> int:
        """What to add to device times.

        Args:
            device_ns: End of the newest sample, on the GPU's clock.
            host_ns: When it was read, on CLOCK_REALTIME.
        """
        self._seen.append(host_ns - device_ns)
        least = min(self._seen)
        return 0 if 0 <= least < _SAME_NS else least
