"""What a run may be like: days long, without marks or counters, with clocks that jump and marks out of order."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from brrrtop.ledger.ledger import MOST_KEYS, MOST_STRETCHES, Ledger
from brrrtop.model.run import PhaseKind, Run
from brrrtop.timeline.timeline import Timeline
from collectors.protocol.frames import GAUGE, MARK, OBSERVED, Frame, Kind
from collectors.vocabulary import MarkClass, Metric

MS, SECOND = 1_000_000, 1_000_000_000
START = 1_700_000_000 * SECOND
LOOP, AUTOGRAD = 7, 8
TRAIN = "main.py:10 train < main.py:90 main > nn/linear.py:3 forward | out = model(x)"
EVALUATE = "main.py:40 evaluate < main.py:91 main > nn/linear.py:8 forward | out = model(x)"
SERVE = "serve.py:9 main > python3.12/threading.py:355 Condition.wait | batch = [requests.get()]"
SERVE_HTTP = "serve.py:9 main > python3.12/selectors.py:415 _PollLikeSelector.select | server.handle_request()"
ANSWER = "serve.py:11 main > nn/linear.py:8 forward | out = model(batch)"

Row = tuple[MarkClass, float, float]


def marks(
    rows: Iterable[Row | tuple[MarkClass, float, float, str]], tid: int = LOOP
) -> list[Frame]:
    """Rows of class, start and end in ms from the start, and a name."""
    given = [(*row, "")[:4] for row in rows]
    names = sorted({row[3] for row in given})
    table = np.zeros(len(given), MARK)
    for at, (mark_class, start, end, name) in enumerate(given):
        times = START + int(start * MS), START + int(end * MS)
        table[at] = (*times, 0, tid, names.index(name) + 1, mark_class, 0, 0)
    newest = int(table["end_ns"].max()) if len(table) else START
    return [
        Frame(Kind.NAMES, {n + 1: name for n, name in enumerate(names)}, newest),
        Frame(Kind.MARKS, table, newest),
    ]


def steps(ends_ms: Iterable[float]) -> list[Row]:
    return [(MarkClass.STEP, end, end) for end in ends_ms]


def samples(
    times_ms: Iterable[float], name: str = TRAIN
) -> list[tuple[MarkClass, float, float, str]]:
    return [(MarkClass.STACK, at, at, name) for at in times_ms]


def timeline(*frames: Frame, until_ms: float, keep_ns: int | None = None) -> Timeline:
    """Nothing was traced."""
    result = Timeline(keep_ns)
    result.add(Frame(Kind.OBSERVED, np.zeros(0, OBSERVED), START))
    for frame in (*frames, Frame(Kind.STATUS, {}, START + int(until_ms * MS))):
        result.add(frame)
    return result


def run_of(*frames: Frame, seconds: float = 10) -> Run:
    known = timeline(*frames, until_ms=seconds * 1e3)
    run = Ledger().run(known, None, START + int(seconds * SECOND))
    whole = sum(one.share for one in run.phases)
    assert whole == pytest.approx(1) and run.account.duration_ns == run.duration_ns
    return run


def shares(run: Run) -> dict[str, float]:
    return {one.kind.value: one.share for one in run.phases}


def test_what_autograds_thread_compiles_is_the_loops_time_unless_it_steps_meanwhile():
    ends = [t for t in range(50, 10_000, 50) if not 3_000 < t < 6_000]
    loop = marks([*steps(ends), *samples(range(100, 10_000, 250))])
    waited = run_of(*loop, *marks([(MarkClass.COMPILE, 3_010, 5_990, "LAZY_BACKWARD")], AUTOGRAD))
    beside = run_of(*loop, *marks([(MarkClass.COMPILE, 6_010, 8_990, "warm-up")], AUTOGRAD))
    assert shares(waited)["compile"] == pytest.approx(0.3, abs=0.01)
    assert "compile" not in shares(beside)


@pytest.mark.parametrize("name", [SERVE, SERVE_HTTP])
def test_a_server_waits_for_requests_and_not_for_a_network(name):
    at = list(range(0, 10_000, 100))
    run = run_of(*marks([*samples(at[::4], name), *samples(sorted({*at} - {*at[::4]}), ANSWER)]))
    assert sum(one.waits_ns for one in run.phases) / run.duration_ns == pytest.approx(
        0.25, abs=0.03
    )
    assert run.account.idle_ns["input"] > 0 == run.account.idle_ns["io"]


def test_a_loader_that_begins_anew_is_waited_for():
    """Each second its workers start for 300 ms."""
    begin = "main.py:8 main > multiprocessing/popen_fork.py:66 Popen._launch | it = iter(unlabeled)"
    ends = [t + at for t in range(0, 10_000, 1_000) for at in range(320, 1_001, 20)]
    inside = [t for t in range(20, 10_000, 40) if t % 1_000 < 300]
    rest = sorted({*range(20, 10_000, 40)} - {*inside})
    run = run_of(*marks([*steps(ends), *samples(inside, begin), *samples(rest)]))
    waits = sum(one.waits_ns for one in run.phases) / run.duration_ns
    assert waits == pytest.approx(0.3, abs=0.03)
    assert {one.kind for one in run.phases} == {PhaseKind.TRAIN, PhaseKind.DATA}


@pytest.mark.parametrize(
    ("library", "waits"),
    [
        ("autograd/graph.py:869 f", False),
        ("marian/modeling_marian.py:220 MarianAttention.forward", False),
        ("integrations/sdpa_attention.py:158 sdpa_attention_forward", False),
        ("torch_geometric/loader.py:95 collate", True),
    ],
)
def test_a_loader_in_the_line_of_a_fit_is_not_waited_for_in_the_model(library, waits):
    fit = f"main.py:9 main > {library} | trainer.fit(net, DataLoader(Series()))"
    run = run_of(*marks([*steps(range(50, 10_000, 50)), *samples(range(20, 10_000, 100), fit)]))
    assert (sum(one.waits_ns for one in run.phases) > 0) == waits


def test_what_comes_long_after_the_last_step_is_named_as_beside_it():
    write = "main.py:120 write < main.py:92 main"
    deep = f"main.py:48 forward < {write} > nn/linear.py:8 forward | x = self.layer(x)"
    line = f"{write} > torch/nn.py:8 forward | word = torch.multinomial(p, 1)"
    placed = [(MarkClass.PLACE, t, t, TRAIN) for t in range(100, 30_000, 5_000)]
    after = [
        *samples(range(30_100, 200_000, 80), deep),
        *samples(range(30_140, 200_000, 800), line),
    ]
    rows = marks(
        [*steps(range(50, 30_000, 50)), *samples(range(100, 30_000, 250)), *placed, *after]
    )
    table = rows[1].body
    table["value"] = np.where(table["mark_class"] == MarkClass.PLACE, MarkClass.STEP, 0)
    known = timeline(*rows, until_ms=200_000)
    run = Ledger().run(known, None, START + 200 * SECOND)
    others = [one for one in run.phases if one.kind is not PhaseKind.TRAIN]
    assert [one.where.partition(" ")[0] for one in others] == ["write()"]


def test_of_two_optimizers_the_one_that_makes_no_step_trains_as_well():
    """Each tenth batch ends a step; the nine others are for another optimizer, in lines of their own."""
    critic = "main.py:20 critic < main.py:9 train < main.py:90 main > nn/linear.py:3 f | net(x)"
    ends = [*range(100, 5_000, 100), *range(6_000, 10_000, 100)]
    rows = [(MarkClass.INPUT, t - 5, t) for t in range(50, 10_000, 50)]
    learn = [(MarkClass.OPTIMIZER, t + 20, t + 20) for t in range(50, 10_000, 50)]
    seen = [*samples(range(20, 5_000, 100)), *samples(range(5_020, 6_000, 40), critic)]
    known = [*steps(ends), *rows, *seen, *samples(range(6_020, 10_000, 100))]
    assert shares(run_of(*marks(known)))["evaluation"] == pytest.approx(0.1, abs=0.02)
    assert "evaluation" not in shares(run_of(*marks([*known, *learn])))


def test_a_batch_that_another_thread_fetches_is_waited_for_as_long_as_samples_say():
    """Two steps a batch, 40 of 50 ms in the queue; the other thread is at its loader nearly all the time."""
    take = "loop.py:5 Ahead.__iter__ < loop.py:9 main > python3.12/threading.py:355 Condition.wait | yield self.q.get()"
    ends = [t + at for t in range(0, 10_000, 50) for at in (45, 50)]
    looks = range(7, 10_000, 120)
    run = run_of(
        *marks([*steps(ends), *samples([t for t in looks if t % 50 < 40], take)]),
        *marks(samples(t for t in looks if t % 50 >= 40)),
        *marks([(MarkClass.INPUT, t, t + 49) for t in range(0, 10_000, 50)], tid=AUTOGRAD),
    )
    assert [one.kind for one in run.phases] == [PhaseKind.TRAIN]
    assert run.phases[0].waits_ns / run.duration_ns == pytest.approx(0.8, abs=0.05)


CHECK = "main.py:40 check < main.py:91 main | for x in loader:"
EPOCH = "main.py:10 train < main.py:90 main | for x in loader:"


@pytest.mark.parametrize("begins_ms", [20, 90])
def test_the_first_batch_after_an_evaluation_is_the_epochs(begins_ms):
    """A loader that draws a batch ahead, whose first wait takes a second; the first step is a slow one."""
    rows: list[Any] = []
    for epoch in range(0, 10_000, 2_500):
        rows += steps(range(epoch + 1_540 + int(begins_ms), epoch + 2_501, 40))
        rows += [
            (MarkClass.INPUT, t, t + 1, "loader") for t in range(epoch + 1_650, epoch + 2_500, 40)
        ]
        rows += [(MarkClass.INPUT, t, t + 1, "loader") for t in range(epoch, epoch + 500, 40)]
        rows += [(MarkClass.INPUT, epoch + 502, epoch + 1_502, "loader")]
        rows += [(MarkClass.INPUT, epoch + 1_510, epoch + 1_511, "loader")]
        rows += [(MarkClass.EVALUATION, epoch, epoch + 502)]
        rows += samples(range(epoch + 5, epoch + 500, 40), CHECK)
        rows += samples(range(epoch + 520, epoch + 1_500, 40), EPOCH)
        rows += samples(range(epoch + 1_505, epoch + 2_500, 40))
    assert shares(run_of(*marks(rows)))["evaluation"] == pytest.approx(0.2, abs=0.01)


def test_a_wait_that_goes_on_unseen_goes_on_as_before():
    loop = [row for t in range(0, 9_000, 100) for row in ((MarkClass.INPUT, t, t + 80),)]
    run = run_of(*marks([*loop, *steps(range(100, 9_001, 100)), *samples([50, 90])]), seconds=9.9)
    assert sum(one.waits_ns for one in run.phases) / run.duration_ns == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(
    ("wait_ms", "device", "told"), [(80, 0, True), (30, 0, False), (80, None, False)]
)
def test_waits_for_most_of_the_time_are_a_verdict_before_any_kernel(wait_ms, device, told):
    """Of a trainer that has a GPU."""
    frames = [Frame(Kind.DEVICE, {"device_id": device}, START)] if device is not None else []
    loop = [row for t in range(0, 1_000, 100) for row in ((MarkClass.INPUT, t, t + wait_ms),)]
    run = run_of(*frames, *marks([*loop, *steps(range(100, 1_001, 100))]), seconds=1)
    assert (run.unseen is not None) is told
    if run.unseen is not None:
        assert (run.unseen.cause, run.unseen.share) == ("input", pytest.approx(0.8, abs=0.02))


def test_no_counter_and_no_marks_leave_it_unknown():
    run = run_of(*marks(samples([0, 9_000])))
    assert run.witness.active_counter is None and run.witness.waits_ledger is None
    assert run.account.unknown_ns == run.duration_ns and run.steps == 0


def test_marks_in_any_order_say_the_same():
    rows: list[Any] = [*steps(range(50, 10_000, 50)), *samples(range(100, 10_000, 250))]
    rows += [(MarkClass.INPUT, t, t + 20, "loader") for t in range(60, 10_000, 50)]
    mixed = [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]
    ordered = run_of(*marks(rows))
    assert run_of(*marks(mixed[:200]), *marks(mixed[200:])).account == ordered.account
    assert ordered.train is not None and ordered.train.waits_share == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize("length_ms", [1_000, 400])
def test_a_phase_of_one_stretch_is_named(length_ms):
    ends = [t for t in range(50, 10_000, 50) if not 4_000 < t < 4_000 + length_ms]
    inside = range(4_040, 4_000 + length_ms, 100)
    run = run_of(
        *marks([*steps(ends), *samples(range(20, 4_000, 250)), *samples(inside, EVALUATE)])
    )
    assert shares(run)["evaluation"] == pytest.approx(length_ms / 10_000, abs=0.02)


def test_a_forked_child_says_nothing_of_the_loop():
    """Its threads have other numbers; what it saves or waits for is not the trainer's time."""
    loop = marks([*steps(range(50, 10_000, 50)), *samples(range(100, 10_000, 250))])
    child = marks([(MarkClass.CHECKPOINT, 2_000, 5_000), (MarkClass.GC, 6_000, 7_000)], tid=99)
    assert run_of(*loop, *child).account == run_of(*loop).account


