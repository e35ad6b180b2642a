"""Where samples found the training thread. Computes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Line(Struct, frozen=True):
    """A line of the trainer's own code that samples of its training thread were at."""

    place: str
    """`nb/reader.py:30`; with the function where the source is not known."""
    source: str
    """Empty where nobody could read it."""
    count: int
    """Samples at it, whatever it had called."""
    reads_as: str | None = None
    """The idle cause that it names; None: none."""
    is_reading: bool = False
    """Reads as `io`, and as reading a file."""

    def __str__(self) -> str:
        return f"{self.place}, {self.source}" if self.source else self.place


class StackSamples(Struct, frozen=True):
    """Samples of the training thread's stack outside waits that have a name."""

    count: int
    span_ns: int
    """From the first to the last."""
    within: bool
    """All were taken in the judged span; else in the watch around it."""
    lines: tuple[Line, ...]
    """Where many of them were, most first; empty where no line stands out."""
    shares: Mapping[str, float]
    """Part of them by the idle cause that their line names."""
    io_bounds: tuple[float, float] = (0.0, 1.0)
    """Of the share of `io`: between these it is, 95 times of 100."""

    @property
    def io_count(self) -> int:
        """Samples in file or network work."""
        return round(self.shares.get("io", 0.0) * self.count)
