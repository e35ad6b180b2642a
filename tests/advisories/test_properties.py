"""What holds for any run: advice never fails, never depends on the clock or on stream numbers."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from brrrtop.advisories.advise import advise
from brrrtop.analysis.estimate import estimate
from brrrtop.model.tables import Device, Span, Window
from collectors.vocabulary import CallClass, MarkClass, Metric

from . import scenarios
from .scenarios import H200, Scene

NAMES = sorted(
    {
        value
        for name, value in vars(scenarios).items()
        if name.isupper() and isinstance(value, str) and len(value) > 10
    }
    | {"", "_Z9my_kernelv", "triton_red_fused__softmax_3", "void f<double>(double)"}
)
UNKNOWN = Device(0)

action = st.one_of(
    st.tuples(
        st.just("kernel"),
        st.sampled_from(NAMES),
        st.floats(0.0, 500.0),
        st.sampled_from([None, 3.0, 400.0]),
        st.sampled_from([0, 1, 132, 5_000]),
        st.integers(1, 3),
    ),
    st.tuples(
        st.just("copy"),
        st.sampled_from(["up", "down", "across"]),
        st.integers(0, 1 << 28),
        st.floats(0.1, 3_000.0),
        st.booleans(),
        st.booleans(),
    ),
    st.tuples(st.just("mark"), st.sampled_from(list(MarkClass)), st.floats(0.0, 9_000.0)),
    st.tuples(st.just("call"), st.sampled_from(list(CallClass)), st.floats(0.0, 900.0)),
    st.tuples(st.just("gauge"), st.sampled_from(list(Metric)), st.floats(0.0, 2e11)),
    st.tuples(st.just("step")),
    st.tuples(st.just("sync"), st.floats(0.0, 500.0)),
)


def played(actions: list[tuple], device: Device, with_calls: bool = True) -> Window:  # type: ignore[type-arg]
    scene = Scene(device)
    for kind, *given_ in actions:
        if kind == "kernel":
            name, us, late, blocks, stream = given_
            scene.kernel(name, us, late=late, blocks=blocks, stream=stream)
        elif kind == "copy":
            way, size, us, pageable, beside = given_
            scene.copy(way, size, us, pageable=pageable, beside=beside)
        elif kind == "mark":
            scene.mark(given_[0], given_[1], "mark", value=1)
        elif kind == "call":
            scene.call(*given_)
        elif kind == "gauge":
            scene.gauge(*given_)
        elif kind == "sync":
            scene.sync(*given_)
        else:
            scene.step()
    if not with_calls:
        scene.calls.clear()
    return scene.window()


def advice_rows(window: Window) -> list[tuple[str, float | None]]:
    return [(a.kind, a.saves_at_most) for a in advise(estimate(window)).given]


pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
many = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(st.lists(action, max_size=60), st.sampled_from([H200, UNKNOWN]))
def test_advice_is_sane_for_any_run(actions, device):  # type: ignore[type-arg]
    window = played(actions, device)
    if window.span.duration_ns <= 0:
        return
    for advisory in advise(estimate(window)).given:
        assert 0.5 <= advisory.confidence < 1
        assert advisory.saves_at_most is None or 0 < advisory.saves_at_most < 1
        assert advisory.says and "nan" not in advisory.says and "None" not in advisory.says


@many
@given(st.lists(action, min_size=5, max_size=40), st.integers(-(10**14), 10**14))
def test_the_clock_says_nothing(actions, shift):  # type: ignore[type-arg]
    window = played(actions, H200)
    if window.span.duration_ns <= 0:
        return
    assert advice_rows(shifted(window, shift)) == advice_rows(window)


def shifted(window: Window, by: int) -> Window:
    def moved(table: object, *columns: str) -> object:
        return replace(table, **{c: getattr(table, c) + by for c in columns})  # type: ignore[type-var]

    return replace(
        window,
        span=Span(window.span.t0_ns + by, window.span.t1_ns + by),
        activities=moved(window.activities, "starts_ns", "ends_ns"),  # type: ignore[arg-type]
        calls=moved(window.calls, "starts_ns", "ends_ns"),  # type: ignore[arg-type]
        marks=moved(window.marks, "starts_ns", "ends_ns"),  # type: ignore[arg-type]
        gauges=moved(window.gauges, "times_ns"),  # type: ignore[arg-type]
    )
