"""Records from CUPTI's buffers to a monitor, through the real socket."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from collectors.protocol import requests
from collectors.protocol.frames import Kind
from collectors.vocabulary import CallClass, CopyKind, MarkClass
from tests.agent.rig import Monitor, Trainer

Connect = Callable[[Trainer], Monitor]

VERSIONS = (22, 27, 130001, 130202, 130500)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_kernel_of_a_burst_arrives_with_its_fields(trainer, connect, version):
    monitor = connect(trainer.load(version=version).start()).ready()
    monitor.trace(longest_s=0.2)
    assert trainer.do("answer = cupti.fake_enabled_calls()") < 40, "only the calls worth a row"
    trainer.do("cupti.fake_launch(name('alpha'), 3000, 5000, 0, 7)")
    trainer.do("cupti.fake_launch(name('beta'), 50, 5000, 0, 9)")
    traced = monitor.traced()
    assert traced == {"kernels": 3050, "steps": 0, "whole": True, "launches": True}
    kernels, names = monitor.rows(Kind.KERNELS), monitor.names()
    assert len(kernels) == 3050
    assert [names[i] for i in kernels["name_id"]] == ["alpha"] * 3000 + ["beta"] * 50
    assert set(kernels["end_ns"] - kernels["start_ns"]) == {5000}
    assert len(set(kernels["correlation"])) == 3050
    row = kernels[0]
    assert (row["device"], row["stream"], row["shared_bytes"]) == (0, 7, 3072)
    assert (row["registers"], row["graph"], row["channel"], row["flags"]) == (32, 0, 7, 0)
    assert row["grid"].tolist() == [100, 101, 102] and row["block"].tolist() == [64, 65, 66]
    calls = monitor.rows(Kind.CALLS)
    assert sorted(calls["correlation"]) == sorted(kernels["correlation"])
    assert set(calls["call_class"]) == {CallClass.LAUNCH}
    assert {names[i] for i in calls["name_id"]} == {"cudaLaunchKernel"}


def test_copies_memsets_syncs_and_triton_launches_arrive(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    monitor.trace(longest_s=0.2)
    trainer.do("cupti.fake_copy(1, 4096, 9000); cupti.fake_memset(512, 1000)")
    trainer.do("cupti.fake_call(131, 0, 70000, 0); cupti.fake_call(20, 0, 1000, 0)")
    trainer.do("cupti.fake_call(137, 0, 70000, 700); cupti.fake_launch_driver(name('t'), 3, 1000)")
    monitor.traced()
    copies, calls, names = monitor.rows(Kind.COPIES), monitor.rows(Kind.CALLS), monitor.names()
    assert copies["copy_kind"].tolist() == [CopyKind.HTOD, CopyKind.MEMSET]
    assert copies["size_bytes"].tolist() == [4096, 512]
    assert (copies[0]["src_kind"], copies[0]["dst_kind"], copies[0]["flags"]) == (2, 3, 1)
    assert (copies[1]["src_kind"], copies[1]["dst_kind"]) == (0, 3)
    chosen_calls = [(names[c["name_id"]], int(c["call_class"]), int(c["flags"])) for c in calls]
    assert chosen_calls == [
        ("cudaMemcpyAsync", CallClass.COPY, 0),
        ("cudaStreamSynchronize", CallClass.SYNC, 0),
        ("cudaEventSynchronize", CallClass.SYNC, 2),
        *[("cuLaunchKernelEx", CallClass.LAUNCH, 1)] * 3,
    ], "cudaMalloc is worth no row"


def test_graph_nodes_keep_their_ids(trainer, connect):
    monitor = connect(trainer.load().start())
    monitor.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
    monitor.in_state("ready")
    monitor.trace(longest_s=0.2)
    trainer.do("cupti.fake_graph(name('node'), 40, 1000, 5)")
    assert monitor.traced()["whole"]
    kernels, calls = monitor.rows(Kind.KERNELS), monitor.rows(Kind.CALLS)
    assert set(kernels["graph"]) == {5}
    assert kernels["graph_node"].tolist() == list(range(1000, 1040))
    assert calls["call_class"].tolist() == [CallClass.GRAPH_LAUNCH]
    assert set(kernels["correlation"]) == set(calls["correlation"])
    assert trainer.do("answer = cupti.fake_ever(51)") == 0, "late GRAPH_TRACE kills trainers"


def test_a_burst_holds_whole_steps(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    monitor.trace(steps=4, longest_s=5.0)
    trainer.do("train(cupti, lib, 20, kernels=25)")
    traced = monitor.traced()
    assert 5 <= traced["steps"] <= 6, "four whole steps and the part before the first mark"
    monitor.until(lambda m: m.count(Kind.MARKS) == 20)
    marks = monitor.rows(Kind.MARKS)
    assert set(marks["mark_class"]) == {MarkClass.STEP}
    assert marks["value"].tolist() == list(range(1, 21))
    kernels = monitor.rows(Kind.KERNELS)
    first, fifth = marks[0]["start_ns"], marks[4]["start_ns"]
    calls = monitor.rows(Kind.CALLS)
    inside = (calls["start_ns"] >= first) & (calls["start_ns"] < fifth)
    launched = np.isin(kernels["correlation"], calls["correlation"][inside])
    assert launched.sum() == 100, "exactly the kernels of four steps"


def test_a_burst_without_steps_ends_by_time(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    monitor.trace(steps=4, longest_s=0.15)
    trainer.do("cupti.fake_launch(name('k'), 10, 1000, 0, 7)")
    assert monitor.traced()["kernels"] == 10
    assert trainer.do("answer = [cupti.fake_enabled(k) for k in (1, 2, 10)]") == [0, 0, 0]
    assert trainer.do("answer = cupti.fake_enabled_calls()") == 0


def test_continuous_tracing_runs_until_told(trainer, connect):
    monitor = connect(trainer.load().start("flush_ms=20")).ready()
    monitor.send(requests.continuous(True))
    assert monitor.in_state("tracing")["tier"] == "continuous"
    for _ in range(5):
        trainer.do("train(cupti, lib, 20)")
        before = monitor.count(Kind.KERNELS)
        monitor.until(lambda m, before=before: m.count(Kind.KERNELS) > before)
    monitor.send(requests.continuous(False))
    monitor.in_state("ready")
    assert monitor.count(Kind.KERNELS) == 1000
    spans = monitor.rows(Kind.OBSERVED)
    assert (spans["start_ns"][1:] == spans["end_ns"][:-1]).all(), "one after the other, no hole"
    assert not spans["flags"].any()
    kernels = monitor.rows(Kind.KERNELS)
    assert spans["start_ns"][0] == kernels["start_ns"].min()
    assert spans["end_ns"][-1] >= kernels["end_ns"].max()


def test_an_observed_span_ends_where_records_are_still_in_flight(trainer, connect):
    """Kernels queued far ahead: what has not arrived is not called observed."""
    monitor = connect(trainer.load().start("drain_ms=100;flush_ms=10000")).ready()
    monitor.trace(longest_s=0.2)
    trainer.do("cupti.fake_launch(name('short'), 1000, 10_000, 0, 7)")
    trainer.do("launch = lambda: cupti.fake_launch(name('long'), 1, 3 * 10**9, 0, 7)")
    trainer.do("threading.Thread(target=launch).start()")
    traced = monitor.traced()
    assert (traced["kernels"], traced["whole"]) == (1000, False)
    (span,) = monitor.rows(Kind.OBSERVED)
    assert span["end_ns"] == monitor.rows(Kind.KERNELS)["end_ns"].max()
    assert span["flags"] == 1


def test_tails_of_a_burst_are_waited_for(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    monitor.trace(longest_s=0.1)
    trainer.do("cupti.fake_launch(name('queued'), 300, 1_000_000, 0, 7)")
    traced = monitor.traced()
    assert (traced["kernels"], traced["whole"]) == (300, True)
    (span,) = monitor.rows(Kind.OBSERVED)
    kernels = monitor.rows(Kind.KERNELS)
    assert (span["start_ns"], span["end_ns"]) == (kernels["start_ns"][0], kernels["end_ns"][-1])
    assert span["flags"] == 0


def test_work_that_does_not_end_is_no_other_profiler(trainer, connect):
    """CUPTI gives no buffer back before the last kernel of it has ended, and asks for no other one."""
    monitor = connect(trainer.load().start("drain_ms=20")).ready()
    for burst in range(1, 4):
        monitor.trace(longest_s=0.2)
        if burst == 1:
            trainer.do("cupti.fake_launch(name('endless'), 1, 10**12, 0, 7)")
        trainer.do("train(cupti, lib, 3, kernels=2)")
        assert monitor.traced(burst)["whole"] is False
        monitor.until(lambda m: m.status()["state"] in ("ready", "blocked"))
    status = monitor.in_state("blocked")
    assert status["code"] == "records-held"
    assert re.match(r"no records arrive: CUPTI has kept a buffer of them for \d+ s", status["says"])


def test_marks_carry_names_that_are_known_before(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    trainer.do(
        "ids = [lib.brrr_name(t.encode()) for t in ('gc', 'übung', 'gc', '')]\n"
        "lib.brrr_mark(4, 513, 1023, 2, ids[1], 77)\n"
        "answer = ids"
    )
    monitor.until(lambda m: m.count(Kind.MARKS))
    (mark,) = monitor.rows(Kind.MARKS)
    # Times are whole steps of 256 ns: what jitters below would be a quarter of a recording.
    assert mark.tolist() == (512, 768, 2, 77, mark["name_id"], 4, 0, 0)
    assert monitor.names()[mark["name_id"]] == "übung"
    ids = trainer.do("answer = ids")
    assert ids[0] == ids[2] != ids[1] and ids[3] == 0


def test_kernel_names_are_demangled_and_kept_apart_by_content(trainer, connect):
    trainer.load().do("ctypes.CDLL('libstdc++.so.6')")
    monitor = connect(trainer.start()).ready()
    monitor.trace(longest_s=0.2)
    trainer.do("cupti.fake_launch(name('_Z6kernelIfEvPT_i'), 2, 1000, 0, 7)")
    trainer.do("cupti.fake_launch(name('_Znonsense'), 1, 1000, 0, 7)")
    trainer.do("b = ctypes.create_string_buffer(b'_Znonsense')")
    trainer.do("cupti.fake_launch(ctypes.addressof(b), 1, 1000, 0, 7)")
    trainer.do("cupti.fake_launch(name('x' * 9000), 1, 1000, 0, 7)")
    trainer.do("cupti.fake_launch(None, 1, 1000, 0, 7)")
    monitor.traced()
    kernels, names = monitor.rows(Kind.KERNELS), {0: "", **monitor.names()}
    message = [names[i] for i in kernels["name_id"]]
    assert message[:4] == ["void kernel<float>(float*, int)"] * 2 + ["_Znonsense"] * 2
    assert message[4:] == ["x" * 4095, ""]
    assert len(set(kernels["name_id"])) == 4


@pytest.mark.parametrize(("kind", "least"), [(3, 208), (22, 96), (10, 208)])
def test_a_length_too_short_for_the_fields_is_not_believed(trainer, connect, kind, least):
    trainer.load().do(f"cupti.fake_size({kind}, {least - 8})")
    trainer.start()
    assert "layout" in connect(trainer).in_state("off")["says"]
