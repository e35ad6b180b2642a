"""weather_shift.py with the channels at the end throughout: no layout copies."""

import functools

import weather_shift
from harness import main

TRUTH = {
    "regime": "memory",
    "cause": "norms, shifts, GELU and narrow products, bound by traffic; eager, so fusion is left to gain",
    "advice": [],
    "not_advice": ["needless-copies", *weather_shift.TRUTH["not_advice"]],
}

build = functools.partial(weather_shift.build, channels_at_end=True)

if __name__ == "__main__":
    main(__file__, TRUTH, build)
