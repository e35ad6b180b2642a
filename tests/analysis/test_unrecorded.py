"""Calls are joined within their own traced span; those nobody recorded are told from their kin."""

from __future__ import annotations

import numpy as np

from brrrtop.analysis.account.unrecorded import call_times
from brrrtop.model.account import Account
from brrrtop.model.tables import Span, Window
from brrrtop.model.vocabulary import CallClass
from brrrtop.timeline import correlation
from tests.analysis.build import D2H, C, K, window
from tests.analysis.test_account import booked

US = 1_000


def test_an_id_of_one_traced_span_is_not_that_of_another() -> None:
    kernels = [K(100, 200, corr=5), K(5_000, 5_100, corr=5), K(5_200, 5_300, corr=6)]
    calls = [C(50, 60, 5), C(4_900, 4_950, 6)]
    spans = (Span(90, 1_000), Span(4_990, 6_000))
    w = window(kernels, calls, observed=spans)
    assert correlation.call_of(w.activities, w.calls).tolist() == [0, 0, 1]
    assert correlation.call_of(w.activities, w.calls, spans).tolist() == [0, -1, 1]
    later = window(kernels[:1], [C(4_900, 4_950, 5)], observed=spans)
    assert correlation.call_of(later.activities, later.calls, spans).tolist() == [-1]


def test_what_runs_out_after_a_span_belongs_to_it() -> None:
    kernels = [K(900, 990, corr=1), K(1_050, 1_100, corr=2), K(1_200, 1_250, corr=3)]
    calls = [C(800, 810, 1), C(820, 830, 2), C(1_150, 1_160, 3)]
    spans = (Span(700, 1_000), Span(9_000, 9_900))
    w = window(kernels, calls, observed=spans)
    assert correlation.call_of(w.activities, w.calls, spans).tolist() == [0, 1, 2]


def host_late() -> Window:
    """A kernel, then a copy and its kernel, each 40 us after the one before, launched 8 us ahead."""
    kernels, calls = [], []
    for i in range(20):
        at = i * 100 * US
        kernels += [K(at, at + 5 * US, corr=3 * i + 1), K(at + 45 * US, at + 46 * US, D2H)]
        kernels += [K(at + 47 * US, at + 60 * US, corr=3 * i + 3)]
        calls += [C(at - 8 * US, at - 3 * US, 3 * i + 1), C(at + 39 * US, at + 44 * US, 3 * i + 3)]
    return window(kernels, calls)


def test_a_call_that_was_not_recorded_lies_as_far_ahead_as_the_others() -> None:
    w = host_late()
    rows = correlation.call_of(w.activities, w.calls)
    starts, ends, known = call_times(w.activities, w.calls, rows)
    assert known.all()
    copies = np.flatnonzero(rows < 0)
    assert len(copies) == 20
    assert (w.activities.starts_ns[copies] - starts[copies] == 8 * US).all()
    assert (ends[copies] - starts[copies] <= 5 * US).all()
    found: Account = booked(w)
    assert found.idle_ns["unknown"] == 0
    assert found.idle_ns["launch"] == sum(found.idle_ns.values())


def test_such_a_call_never_comes_after_the_launch_behind_it() -> None:
    kernels = [K(0, 5 * US, corr=1), K(45 * US, 46 * US, D2H), K(60 * US, 61 * US, corr=2)]
    calls = [C(-8 * US, -3 * US, 1), C(1 * US, 2 * US, 2)]
    w = window(kernels, calls)
    starts, _, known = call_times(w.activities, w.calls, correlation.call_of(w.activities, w.calls))
    assert known.all()
    assert starts[1] == 1 * US, "the queue held both: the copy waited on the device"
    assert booked(w).idle_ns["device"] > 0


def test_where_some_calls_of_a_type_are_recorded_a_missing_one_stays_unknown() -> None:
    kernels = [K(0, 5 * US, corr=1), K(45 * US, 46 * US, D2H), K(60 * US, 61 * US, corr=2)]
    kernels += [K(90 * US, 91 * US, D2H, corr=3)]
    calls = [C(-8 * US, -3 * US, 1), C(50 * US, 55 * US, 2), C(80 * US, 85 * US, 3, CallClass.COPY)]
    w = window(kernels, calls)
    _, _, known = call_times(w.activities, w.calls, correlation.call_of(w.activities, w.calls))
    assert known.tolist() == [True, False, True, True]
    nothing = window(kernels[:2])
    rows = correlation.call_of(nothing.activities, nothing.calls)
    assert not call_times(nothing.activities, nothing.calls, rows)[2].any()


def test_an_id_that_every_burst_gives_anew_belongs_to_the_call_before_the_kernel() -> None:
    begun = [1_000_000_000 * burst for burst in range(30)]
    kernels = [K(at + 50, at + 60, corr=7) for at in begun]
    calls = [C(at + 10, at + 20, corr=7) for at in begun]
    spans = tuple(Span(at, at + 100) for at in begun)
    w = window(kernels, calls)
    assert correlation.call_of(w.activities, w.calls, spans).tolist() == list(range(30))
    assert correlation.call_of(w.activities, w.calls).tolist() == list(range(30))
