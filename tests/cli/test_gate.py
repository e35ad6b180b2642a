"""`--fail-if`: what trips, what holds, what cannot be judged."""

from collections.abc import Callable

import pytest

from brrrtop.cli import fail_if
from brrrtop.errors import BrrrtopError, GateTripped, UsageError
from brrrtop.model.estimate import Launch
from brrrtop.model.snapshot import Snapshot

MakeSnapshot = Callable[..., Snapshot]


@pytest.mark.parametrize(
    ("text", "trips"),
    [
        ("idle > 30%", True),
        ("idle > 0.53", False),
        ("idle.input >= 50%", True),
        ("idle.input > 50%", False),
        ("idle.gc > 0", False),
        ("idle.io < 1%", True),
        ("idle.other_process > 0", False),
        ("compute < 0.5", True),
        ("overhead <= 10%", False),
        ("underfilled > 2%", True),
        ("exposed_comm < 1%", False),
        ("busy < 50%", True),
        ("rho < 0.1", True),
        ("lost > 0", False),
        ("regime == overhead", True),
        ("regime = overhead", True),
        ("regime != overhead", False),
        ("cause == input", True),
        ("advisory == dataloader-stall", True),
        ("advisory == sync-point", False),
        ("step_ms > 0.0002", True),
        ("step_ms < 0.0003", True),
        ("idle > 30% and regime == overhead", True),
        ("idle > 30% and regime == compute", False),
    ],
)
def test_conditions_read_the_snapshot(text, trips, make_snapshot):
    (one,) = fail_if.parse_all([text])
    assert one.trips(make_snapshot()) is trips


def test_a_gate_must_hold_without_a_break(make_snapshot):
    (one,) = fail_if.parse_all(["idle > 30%"], hold_s=10)
    calm = {"cause": None, "account": make_snapshot().estimate.account}  # type: ignore[union-attr]
    busy = make_snapshot(now_ns=12_000_000_000)
    quiet_account = type(calm["account"])(**{
        **{name: getattr(calm["account"], name) for name in calm["account"].__struct_fields__},
        "idle_ns": {},
    })  # type: ignore[union-attr, misc]  # fmt: skip
    assert not one.trips(make_snapshot(now_ns=0))
    assert not one.trips(make_snapshot(now_ns=9_000_000_000))
    assert one.trips(busy)
    assert not one.trips(make_snapshot({"account": quiet_account}, now_ns=13_000_000_000))
    assert not one.trips(make_snapshot(now_ns=14_000_000_000))


def test_what_nobody_measured_is_no_pass(make_snapshot):
    gates = fail_if.parse_all(["rho < 0.5"])
    with pytest.raises(BrrrtopError, match="could not be judged") as caught:
        fail_if.check(gates, make_snapshot({"launch": Launch()}))
    assert not isinstance(caught.value, GateTripped)


def test_what_was_measured_once_and_did_not_hold_is_a_pass(make_snapshot):
    gates = fail_if.parse_all(["rho > 0.9"])
    assert not gates[0].trips(make_snapshot())
    assert not gates[0].trips(make_snapshot({"launch": Launch()}))
    fail_if.finish(gates)
    fail_if.check(fail_if.parse_all(["idle > 99%"]), make_snapshot())
    with pytest.raises(GateTripped):
        fail_if.check(fail_if.parse_all(["idle > 99%", "idle < 99%"]), make_snapshot())


def test_a_tripped_gate_names_its_condition_and_how_long_it_held():
    (held,), (at_once,) = (fail_if.parse_all(["idle > 30%"], hold_s) for hold_s in (10, 0))
    assert fail_if.trip_error(held).message.endswith("idle > 30% for 10 s")
    assert fail_if.trip_error(at_once).message.endswith("idle > 30%")


@pytest.mark.parametrize(
    ("text", "says"),
    [("idle == 3", "compare idle with <, <=, > or >="),
     ("regime > compute", "compare regime with == or !="),
     *((text, "--fail-if") for text in ("", "idle", "idle > much", "speed > 3", "idle > 3 %%"))],
)  # fmt: skip
def test_nonsense_is_a_usage_error(text, says):
    with pytest.raises(UsageError, match=says):
        fail_if.parse_all([text])


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("idle > 30", "did you mean 'idle > 30%'"),
        ("idle >= 1.5", "did you mean 'idle >= 1.5%'"),
        ("compute > 200%", ""),
        ("compute > 100%", ""),
        ("memory < 0", ""),
        ("overhead < -5%", ""),
        ("busy > nan", ""),
        ("step_ms > inf", ""),
        ("step_ms < 0", ""),
        ("step_ms > 30%", "step_ms > 30"),
        ("lost > -1", ""),
        ("cause == inpt", "did you mean input"),
        ("cause != input_wait", ""),
        ("regime == foo", "one of compute, memory, overhead, mixed, unknown"),
        ("regime == memroy", "did you mean memory"),
        ("advisory == nonsense", "ADVISORIES.md"),
        ("advisory == dataloader", "did you mean dataloader-stall"),
        ("idel > 30%", "did you mean idle"),
        ("idle.inptu > 30%", "did you mean idle.input"),
        ("idle > 30% and cause == inpt", "did you mean input"),
    ],
)
def test_a_gate_that_nothing_can_change_is_a_usage_error(text, hint):
    with pytest.raises(UsageError) as caught:
        fail_if.parse_all([text])
    assert hint in caught.value.action


@pytest.mark.parametrize("text", ["idle > 99.9%", "idle >= 100%", "lost > 0", "step_ms > 1e4"])
def test_a_threshold_that_can_be_reached_is_fine(text):
    assert fail_if.parse_all([text])


def test_every_cause_that_a_verdict_can_have_may_be_asked_for():
    from brrrtop.analysis.account.account import _cause
    from tests.cli.conftest import an_account

    for cause in fail_if.CAUSES:
        parts = dict.fromkeys(("underfilled_ns", "exposed_comm_ns", "exposed_copy_ns"), 0)
        idle = dict.fromkeys(an_account().idle_ns, 0)
        if cause in idle:
            idle[cause] = 9
        else:
            parts[f"{cause}_ns"] = 9
        assert _cause(an_account(idle_ns=idle, **parts)) == cause
        assert fail_if.parse_all([f"cause == {cause}"])


def test_a_time_to_hold_needs_something_to_hold():
    with pytest.raises(UsageError, match="--for"):
        fail_if.parse_all([], hold_s=60)
