"""What the device can do, as far as an edit needs it."""

from __future__ import annotations

from msgspec import Struct

from brrrtop.analysis.ceilings import Ceilings

USUAL_MEMORY = 0.7
"""Share of the bandwidth that a kernel of unknown bytes is taken to reach."""


class Roofs(Struct, frozen=True):
    """Rates of one GPU."""

    ceilings: Ceilings | None
    bytes_per_s: float
    usual_memory: float = USUAL_MEMORY

    @property
    def has_triton(self) -> bool:
        """Whether Triton generates code for this GPU: from compute capability 7.0 on (its README)."""
        capability = self.ceilings.capability if self.ceilings else None
        return capability is None or capability >= (7, 0)

    def flop_per_s(self, precision: str) -> float | None:
        """Peak of the tensor cores, or of what stands in for them."""
        return self.ceilings.rate(precision, True) if self.ceilings else None


def roofs_of(ceilings: Ceilings | None) -> Roofs | None:
    """The device's roofs; None where its bandwidth is unknown."""
    if ceilings is None or not ceilings.bytes_per_s:
        return None
    return Roofs(ceilings, ceilings.bytes_per_s)
