"""Puts the GPU's own time stamps on the host's clock."""

from __future__ import annotations

from collections import deque

_KEPT = 100


class ClockMatch:
    """The offset between two clocks, from pairs of which one is always a little late.

    A sample can only be read after its interval has ended, so host time at reading minus the
    sample's end is the offset plus a delay that is never negative. The smallest seen of late is
    the offset, too large by the smallest delay (about a millisecond at 10 readings a second).
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
        return min(self._seen)
