"""What a GPU training job is held back by: `analyze` a trace, `watch` the running program.

Importing this imports nothing else: each name loads what it needs when it is first used.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brrrtop.api.report import Report, analyze
    from brrrtop.api.watching import Watch, watch

__all__ = [
    "Report",
    "Watch",
    "analyze",
    "watch",
]
_HOMES = {
    "Report": "report",
    "analyze": "report",
    "Watch": "watching",
    "watch": "watching",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'brrrtop' has no attribute {name!r}")
    return getattr(import_module(f"brrrtop.api.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
