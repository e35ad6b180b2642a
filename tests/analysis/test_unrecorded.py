"""Calls are joined within their own traced span; those nobody recorded are told from their kin."""

import numpy as np
import pytest

from brrrtop.advisories.advise import advise
from brrrtop.analysis.estimate import estimate, facts_of
from brrrtop.analysis.facts.launches import call_times
from brrrtop.analysis.facts.steps import between_steps
from brrrtop.analysis.facts.table import Facts
from brrrtop.cli.commands.replay import scenarios
from brrrtop.model.account import Account
from brrrtop.model.estimate import Regime
from brrrtop.model.tables import Span, Window
from brrrtop.text import phrases
from brrrtop.timeline import correlation
from collectors.vocabulary import CallClass
from tests.analysis.build import D2H, C, K, window
from tests.analysis.test_account import booked
from tests.recorded import timeline_of

US = 1_000


def test_an_id_of_one_traced_span_is_not_that_of_another():
    kernels = [K(100, 200, corr=5), K(5_000, 5_100, corr=5), K(5_200, 5_300, corr=6)]
    calls = [C(50, 60, 5), C(4_900, 4_950, 6)]
    spans = (Span(90, 1_000), Span(4_990, 6_000))
    w = window(kernels, calls, observed=spans)
    assert correlation.call_of(w.activities, w.calls).tolist() == [0, 0, 1]
    assert correlation.call_of(w.activities, w.calls, spans).tolist() == [0, -1, 1]
    later = window(kernels[:1], [C(4_900, 4_950, 5)], observed=spans)
    assert correlation.call_of(later.activities, later.calls, spans).tolist() == [-1]


def test_what_runs_out_after_a_span_belongs_to_it():
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


def test_a_call_that_was_not_recorded_lies_as_far_ahead_as_the_others():
    w = host_late()
    rows = correlation.call_of(w.activities, w.calls)
    starts, ends, known = call_times(Facts(w, rows))
    assert known.all()
    copies = np.flatnonzero(rows < 0)
    assert len(copies) == 20
    assert (w.activities.starts_ns[copies] - starts[copies] == 8 * US).all()
    assert (ends[copies] - starts[copies] <= 5 * US).all()
    account: Account = booked(w)
    assert account.idle_ns["unknown"] == 0
    assert account.idle_ns["launch"] == sum(account.idle_ns.values())


def test_such_a_call_never_comes_after_the_launch_behind_it():
    kernels = [K(0, 5 * US, corr=1), K(45 * US, 46 * US, D2H), K(60 * US, 61 * US, corr=2)]
    calls = [C(-8 * US, -3 * US, 1), C(1 * US, 2 * US, 2)]
    w = window(kernels, calls)
    starts, _, known = call_times(facts_of(w))
    assert known.all()
    assert starts[1] == 1 * US, "the queue held both: the copy waited on the device"
    assert booked(w).idle_ns["device"] > 0


def test_where_some_calls_of_a_type_are_recorded_a_missing_one_stays_unknown():
    kernels = [K(0, 5 * US, corr=1), K(45 * US, 46 * US, D2H), K(60 * US, 61 * US, corr=2)]
    kernels += [K(90 * US, 91 * US, D2H, corr=3)]
    calls = [C(-8 * US, -3 * US, 1), C(50 * US, 55 * US, 2), C(80 * US, 85 * US, 3, CallClass.COPY)]
    w = window(kernels, calls)
    _, _, known = call_times(facts_of(w))
    assert known.tolist() == [True, False, True, True]
    nothing = window(kernels[:2])
    rows = correlation.call_of(nothing.activities, nothing.calls)
    assert not call_times(Facts(nothing, rows))[2].any()


def test_an_id_that_every_burst_gives_anew_belongs_to_the_call_before_the_kernel():
    begun = [1_000_000_000 * burst for burst in range(30)]
    kernels = [K(at + 50, at + 60, corr=7) for at in begun]
    calls = [C(at + 10, at + 20, corr=7) for at in begun]
    spans = tuple(Span(at, at + 100) for at in begun)
    w = window(kernels, calls)
    assert correlation.call_of(w.activities, w.calls, spans).tolist() == list(range(30))
    assert correlation.call_of(w.activities, w.calls).tolist() == list(range(30))


def kernels_of(w: Window) -> list[K]:
    acts = w.activities
    columns = (acts.starts_ns, acts.ends_ns, acts.correlations, acts.stream_ids)
    return [
        K(a, b, corr=c, stream=s) for a, b, c, s in zip(*(x.tolist() for x in columns), strict=True)
    ]