def test_a_counter_alone_tells_activity():
    rows = np.zeros(40, GAUGE)
    rows["time_ns"] = START + np.arange(1, 41) * 250 * MS
    rows["value"], rows["metric"] = 0.3, Metric.GRAPHICS_ACTIVE
    run = run_of(*marks(samples([0, 9_000])), Frame(Kind.GAUGES, rows, START + 10 * SECOND))
    assert run.witness.active_counter == pytest.approx(0.3)
    assert run.account.unknown_ns == pytest.approx(0.3 * run.duration_ns, rel=0.01)


FAST = np.arange(1_800, 3_800, 1.8).tolist()
GUSTS = [begin + 10 * step for begin in range(0, 9_000, 1_000) for step in range(4)]
LATE = [(MarkClass.INPUT, begin + 30, begin + 1_000) for begin in range(0, 9_000, 1_000)]


@pytest.mark.parametrize(
    ("rows", "seconds", "mean_ms"),
    [
        ([(MarkClass.COMPILE, 0, 100), *steps(FAST)], 5.6, 1.8),
        ([*steps([*FAST, *(t + 3_200 for t in FAST)]), (MarkClass.EVALUATION, 3_800, 5_000)], 9, 1.8),
        (steps(range(0, 400_000, 7_000)), 420, 7_000),
        ([*steps(GUSTS), *LATE], 9, 9_000 / (len(GUSTS) - 1)),
        (steps([0]), 2, None),
    ],
    ids=["start and end", "a pause", "parts of a long run", "a loader's gusts", "one mark"],
)  # fmt: skip
def test_a_mean_step_is_of_time_between_marks(rows, seconds, mean_ms):
    run = run_of(*marks(rows), seconds=seconds)
    wanted = None if mean_ms is None else pytest.approx(mean_ms * MS, rel=0.001)
    assert run.step_ns == wanted
    assert run.train is None or run.train.step_ns == wanted


