"""Advice appears when it stays and goes when it stays away."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from brrrtop.advisories.context import NAMES_LINES
from brrrtop.advisories.steady import DISAPPEARS_AFTER, Steady
from brrrtop.model.advice import Advisory


def advice(kind: str, confidence: float = 0.7, saves: float | None = 0.2) -> Advisory:
    return Advisory(kind, "says", confidence, saves, {"n": 1}, "try", "waste")


def shown(steady: Steady) -> list[str]:
    return [advisory.kind for advisory in steady.shown]


def after(*looks: Iterable[Advisory]) -> Steady:
    steady = Steady()
    for palette in looks:
        steady.update(palette)
    return steady


PAUSE, SURE = advice("gc-pause"), advice("gc-pause", 0.9)


@pytest.mark.parametrize(
    ("looks", "kinds"),
    [
        ([[advice("gc-pause", 0.5)]], ["gc-pause"]),
        ([[], [PAUSE]], []),
        ([[], [PAUSE], [PAUSE]], ["gc-pause"]),
        ([[], [PAUSE], [], [PAUSE]], []),
        ([[SURE]], ["gc-pause"]),
        ([[SURE], [], []], ["gc-pause"]),
        ([[SURE], [], [], []], []),
        ([[advice("a", 0.9), advice("b", 0.85, 0.5), advice("c", 0.9, None)]], ["b", "a", "c"]),
        ([[SURE], [advice("warming-up", 0.95, None)]], ["warming-up"]),
        ([[advice("none-healthy", 0.9, None)], [SURE]], ["gc-pause"]),
    ],
    ids=[
        "all of the first window", "unsure, once", "unsure, twice", "not in a row", "sure, at once",
        "survives two windows without it", "and not three", "the largest expected gain first",
        "warming up takes all else off", "healthy is never said beside something to win",
    ],
)  # fmt: skip
def test_what_is_shown_after_windows(looks: list[list[Advisory]], kinds: list[str]) -> None:
    assert shown(after(*looks)) == kinds


def test_after_a_new_start_all_that_the_first_window_says_is_shown() -> None:
    steady = after([], [])
    steady.forget()
    steady.update([advice("gc-pause", 0.5)])
    assert shown(steady) == ["gc-pause"]


def test_what_is_shown_is_the_latest_evidence() -> None:
    steady = after([advice("gc-pause", 0.9, 0.2)], [advice("gc-pause", 0.9, 0.4)])
    assert steady.shown[0].saves_at_most == 0.4


def test_a_window_that_is_judged_anew_confirms_nothing() -> None:
    steady = after([], [advice("gc-pause")])
    for _ in range(5):
        steady.update([advice("gc-pause")], again=True)
        assert shown(steady) == []
    steady.update([advice("gc-pause")])
    assert shown(steady) == ["gc-pause"]


def test_a_window_that_is_judged_anew_refutes_once() -> None:
    steady = after([advice("gc-pause", 0.9)], [])
    for _ in range(5):
        steady.update([], again=True)
    steady.update([])
    assert shown(steady) == ["gc-pause"]
    steady.update([])
    assert shown(steady) == []


def test_the_last_word_on_a_window_is_what_counts() -> None:
    steady = after([], [advice("gc-pause")])
    steady.update([], again=True)
    steady.update([advice("gc-pause")])
    assert shown(steady) == [], "the window before spoke against it in the end"
    steady.update([advice("gc-pause", 0.9, 0.4)], again=True)
    assert steady.shown[0].saves_at_most == 0.4


def test_advice_that_a_second_verdict_takes_back_does_not_flicker() -> None:
    steady = after([advice("gc-pause", 0.9)])
    steady.update([], again=True)
    assert shown(steady) == ["gc-pause"]
    steady.update([])
    assert shown(steady) == ["gc-pause"]
    steady.update([])
    assert shown(steady) == [], "three windows without it, the one that was judged anew among them"


def test_what_a_window_says_only_at_first_goes_before_the_next_window() -> None:
    """Of a loop that only trains, an evaluation was shown for 12 s, by what the first second looked like."""
    steady = after([advice("evaluation-share", 0.9)])
    for number in range(DISAPPEARS_AFTER):
        assert shown(steady) == ["evaluation-share"], number
        steady.update([], again=True)
    assert shown(steady) == []


@pytest.mark.parametrize("again", [False, True])
def test_after_a_warm_up_all_that_is_said_next_is_shown_and_not_the_warm_up(again) -> None:
    steady = after([advice("warming-up", 0.95, None)])
    steady.update([advice("launch-bound-compile", 0.6)], again=again)
    assert shown(steady) == ["launch-bound-compile"]


def test_a_second_verdict_that_warms_up_takes_everything_off() -> None:
    steady = after([advice("gc-pause", 0.9)], [advice("gc-pause", 0.9)])
    steady.update([advice("warming-up", 0.95, None)], again=True)
    assert shown(steady) == ["warming-up"]
    steady.update([advice("warming-up", 0.95, None)], again=True)
    assert shown(steady) == ["warming-up"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=30))
def test_how_often_windows_are_judged_changes_nothing(windows: list[tuple[bool, int]]) -> None:
    once, often = Steady(), Steady()
    for positive, times in windows:
        text = [advice("gc-pause")] if positive else []
        once.update(text)
        often.update(text)
        for _ in range(times):
            often.update(text, again=True)
        assert once.shown == often.shown


@given(st.lists(st.booleans(), max_size=30))
def test_advice_never_flickers(windows: list[bool]) -> None:
    """Between two appearances lie at least three windows without it."""
    steady = Steady()
    states = []
    for positive in windows:
        steady.update([advice("gc-pause")] if positive else [])
        states.append(bool(steady.shown))
    for place in range(1, len(states)):
        if states[place - 1] and not states[place]:
            assert not any(windows[place - DISAPPEARS_AFTER + 1 : place + 1])


def test_two_of_like_gain_do_not_swap_places_with_every_window() -> None:
    steady = after([advice("sync-point", 0.9, 0.30), advice("gc-pause", 0.9, 0.29)])
    for first, second in ((0.29, 0.31), (0.30, 0.29), (0.29, 0.31)):
        steady.update([advice("sync-point", 0.9, first), advice("gc-pause", 0.9, second)])
        assert shown(steady)[0] == "sync-point"
    for _ in range(6):
        steady.update([advice("sync-point", 0.9, 0.1), advice("gc-pause", 0.9, 0.4)])
    assert shown(steady)[0] == "gc-pause"


def test_a_line_that_was_seen_stays_with_its_age() -> None:
    seen = replace(
        advice("sync-point", 0.9), evidence={"lines": ["train.py:41 step | loss.item()"]}
    )
    bare = replace(seen, suggests=f"read less; {NAMES_LINES}", evidence={"lines": []})
    steady = Steady()
    steady.update([seen], t_ns=10_000_000_000)
    steady.update([bare], t_ns=24_000_000_000)
    now = steady.shown[0]
    assert now.suggests == "read less; most at train.py:41 (`loss.item()`)"
    assert now.evidence["lines"] == ["train.py:41 step | loss.item()"]
    steady.update([seen], t_ns=25_000_000_000)
    assert steady.shown[0] == seen