def calls_of(w: Window) -> list[C]:
    columns = (w.calls.starts_ns, w.calls.ends_ns, w.calls.correlations, w.calls.classes)
    return [
        C(a, b, c, CallClass(k)) for a, b, c, k in zip(*(x.tolist() for x in columns), strict=True)
    ]


def graph(*nodes: tuple[int, int], called: int = -100) -> Window:
    """One launch of a CUDA graph, of which these nodes were recorded, between two plain kernels; in us."""
    end = nodes[-1][1]
    kernels = [(-50, 0, 1), *((a, b, 2) for a, b in nodes), (end, end + 10, 3)]
    calls = [C(-120 * US, -110 * US, 1)]
    calls.append(C(called * US, (called + 10) * US, 2, CallClass.GRAPH_LAUNCH))
    calls.append(C((called + 11) * US, (called + 12) * US, 3))
    return window([K(a * US, b * US, corr=c) for a, b, c in kernels], calls)


def test_a_hole_within_one_graph_launch_is_unknown_and_not_idle():
    result = booked(graph((0, 10), (50, 60), (80, 90), (300, 310)))
    assert result.unrecorded_ns == result.unknown_ns == (40 + 210) * US  # 20 us are no hole
    assert result.idle_ns["device"] == 20 * US == result.idle_total_ns


def test_a_hole_before_the_first_recorded_node_is_unknown():
    assert booked(graph((500, 510))).unrecorded_ns == 500 * US
    late = booked(graph((500, 510), called=100))  # the host's part is the host's
    assert late.unrecorded_ns == 390 * US
    assert late.idle_total_ns == 110 * US


def test_a_hole_that_another_stream_fills_is_no_idle_time():
    w = graph((0, 10), (300, 310))
    filled = window([K(0, 320 * US, corr=9, stream=8), *kernels_of(w)], calls_of(w))
    assert booked(filled).unrecorded_ns == 0


def test_the_same_hole_between_plain_launches_is_the_device():
    kernels = [K(0, 10 * US, corr=1), K(300 * US, 310 * US, corr=2)]
    result = booked(window(kernels, [C(-90 * US, -80 * US, 1), C(-70 * US, -60 * US, 2)]))
    assert (result.unrecorded_ns, result.idle_ns["device"]) == (0, 290 * US)


def test_a_run_that_is_mostly_unrecorded_gets_the_reason_and_no_verdict():
    judged = estimate(graph(*((i * 1_000, i * 1_000 + 300) for i in range(20))))
    assert judged.estimate.regime is Regime.UNKNOWN
    assert "nodes of CUDA graphs" in phrases.because(judged.estimate)
    assert [one.kind for one in advise(judged).given] == ["records-lost"]


CLOSE = 0.05
METERED = {"input-bound": 105.822 / 112.634, "unpinned-copies": 38.475 / 40.669}
"""Part of a step that each demo's script waits for its plant, by its own clock, undisturbed."""


def account_of(demo: str) -> Account:
    """Of the whole steps of the busiest device."""
    timeline = timeline_of(scenarios()[demo])
    span = Span(timeline.first_ns or 0, timeline.last_ns or 0)
    device = timeline.active_devices(span)[0]
    steps = between_steps(estimate(timeline.window(span, device)).estimate.steps)
    return estimate(timeline.window(steps or span, device)).estimate.account


@pytest.mark.parametrize("demo", METERED)
def test_a_planted_stall_is_booked_within_five_points_of_the_scripts_own_meter(demo):
    account = account_of(demo)
    # A copy from pageable memory is staged by the host before and after what the device moves.
    copies = account.exposed_copy_ns + account.idle_ns["sync"]
    booked = account.idle_ns["input"] if demo == "input-bound" else copies
    assert booked / account.duration_ns == pytest.approx(METERED[demo], abs=CLOSE)


@pytest.mark.parametrize("demo", ["sync-bound", "launch-bound"])
def test_what_was_not_recorded_leaves_no_idle_time_unexplained(demo):
    """Memsets bring no calls, and ids start anew with each burst: neither may show as idle time."""
    account = account_of(demo)
    unexplained = account.idle_ns["unknown"] + account.idle_ns["device"]
    assert unexplained / account.duration_ns < 0.02
    if demo == "sync-bound":  # waits for values read back, where the queue had to fill again
        assert 0.08 < account.idle_ns["sync"] / account.duration_ns < 0.25