def follow(known: Timeline, ledger: Ledger, first_s: int, last_s: int, every_s: int) -> Run:
    """A loop of 20 steps a second, with an evaluation of 5 s every 5 minutes."""
    run = None
    for second in range(first_s, last_s, every_s):
        ms = [second * 1e3 + t for t in range(0, every_s * 1000, 50)]
        evaluates = [t % 300_000 < 5_000 for t in ms]
        rows: list[Any] = [*steps([t for t, away in zip(ms, evaluates, strict=True) if not away])]
        rows += samples([t for t, away in zip(ms, evaluates, strict=True) if not away][::10])
        rows += samples([t for t, away in zip(ms, evaluates, strict=True) if away][::10], EVALUATE)
        for frame in marks(rows):
            known.add(frame)
        run = ledger.run(known, None, START + (second + every_s) * SECOND)
    assert run is not None
    return run


def test_a_run_of_days_is_kept_as_sums():
    known, ledger = timeline(until_ms=0, keep_ns=120 * SECOND), Ledger()
    run = follow(known, ledger, 0, 3600, 60)
    assert shares(run)["evaluation"] == pytest.approx(5 / 300, abs=0.002)
    assert run.steps == pytest.approx(20 * 3600 * (1 - 5 / 300), rel=2e-3)
    assert [one.count for one in run.phases if one.kind is PhaseKind.EVALUATION] == [11]
    assert len(ledger._closed) == 2 and len(run.stretches) <= MOST_STRETCHES
    assert (
        all(len(one.bursts) <= 2 for one in ledger._closed.values()) and not ledger._bursts._known
    )


