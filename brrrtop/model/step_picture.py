"""One step, drawn: what the host and the device did side by side. Computes nothing.

Times are integer nanoseconds on the trainer's CLOCK_REALTIME.
"""

from __future__ import annotations

from msgspec import Struct

from brrrtop.model.tables import I4, I8, U1, Columns, Span


class Bars(Columns, frozen=True, eq=False):
    """Bars of one lane, sorted by start. They may overlap: of two, the later one is on top."""

    starts_ns: I8
    ends_ns: I8
    kinds: U1
    """Into `StepPicture.kinds`."""
    name_ids: I4
    """Into `StepPicture.names`; -1: none."""
    launched_ns: I8
    """When the host launched it; -1: not known, or nothing that is launched."""


class Lane(Struct, frozen=True, eq=False):
    name: str
    """`Python`, `calls`, `kernels`, `copies`, `communication`, `gaps`."""
    bars: Bars


class StepPicture(Struct, frozen=True, eq=False):
    """The bars of one step. Bars that straddle its edges are included whole."""

    span: Span
    lanes: tuple[Lane, ...]
    """Of the host first. Lanes of which nothing was recorded are left out."""
    kinds: tuple[str, ...]
    """Sides of kernels, buckets of the account, and what the host did: `launching`, `optimizer`,
    `annotation`."""
    names: tuple[str, ...]
    step: int | None = None
    """Its number among those of the window, from 1; None: no steps are known, this is a stretch."""
    steps: int = 0

    def lane(self, name: str) -> Lane | None:
        return next((lane for lane in self.lanes if lane.name == name), None)
