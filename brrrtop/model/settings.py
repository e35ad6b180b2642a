"""What a person chose for the screen, kept from one time to the next. Computes nothing."""

from msgspec import Struct

PANES = ("figures", "history", "advice", "loader", "step", "kernels", "side")
"""Parts of the main screen that can be hidden, by name."""
ZOOMED = ("kernels", "advice", "history", "step", "side")
"""Those that can have the screen for themselves, in the order of the key."""


class Settings(Struct, frozen=True):
    theme: str | None = None
    """None: as dark or light as the terminal."""
    hidden: tuple[str, ...] = ()
    """Of `PANES`."""
    zoomed: str = ""
    """The one of `ZOOMED` that has the screen for itself; empty: none."""
    gpu_hour: float = 0.0
    """What an hour of one GPU costs; 0: nobody said."""
    currency: str = ""

    def money(self, duration_ns: float) -> str:
        """`6.00 €`; empty without a price."""
        spent = duration_ns / 3.6e12 * self.gpu_hour
        return f"{spent:,.2f} {self.currency}".rstrip() if self.gpu_hour > 0 else ""
