"""What keeps a live session from tracing is said, with what helps."""

import re

import pytest

from brrrtop.errors import BrrrtopError
from brrrtop.scheduling.burst import Limits
from brrrtop.scheduling.governor import Governor
from brrrtop.session.controller import Controller
from brrrtop.sources.live import LiveSource
from collectors.attach import agent_library
from collectors.protocol.frames import Decoder, Frame, Kind, WireError, encode
from collectors.vocabulary import StatusCode
from tests.live.agents import FakeAgent, FakeLoad
from tests.live.bench import START_NS, Bench, bench, say, statuses

__all__ = ["bench"]


def test_bursts_are_no_news(bench):
    text = {
        "ready": "kernel tracing is ready",
        "tracing": "tracing a burst",
        "yielded": "torch.profiler is recording: kernel tracing waits",
    }
    states = ("ready", "tracing", "ready", "yielded", "ready", "tracing")
    words = [statuses(say(bench, state, text[state])).get("says") for state in states]
    assert words == [text["ready"], None, None, text["yielded"], text["ready"], None]


def test_what_keeps_the_agent_from_tracing_is_a_note_until_it_traces(bench):
    say(bench, "waiting", "waiting for the trainer to touch its GPU")
    assert bench.source.info.notes == ("waiting for the trainer to touch its GPU",)
    assert bench.source.info.waits == set(bench.source.info.notes)
    say(bench, "ready", "kernel tracing is ready")
    assert bench.source.info.notes == ()
    graphs = "kernel tracing waits to hear whether the trainer has CUDA graphs"
    assert statuses(say(bench, "ready", graphs, StatusCode.GRAPHS_UNKNOWN))["says"] == graphs, (
        "and a line of the log"
    )
    bench.feed.remarks = ["no GPM"]
    assert bench.source.info.notes == (graphs, "no GPM")
    say(bench, "tracing", "tracing a burst")
    assert bench.source.info.notes == ("no GPM",)
    assert bench.source.info.gauges == {"no GPM"}


def test_a_program_whose_threads_are_held_is_said_to_be(bench):
    for on, everybody in ((9000, False), (480, True), (510, True)):
        traced = {"held_us": {"out": 0, "on": on, "off": 520}, "all_threads": everybody}
        body = {"by": "agent", "state": "ready", "code": "ready", "says": "", "traced": traced}
        bench.agent.say(Frame(Kind.STATUS, body, bench.now_ns))
        bench.read(0.5)
        assert bool(bench.source.info.notes) is everybody
    (note,) = bench.source.info.notes
    assert "held outside CUDA for some 500 µs" in note and "--no-trace-graphs" in note
    assert bench.source.info.gauges == {note}, "no reason for anything on screen"


def met_with(bench: Bench, *missing: str) -> None:
    """As if the agent had met a trainer of which it could not say this."""
    for key in missing:
        bench.agent.hello.pop(key)
        bench.source.hello.pop(key)


def test_a_torch_without_cuda_is_not_said_to_touch_a_gpu_soon(bench):
    met_with(bench, "cuda")
    text = statuses(say(bench, "waiting", "waiting for the trainer to touch its GPU"))["says"]
    assert "torch (2.13) is built without CUDA" in str(text)
    assert bench.source.info.notes == (text,)
    say(bench, "ready", "kernel tracing is ready")
    assert bench.source.info.notes == (), "something else in it did use a GPU"


def test_keys_that_trace_say_why_not_where_no_kernels_will_come(bench):
    """A trainer on the CPU was said to be traced in every step."""
    met_with(bench, "cuda")
    say(bench, "waiting", "waiting for the trainer to touch its GPU")
    for asked in (lambda: bench.driver.continuous(True), bench.driver.burst, bench.driver.shapes):
        with pytest.raises(BrrrtopError, match=r"traced: its torch .* without CUDA"):
            asked()
    assert bench.controller.tier == "bursts" and not bench.controller.governor.continuous
    say(bench, "off", "CUPTI 99 has records of a layout not known here: counters only")
    with pytest.raises(BrrrtopError, match="nothing can be traced: CUPTI 99"):
        bench.driver.burst()
    say(bench, "ready", "kernel tracing is ready")
    assert bench.driver.burst() == "tracing the next steps"


def test_a_torch_that_was_not_imported_yet_may_touch_a_gpu(bench):
    met_with(bench, "cuda", "torch")
    says = "waiting for the trainer to touch its GPU"
    assert statuses(say(bench, "waiting", says))["says"] == says


