"""When the frames of a file were sent, as far as that can be."""

from __future__ import annotations

from brrrtop.protocol.columns import LONGEST_NS


class Stamps:
    """Takes a stamp more than a day from the one before for the same: something is recorded every
    second, so that such a jump is a fault of the file, and nobody plays it back."""

    def __init__(self) -> None:
        self._last_ns = 0

    def plausible(self, sent_ns: int) -> int:
        """`sent_ns`, or the stamp before it; 0 is no stamp."""
        if sent_ns and self._last_ns and abs(sent_ns - self._last_ns) > LONGEST_NS:
            return self._last_ns
        self._last_ns = sent_ns or self._last_ns
        return sent_ns