def test_a_program_of_many_phases_is_kept_as_its_largest():
    known, ledger = timeline(until_ms=0, keep_ns=120 * SECOND), Ledger()
    for minute in range(2 * MOST_KEYS):
        at = [minute * 60e3 + t for t in range(0, 60_000, 500)]
        for frame in marks(samples(at, f"main.py:{minute} part{minute} < main.py:9 main | x()")):
            known.add(frame)
        run = ledger.run(known, None, START + (minute + 1) * 60 * SECOND)
    assert run is not None and len(ledger._closed) <= MOST_KEYS
    assert sum(one.duration_ns for one in run.phases) == run.duration_ns


def test_a_clock_that_jumps_ahead_is_no_training():
    known, ledger = timeline(until_ms=0, keep_ns=120 * SECOND), Ledger()
    follow(known, ledger, 0, 120, 60)
    run = follow(known, ledger, 7 * 86_400, 7 * 86_400 + 120, 60)
    assert run.train is not None and run.train.step_ns is not None
    assert run.account.duration_ns == run.duration_ns


def test_a_clock_that_falls_back_begins_anew():
    known, ledger = timeline(until_ms=0, keep_ns=120 * SECOND), Ledger()
    follow(known, ledger, 1_000, 1_120, 60)
    assert ledger.run(known, None, START) is None
