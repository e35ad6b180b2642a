"""Numbers as people read them, and the one place that decides how "not measured" looks. No colour.

Python frames as torch.profiler names them: `/a/b/train.py(12): fetch`, `<built-in function sleep>`.
"""

import re

UNMEASURED = "–"


def times_as_fast(saves: float) -> str:
    """How many times as fast a run is with that share of its time gone: `0.95×`, `1.07×`, `1.7×`, `15×`.

    Of large gains a point more or less is several times: they come in fives.
    """
    times = 1 / (1 - min(saves, 0.99))
    if times >= 9.5:
        return f"{5 * round(times / 5)}×"
    return f"{times:.1f}×" if times >= 1.5 else f"{times:.2f}×"


def share(value: float | None, digits: int = 0) -> str:
    """0.314 → `31%`. Never rounds something that is there to 0 %, nor something less than all to 100 %."""
    if value is None:
        return UNMEASURED
    percent = 100 * value
    least = 10.0**-digits
    if 0 < percent < least / 2:
        return f"<{least:.{digits}f}%"
    if 100 - least / 2 < percent < 100:
        return f">{100 - least:.{digits}f}%"
    return f"{round(percent, digits) or 0.0:.{digits}f}%"


def within(value: float, error: float) -> str:
    """-0.02, 0.03 → `-2% ±3%`."""
    return f"{round(100 * value):d}% ±{max(1, round(100 * error)):d}%"


def duration(value_ns: float | None) -> str:
    """1234567 → `1.23 ms`: three significant digits."""
    if value_ns is None:
        return UNMEASURED
    size = abs(value_ns)
    if size < 999.5:
        return f"{value_ns:.0f} ns"
    for unit, scale in (("µs", 1e3), ("ms", 1e6)):
        if size < 999.5 * scale:
            return f"{_three(value_ns / scale)} {unit}"
    return f"{_three(value_ns / 1e9)} s"


def clock(value_ns: float) -> str:
    """A long time as people say it: `2.6 s`, `2:14`, `1:02:14`."""
    if value_ns < 59.5e9:
        return duration(value_ns) if value_ns < 9.95e9 else f"{value_ns / 1e9:.0f} s"
    minutes, seconds = divmod(round(value_ns / 1e9), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _three(value: float) -> str:
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def rate(value: float | None, unit: str) -> str:
    """3.35e12, `B/s` → `3.35 TB/s`."""
    if value is None:
        return UNMEASURED
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale * 0.9995:
            return f"{_three(value / scale)} {prefix}{unit}"
    return f"{_three(value)} {unit}"


def size(value_bytes: float | None) -> str:
    if value_bytes is None:
        return UNMEASURED
    scaled = float(value_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(scaled) < 999.5:
            return f"{scaled:.0f} {unit}" if unit == "B" else f"{_three(scaled)} {unit}"
        scaled /= 1024
    return f"{_three(scaled)} TiB"


def figure(value: float) -> str:
    """2940.7 → `2,940`: three significant digits, never as a power of ten."""
    size = abs(value)
    if size >= 999.5:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}" if size >= 1e-3 or not size else "<0.001"


def count(value: int | None) -> str:
    return UNMEASURED if value is None else f"{value:,}"


_FRAME = re.compile(r"(?P<file>[^<(][^(]*)\((?P<line>\d+)\): (?P<function>.+)")
_LIBRARY = re.compile(
    r"torch/|.*/(site|dist)-packages/|.*/torch/(nn|optim|autograd|utils|cuda|profiler|_)"
    r"|(.*/)?lib/python3"
    r"|(threading|contextlib|runpy|functools|typing|random|abc|queue|enum|os|copy|inspect|warnings|re"
    r"|weakref|(collections|logging)/__init__|(multiprocessing|concurrent|asyncio|importlib|json)/[\w/]+"
    r")\.py\("
)
_OBJECT = re.compile(r" object at 0x[0-9a-f]+|(?<= of )pybind11_builtins\.\w+")


def is_users(name: str) -> bool:
    """Is this a function of the user's own code, and not of torch, a package or the standard library?"""
    return _FRAME.match(name) is not None and _LIBRARY.match(name) is None


def without_object(name: str) -> str:
    """The name of a method without which object it was called on."""
    return _OBJECT.sub("", name)


def placed(name: str) -> str:
    """`b/train.py:12 fetch`, as samples of a live stack have it."""
    frame = _FRAME.match(name)
    if frame is None:
        return without_object(name)
    path = "/".join(frame["file"].rsplit("/", 2)[-2:])
    return f"{path}:{frame['line']} {frame['function']}"
