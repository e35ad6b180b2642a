"""What was promised and won, in words."""

import pytest

from brrrtop.model.advice import PromiseResult
from brrrtop.views import comparison as compare_text


def test_a_promise_that_was_beaten_says_that_more_changed():
    assert "something else changed too" in compare_text.promise(PromiseResult("a", 0.1, 0.3))
    assert "nothing: it costs 10%" in compare_text.promise(PromiseResult("a", 0.1, -0.1))
    assert "won: not measured" in compare_text.promise(PromiseResult("a", 0.1, None))
    assert "80% of that" in compare_text.promise(PromiseResult("a", 0.5, 0.4))


@pytest.mark.parametrize(
    ("steps", "text"),
    [(1.0, "mean of 1 step"), (0.5, "mean of 0.5 steps"), (59.0, "mean of 59 steps"), (None, "")],
)
def test_what_a_time_is_the_mean_of_is_told_in_numbers_that_agree(steps, text):
    assert compare_text.averaged(steps) == text
