"""The short name of a device function, under the name the screens know it by."""

from __future__ import annotations

from brrrtop.kernel_names import short_name

__all__ = ["short_name"]