SENTENCES = {
    "off": [(StatusCode.OTHER_TOOL, "another NVIDIA tool is in the trainer (libToolsInjection64.so): kernel tracing stays off"),
            (StatusCode.TWO_CUPTIS, "two copies of CUPTI are mapped, /a and /b, and torch uses neither for certain: kernel "
            "tracing stays off"),
            (StatusCode.CUPTI_UNUSABLE, "CUPTI 99 has records of a layout not known here: counters only")],
    "absent": [(StatusCode.NO_CUPTI, "no libcupti is mapped in the trainer: counters only")],
    "blocked": [(StatusCode.CUPTI_TAKEN, "another profiler holds CUPTI (39); next try in 10 s"),
                (StatusCode.RECORDS_HELD, "no records arrive: CUPTI has kept a buffer of them for 12 s; next try in 10 s"),
                (StatusCode.NO_RECORDS, "no records arrive: another profiler owns the callbacks; next try in 10 s")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("state", "code", "says"), [(s, *one) for s in SENTENCES for one in SENTENCES[s]]
)
def test_what_stands_in_the_way_is_told_with_what_helps(bench, state, code, says):
    message = str(statuses(say(bench, state, says, code))["says"])
    assert message.startswith(f"{says}; ") and len(message) > len(says) + 20
    assert bench.source.info.notes == (message,)


def test_the_agent_has_the_codes_that_the_monitor_decides_by():
    native_text = (agent_library.SOURCE_DIR / "wire.h").read_text()
    assert set(re.findall(r'X\(CODE_\w+, "([a-z-]+)"\)', native_text)) == set(StatusCode)


@pytest.mark.parametrize(
    ("state", "says"), [(s, one[1]) for s in SENTENCES for one in SENTENCES[s]]
)
def test_an_agent_of_before_there_were_codes_is_told_of_with_what_helps(bench, state, says):
    body = {"by": "agent", "state": state, "says": says, "cupti": None}
    (frame,) = Decoder().feed(encode(Frame(Kind.STATUS, body, bench.now_ns)))
    bench.agent.say(frame)
    message = str(statuses(bench.read(1))["says"])
    assert message.startswith(f"{says}; ") and len(message) > len(says) + 20


def test_a_limit_that_allows_nothing_is_a_note():
    governor = Governor(Limits(max_overhead=0.0))
    source = LiveSource(FakeAgent(START_NS), 4711, [], FakeLoad())  # type: ignore[arg-type]
    controller = Controller(source, governor)
    assert any("limit of 0" in note for note in source.info.notes)
    controller.continuous(True)
    assert source.info.notes == ()
    source.close()


def test_a_stopped_trainer_is_told_with_the_command_that_helps(bench):
    bench.read(2)
    bench.load.trainer_stopped = "the trainer is stopped: kill -CONT 4711"
    assert "kill -CONT 4711" in str(statuses(bench.read(1.5))["says"])
    assert "kill -CONT 4711" in bench.source.info.notes[0]
    bench.load.trainer_stopped = None
    assert "runs again" in str(statuses(bench.read(1.5))["says"])
    assert bench.source.info.notes == ()


def test_a_part_of_the_agent_does_not_speak_for_all_of_it(bench):
    body = {"tier": "allocator", "state": "live", "says": "", "alloc_retry_count": 3}
    bench.agent.say(Frame(Kind.STATUS, body, bench.now_ns))
    text = statuses(bench.read(2))
    assert (text["alloc_retry_count"], text["tier"]) == (3, "bursts")
    assert "state" not in text
    assert "says" not in text


def test_a_burst_in_which_nothing_ran_is_answered(bench):
    bench.read(0.5)
    governor = bench.controller.governor
    assert governor.tracing
    bench.agent.orders.clear()
    body = {"by": "agent", "state": "ready", "traced": {"kernels": 0, "steps": 1, "whole": True}}
    bench.agent.say(Frame(Kind.STATUS, body, bench.now_ns))
    bench.read(0.5)
    assert not governor.tracing


def test_garbage_from_the_agent_is_a_sentence(bench):
    def broken() -> list[Frame]:
        raise WireError("a frame claims 4294967295 bytes")

    bench.agent.frames = broken  # type: ignore[method-assign]
    assert "claims" in str(statuses(bench.read(1))["says"])
