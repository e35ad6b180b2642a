"""Phases from marks and samples: what a stretch of a run is taken for, and where it begins and ends."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from brrrtop.ledger.account import BUSY, Burst
from brrrtop.ledger.evidence import Evidence, Samples
from brrrtop.ledger.phases import find_phases
from brrrtop.ledger.places import batch_lines, foreign_frame, kind_within, makes_batches, place_of
from brrrtop.ledger.sums import PhaseSums, sums_of
from brrrtop.model import intervals
from brrrtop.model.account import IDLE_CAUSES, MECHANICAL_CLASSES, Account
from brrrtop.model.run import PhaseKind
from brrrtop.model.tables import Span
from collectors.vocabulary import MarkClass

MS = 1_000_000
TRAIN = "main.py:10 train < main.py:90 main > torch/optim.py:3 step | optimizer.step()"
BATCH = "main.py:20 get_batch < main.py:9 train < main.py:90 main | x = torch.stack([data[i] for i in ix])"
EVALUATE = "main.py:40 evaluate < main.py:91 main > torch/nn.py:8 forward | out = model(x)"
ROLLOUT = "main.py:60 collect_rollout < main.py:92 main | obs = env.step(a)"
LOOPS = "main.py:10 train < main.py:90 main | optimizer.step()"
NONE = (np.empty(0, np.int64), np.empty(0, np.int64))


def evidence(
    seconds: float,
    steps_ms: list[float] | np.ndarray,
    samples: list[tuple[float, str]],
    waits_ms: list[tuple[float, float]] = (),  # type: ignore[assignment]
    **marks: list[tuple[float, float]],
) -> Evidence:
    """Times in ms; `saving`, `evaluating`, `compiling` as intervals."""

    def ns(times: Any) -> Any:
        return (np.asarray(times, np.float64) * MS).astype(np.int64)

    def pairs(rows: Any) -> Any:
        return (ns([a for a, _ in rows]), ns([b for _, b in rows])) if len(rows) else NONE

    names = sorted({name for _, name in samples})
    times = ns([at for at, _ in samples])
    middle = (times[1:] + times[:-1]) // 2
    end = ns([seconds * 1000])[0]
    low = np.concatenate(([0], middle)) if len(times) else times
    high = np.concatenate((middle, [end])) if len(times) else times
    ids = np.array([names.index(name) for _, name in samples], np.int64)
    making = np.array(["get_batch" in names[i] for i in ids.tolist()], np.bool_)
    starts, ends = pairs(waits_ms)
    return Evidence(
        span=Span(0, int(end)), names=tuple(names), step_ends=ns(steps_ms), waits=intervals.merge_unsorted(starts, ends), wait_ends=ends,
        saving=pairs(marks.get("saving", [])), compiling=pairs(marks.get("compiling", [])),
        evaluating=pairs(marks.get("evaluating", [])), pauses=dict.fromkeys((MarkClass.GC,), NONE),
        samples=Samples(times, low, high, ids, making, *np.zeros((3, len(ids)), np.bool_)), step_places=(),
        read_starts=NONE[0], read_ends=NONE[0], read_active=np.empty(0),
    )  # fmt: skip


def shares(known: Evidence) -> dict[PhaseKind, float]:
    every = sums_of(known, find_phases(known), (), known.span)
    assert sum(one.duration_ns for one in every) == known.span.duration_ns
    result: dict[PhaseKind, float] = {}
    for one in every:
        part = one.duration_ns / known.span.duration_ns
        result[one.key[0]] = result.get(one.key[0], 0.0) + part
    return result


def test_an_evaluation_ends_where_samples_leave_it_though_its_mark_lasts_until_the_next_batch():
    upload = "main.py:70 on_epoch_end < main.py:92 main | client.put(path)"
    at = [(float(t), TRAIN) for t in range(20, 10_000, 40)]
    at = [(t, at_) for t, at_ in at if not 4_000 <= t < 5_000]
    at += [(float(t), EVALUATE if t < 4_400 else upload) for t in range(4_000, 5_000, 40)]
    steps = [t for t in range(50, 10_000, 50) if not 4_000 < t <= 5_000]
    known = evidence(10, steps, sorted(at), evaluating=[(4_000, 5_000)])
    told = shares(replace(known, step_places=(TRAIN,)))
    assert told[PhaseKind.EVALUATION] == pytest.approx(0.04, abs=0.005)
    assert told[PhaseKind.OTHER] == pytest.approx(0.06, abs=0.01)


@pytest.mark.parametrize(
    ("inside", "share"), [(ROLLOUT, 0.75), (ROLLOUT.replace("collect_rollout", "augment"), 0.0)]
)
def test_what_acts_in_each_step_is_a_rollout_and_what_else_is_in_each_is_not(inside, share):
    at = [(float(t), TRAIN if i % 4 == 3 else inside) for i, t in enumerate(range(5, 10_000, 41))]
    known = replace(evidence(10, [*range(30, 10_000, 30)], at), step_places=(TRAIN,))
    assert shares(known).get(PhaseKind.ROLLOUT, 0.0) == pytest.approx(share, abs=0.02)
    train = next(one for one in sums_of(known, find_phases(known), (), known.span) if one.steps)
    assert train.key[0] is PhaseKind.TRAIN and train.steps > 320


@pytest.mark.parametrize(
    ("turns_ms", "shares_of_loops"), [(5_000, [0.5, 0.5]), (100, [1.0]), (10_000, [1.0])]
)
def test_loops_that_train_one_after_the_other_are_phases_and_parts_of_a_step_are_not(
    turns_ms, shares_of_loops
):
    tune = TRAIN.replace("main.py:10 train", "main.py:70 tune")
    at = [(float(t), tune if t // turns_ms % 2 else TRAIN) for t in range(20, 10_000, 40)]
    known = evidence(10, [*range(50, 10_000, 50)], at)
    known = replace(known, step_places=(TRAIN, tune) if turns_ms < 10_000 else (TRAIN,))
    every = sums_of(known, find_phases(known), (), known.span)
    assert {one.key[0] for one in every} == {PhaseKind.TRAIN}
    found = [one.duration_ns / known.span.duration_ns for one in every]
    assert found == pytest.approx(shares_of_loops, abs=0.01)
    assert sum(one.steps for one in every) == 199


@pytest.mark.parametrize(
    "steps", [range(50, 10_000, 50), [*range(50, 4_050, 50), *range(7_050, 10_000, 50)]]
)
def test_steps_are_training_and_so_is_a_long_one_that_goes_where_all_go(steps):
    known = evidence(10, [*steps], [(t, TRAIN) for t in range(100, 10_000, 250)])
    assert shares(known) == {"train": 1.0}


FORWARD = "> modules/linear.py:134 Linear.forward |"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (EVALUATE, "evaluation"),
        (ROLLOUT, "rollout"),
        (f"main.py:70 check < main.py:95 main {FORWARD} loss = net(x)", "evaluation"),
        (f"main.py:75 write < main.py:96 main {FORWARD} net.generate(x)", "generation"),
        (f"main.py:75 write < main.py:96 main {FORWARD} x = torch.multinomial(p, 1)", "generation"),
        (f"main.py:75 act < main.py:96 main {FORWARD} env.step(policy(x))", "rollout"),
        ("main.py:80 average < main.py:97 main | p.lerp_(q)", "other"),
        ("main.py:98 main | gc.collect()", "other"),
        (
            f"main.py:82 draw < main.py:96 main {FORWARD} Image.fromarray(net(z)).save(f)",
            "generation",
        ),
        # torch.func is no compiler; state goes to the host to be saved.
        (
            "main.py:75 check < main.py:96 main > _functorch/apis.py:455 f | grad(loss)(p, x)",
            "other",
        ),
        (f"main.py:20 train_generator < main.py:96 main {FORWARD} loss = net(x)", "evaluation"),
        (
            "main.py:20 train < main.py:90 main | s = {k: v.cpu() for k, v in net.state_dict().items()}",
            "saving",
        ),
        # Of a name that says two things the rest of the stack says which.
        (
            f"main.py:60 run_eval < main.py:50 log_save_evaluate < main.py:96 main {FORWARD} x",
            "evaluation",
        ),
        (
            f"main.py:61 forward < main.py:50 log_save_evaluate < main.py:96 main {FORWARD} x",
            "evaluation",
        ),
        ("main.py:51 log_save_evaluate < main.py:96 main | torch.save(x, f)", "saving"),
    ],
)
def test_a_pause_between_steps_is_what_its_samples_stand_in(name, kind):
    steps = [*range(50, 4_050, 50), *range(7_050, 10_000, 50)]
    samples = [(t, name if 4_000 < t < 7_000 else TRAIN) for t in range(100, 10_000, 250)]
    result = shares(evidence(10, steps, samples))
    assert result[PhaseKind(kind)] == pytest.approx(0.3, abs=0.03)
    assert result[PhaseKind.TRAIN] == pytest.approx(0.7, abs=0.03)


def test_a_backward_pass_of_few_steps_is_training():
    """Each tenth step has a penalty that takes as long as nine others; or a test that needs a gradient."""
    steps = [begin + t for begin in range(0, 10_000, 1_000) for t in range(550, 1_001, 50)]
    begin, place = "main.py:12 train < main.py:90 main >", "autograd/graph.py:979 f |"
    for source, share in {"(0.1 * r1).backward()": 0.0, "f = grad(e(model(z)), z)": 0.45}.items():
        names = [f"{begin} {place} {source}", f"{begin} nn/layer.py:8 Net.forward | {source}"]
        rare = [(t, names[t % 2]) for t in range(5, 10_000, 41) if t % 1_000 < 450]
        samples = [*rare, *((t, TRAIN) for t in range(5, 10_000, 41) if t % 1_000 >= 450)]
        result = shares(evidence(10, steps, sorted(samples)))
        assert result.get(PhaseKind.EVALUATION, 0.0) == pytest.approx(share, abs=0.05)


CHECK = "main.py:70 quick_check < main.py:95 main > torch/nn.py:8 forward | out = model(x)"
AVERAGE = "main.py:80 average < main.py:97 main | p.lerp_(q)"
INLINE = "main.py:{} train < main.py:90 main | tokens.append(next_of(tokens))"


def test_pauses_shorter_than_samples_are_apart_are_told_by_those_of_their_length():
    """Every second a check of 300 ms and an average of 100, samples every 240 ms: many pauses have none."""
    steps: list[float] = []
    samples: list[tuple[float, str]] = []
    for second in range(0, 20_000, 1_000):
        steps += [*range(second + 300, second + 661, 20), *range(second + 760, second + 1_001, 20)]
    for t in range(7, 20_000, 240):
        at = t % 1_000
        samples.append((t, CHECK if at < 280 else AVERAGE if 660 <= at < 740 else TRAIN))
    every = sums_of(known := evidence(20, steps, samples), find_phases(known), (), known.span)
    parts = {one.key[1][1]: one.duration_ns / known.span.duration_ns for one in every}
    assert parts == {
        "train": pytest.approx(0.64, abs=0.01),
        "quick_check": pytest.approx(0.28, abs=0.01),
        "average": pytest.approx(0.08, abs=0.01),
    }


BY_HAND = "main.py:8 train < main.py:90 main | x = get_batch()"
INLINE_CHECK = (
    "main.py:14 train < main.py:90 main > modules/linear.py:1 f | hits += net(x).argmax(1)"
)


@pytest.mark.parametrize(
    ("name", "share"), [(CHECK, 0.2), (INLINE_CHECK, 0.2), (TRAIN, 0.0), (BY_HAND, 0.0)]
)
def test_steps_that_are_only_slow_hold_what_no_other_step_does(name, share):
    """Each fourth step takes twice as long; where its samples stand where all do it is training."""
    steps, samples = [], []
    for begin in range(0, 20_000, 1_000):
        steps += [begin + 400, begin + 600, begin + 800, begin + 1_000]
        samples += [(begin + at, name if at < 200 else TRAIN) for at in (90, 340, 590, 840)]
    result = shares(evidence(20, steps, samples))
    assert 1 - result[PhaseKind.TRAIN] == pytest.approx(share, abs=0.01)


def test_pauses_of_a_few_steps_count_though_a_sample_is_mistimed():
    """Steps of 0.5 ms; 16 ms of each 40 a simulator runs. Times are up to a millisecond too early."""
    act = f"main.py:4 train < main.py:90 main {FORWARD} a = policy(env.state)"
    steps = [begin + 16 + 0.5 * k for begin in range(0, 20_000, 40) for k in range(49)]
    samples = [(t - 1, act if t % 40 < 16 else TRAIN) for t in np.arange(0.7, 20_000, 39.3)]
    result = shares(evidence(20, steps, samples))
    assert result[PhaseKind.ROLLOUT] == pytest.approx(0.4, abs=0.03)


def test_of_a_few_large_steps_what_most_of_them_go_through_is_training():
    """Six steps of two seconds, behind the third a check of four."""
    steps = [2_000, 4_000, 6_000, 12_000, 14_000, 16_000]
    samples = [(t, CHECK if 6_000 < t < 10_000 else TRAIN) for t in range(100, 17_000, 250)]
    result = shares(evidence(17, steps, samples))
    assert result[PhaseKind.TRAIN] == pytest.approx(13 / 17, abs=0.02)


def test_the_name_of_the_loop_says_nothing_of_one_of_its_lines():
    average = place_of("main.py:12 evaluate_and_train < main.py:90 main | p.lerp_(q)")
    assert kind_within("main.py:12", {average: 5}) is PhaseKind.OTHER
    assert kind_within(average.functions[-1], {average: 5}) is PhaseKind.EVALUATION


def test_lines_between_two_usual_ones_are_one_block():
    steps = [*range(50, 4_050, 50), *range(7_050, 10_000, 50)]
    lines = [INLINE.format(line) for line in (21, 22, 24)]
    samples = [
        (t, lines[t // 250 % 3] if 4_000 < t < 7_000 else TRAIN) for t in range(100, 10_000, 250)
    ]
    known = evidence(10, steps, samples)
    every = {one.key[1]: one for one in sums_of(known, find_phases(known), (), known.span)}
    assert set(every) == {("main.py", "train"), "main.py:21"}
    assert every["main.py:21"].duration_ns == pytest.approx(2_950 * MS, rel=0.02)


def test_a_function_that_no_word_speaks_for_does_what_the_lines_around_its_call_do():
    act = "main.py:5 train < main.py:90 main | action = policy(obs).sample()"
    env = "main.py:6 train < main.py:90 main | obs, reward = envs.step(action)"
    inner = "main.py:30 Arm.move < main.py:7 train < main.py:90 main | q = q + np.sin(a)"
    steps = [*range(100, 1000, 10), *range(2000, 3000, 10)]
    samples = [(ms + 5.0, LOOPS) for ms in range(100, 1000, 20)]
    pause = [(ms + 0.0, (act, env, inner)[ms // 30 % 3]) for ms in range(1000, 1990, 30)]
    known = evidence(3.0, steps, [*samples, *pause, *((ms, LOOPS) for ms in range(2005, 3000, 20))])
    phases = find_phases(replace(known, step_places=(LOOPS,)))
    assert [kind for kind, _ in phases.keys].count(PhaseKind.OTHER) == 0
    (row,) = (i for i, (kind, _) in enumerate(phases.keys) if kind is PhaseKind.ROLLOUT)
    assert intervals.total(*phases.of(row)) == pytest.approx(990 * MS, rel=0.05)


@pytest.mark.parametrize(
    "inside",
    ["6 train | x = env.step(action)", "50 Arm.step < main.py:6 train | v = np.clip(v + a, -8, 8)",
     "50 step_envs < main.py:6 train | v = v + a"],
)  # fmt: skip
def test_lines_of_the_loop_that_act_in_each_step_are_a_rollout(inside):
    acts = "main.py:" + inside.replace(" |", " < main.py:90 main |")
    policy = (
        "main.py:5 train < main.py:90 main > modules/linear.py:1 Linear.forward | a = policy(o)"
    )
    learns = "main.py:9 train < main.py:90 main > autograd/graph.py:8 f | loss.backward()"
    forward = policy.replace(":5 ", ":8 ")
    names = [acts, policy, learns, forward, LOOPS] * 30
    known = evidence(
        1.5, list(range(10, 1500, 10)), [(10 * i + 5.0, n) for i, n in enumerate(names)]
    )
    phases = find_phases(replace(known, step_places=(LOOPS,)))
    (row,) = (i for i, (kind, _) in enumerate(phases.keys) if kind is PhaseKind.ROLLOUT)
    assert intervals.total(*phases.of(row)) == pytest.approx(0.4 * 1500 * MS, rel=0.05)


def test_of_a_pause_that_goes_on_its_own_samples_alone_speak():
    """Hooks that were taken out, or a program that ended, leave steps without marks behind the last one."""
    steps = [s + 300 + at for s in range(0, 8_000, 1_000) for at in range(20, 701, 20)]
    samples = [(t, CHECK if t % 1_000 < 280 else TRAIN) for t in range(100, 8_000, 250)]
    found = find_phases(evidence(8.3, steps, samples))
    assert found.keys[found.rows[-1]][0] is PhaseKind.TRAIN


def test_a_sample_beside_a_wait_of_its_own_is_but_mistimed():
    """Waits of 20 ms in steps of 50; times of samples are rounded down, so that some lie before their wait."""
    steps = np.arange(50, 10_000, 50)
    waits = [(float(t + 10), float(t + 30)) for t in range(0, 10_000, 50)]
    samples = [(t - 1, BATCH if 10 <= t % 50 < 30 else TRAIN) for t in range(10, 10_000, 29)]
    known = evidence(10, steps, samples, waits_ms=waits)
    known = replace(known, samples=replace(known.samples, asks=known.samples.makes_batches))
    (only,) = sums_of(known, find_phases(known), (), known.span)
    assert only.waits_ns / only.duration_ns == pytest.approx(0.4, abs=0.005)


def test_batches_made_by_hand_are_waits_for_data():
    steps = np.arange(50, 10_000, 50)
    samples = [(t, BATCH if i % 5 < 2 else TRAIN) for i, t in enumerate(range(100, 10_000, 250))]
    known = evidence(10, steps, samples)
    (only,) = sums_of(known, find_phases(known), (), known.span)
    assert only.waits_ns / only.duration_ns == pytest.approx(0.4, abs=0.03)


def test_marks_name_saves_and_evaluations_within_steps():
    steps = np.arange(100, 10_000, 100)
    known = evidence(10, steps, [], saving=[(2_000, 3_000)], evaluating=[(5_000, 7_000)])
    result = shares(known)
    assert result[PhaseKind.SAVING] == 0.1 and result[PhaseKind.EVALUATION] == 0.2


@pytest.mark.parametrize(("every_ms", "share"), [(500, 0.06), (5_000, 0.0)])
def test_short_saves_are_a_phase_where_they_come_often(every_ms, share):
    saves = [(t, t + 30) for t in range(100, 10_000, every_ms)]
    known = evidence(10, np.arange(100, 10_000, 100), [], saving=saves)
    assert shares(known).get(PhaseKind.SAVING, 0.0) == pytest.approx(share)


def test_nothing_known_is_other():
    assert shares(evidence(1, [], [])) == {"other": 1.0}


@pytest.mark.parametrize(
    ("moves", "made"), [("torch.tensor(x)", 2), ("torch.stack([a for a in x])", 3)]
)
def test_a_line_that_only_copies_what_it_moves_makes_no_batch(moves, made):
    lines = ("x = rows[ix].astype('f')", "x = x + noise.astype('f')", f"x = {moves}.to(device)")
    each = [place_of(f"main.py:{n} train < main.py:90 main | {s}") for n, s in enumerate(lines, 5)]
    runs = place_of(f"main.py:9 train < main.py:90 main {FORWARD} loss = net(x)")
    loop = batch_lines([("main.py", "train")], [*each, runs])
    assert [makes_batches(one, loop, ()) for one in each].count(True) == made
    # So is what comes after the loop's own rollout, and the comprehension that it is in.
    acts = place_of("main.py:4 train < main.py:90 main | obs = env.step(policy(obs))")
    rolls = place_of(f"main.py:3 train < main.py:90 main {FORWARD} a = policy(obs)")
    each[0] = place_of(
        "main.py:5 train.<genexpr> < main.py:5 train < main.py:90 main | (f(a) for a in x)"
    )
    loop = batch_lines([("main.py", "train")], [*each, runs, acts, rolls])
    found = [makes_batches(one, loop, ()) for one in (acts, *each)]
    assert found == [False, *[True] * made, *[False] * (3 - made)]


def test_without_an_optimizer_saves_are_told_and_evaluation_is_not():
    """Batches drawn without gradients, 100 a second; each second 300 ms of files."""
    runs = f"embed.py:9 main {FORWARD} h = encoder(x)"
    writes = "embed.py:12 main > lib/format.py:7 write_array | np.save(file, block)"
    waits = [(s + t, s + t + 2) for s in range(0, 10_000, 1_000) for t in range(300, 1_000, 10)]
    samples = [(t, writes if t % 1_000 < 295 else runs) for t in range(7, 10_000, 41)]
    result = shares(evidence(10, [], samples, waits_ms=waits, evaluating=[(0, 10_000)]))
    assert result == {"saving": pytest.approx(0.3, abs=0.02), "other": pytest.approx(0.7, abs=0.02)}


def test_waits_of_an_evaluation_are_its_own_and_those_of_an_epoch_of_training():
    wait = "> python3.12/threading.py:355 Condition.wait | x = next(self.loader)"
    inner = "data.py:5 Prefetcher.next < main.py:70 validate < main.py:90 main"
    assert foreign_frame(place_of(f"{inner} {wait}"), frozenset()) == ("main.py", "validate")
    begin = (
        "main.py:8 train < main.py:90 main > multiprocessing/popen_fork.py:66 f | for x in loader:"
    )
    steps = [s + t for s in range(0, 10_000, 1_000) for t in range(320, 1_001, 20)]
    samples = [(t, begin if t % 1_000 < 290 else TRAIN) for t in range(7, 10_000, 41)]
    known = evidence(10, steps, samples)
    assert shares(known)[PhaseKind.DATA] == pytest.approx(0.28, abs=0.03)
    asks = np.array([known.names[i] == begin for i in known.samples.name_ids])
    assert shares(replace(known, samples=replace(known.samples, asks=asks))) == {"train": 1.0}


def test_what_pyg_writes_for_a_layer_collects_no_rollout():
    place = place_of(
        "tmp/torch_geometric.nn.conv_ab1.py:92 collect < main.py:9 train < main.py:90 main"
    )
    assert [function for _, function in place.functions] == ["main", "train"]


def test_a_loop_that_trains_and_checks_is_told_by_the_line_that_calls_it():
    inner = f"main.py:14 shared_step < main.py:19 loop < main.py:{{}} main {FORWARD} out = net(x)"
    train, check = inner.format(24), inner.format(25)
    steps = [*range(50, 4_050, 50), *range(7_050, 10_000, 50)]
    samples = [(t, check if 4_000 < t < 7_000 else train) for t in range(100, 10_000, 250)]
    known = replace(evidence(10, steps, samples), step_places=(train,))
    assert shares(known)[PhaseKind.EVALUATION] == pytest.approx(0.3, abs=0.03)


def test_a_backward_pass_without_an_optimizer_is_training_and_makes_its_batches():
    learns = "main.py:9 train < main.py:90 main > autograd/graph.py:8 f | loss.backward()"
    made = BATCH.replace("main.py:9", "main.py:8")
    known = evidence(
        10, [], [(t, made if t % 1_000 < 300 else learns) for t in range(50, 9_950, 90)]
    )
    (only,) = sums_of(known, find_phases(known), (), known.span)
    assert only.key == (PhaseKind.TRAIN, ("main.py", "train"))
    assert only.waits_ns / only.duration_ns == pytest.approx(0.3, abs=0.03)


def test_a_program_without_an_optimizer_is_known_by_its_functions():
    result = shares(evidence(10, [], [(t, EVALUATE) for t in range(100, 10_000, 250)]))
    assert result[PhaseKind.EVALUATION] > 0.9


def burst(steps: int, busy_ms: float, idle_ms: float) -> Burst:
    idle = dict.fromkeys(IDLE_CAUSES, 0) | {"launch": int(idle_ms * MS)}
    busy = dict.fromkeys(BUSY, 0) | {"compute_ns": int(busy_ms * MS)}
    total = int(busy_ms * MS) + int(idle_ms * MS)
    account = Account(
        total, **busy, idle_ns=idle, mechanical_ns=dict.fromkeys(MECHANICAL_CLASSES, 0),
        busy_ns=int(busy_ms * MS),
    )  # fmt: skip
    return Burst(Span(0, total), account, steps, 0)


def test_waits_are_idle_less_what_the_gpu_does_meanwhile():
    """Steps of 100 ms, 40 of them waits; the GPU works for 50 and idles for 10 between launches. The 60 that
    the host takes otherwise are what it takes when traced: so a tenth of a step is hidden in waits."""
    account = PhaseSums(
        (PhaseKind.TRAIN, ""),
        10_000 * MS,
        steps=100,
        waits_ns=4_500 * MS,
        bursts=(burst(5, 250, 25),),
    ).account
    assert account.compute_ns == pytest.approx(5_000 * MS, rel=1e-6)
    assert account.idle_ns["launch"] == pytest.approx(500 * MS, rel=1e-6)
    assert account.idle_ns["input"] == pytest.approx(4_500 * MS, rel=1e-6)


def test_where_a_loop_makes_a_batch_bursts_see_a_host_that_is_elsewhere():
    one = burst(0, 30, 0)
    elsewhere = dict(one.account.idle_ns) | {"host": 70 * MS}
    one = replace(one, account=replace(one.account, duration_ns=100 * MS, idle_ns=elsewhere))
    made = {"waits_ns": 5_000 * MS, "sampled_ns": 5_000 * MS}
    account = PhaseSums((PhaseKind.OTHER, ""), 10_000 * MS, **made, bursts=(one,)).account
    assert account.idle_ns["input"] == pytest.approx(5_000 * MS, rel=0.01)
    assert account.idle_ns["host"] == pytest.approx(2_000 * MS, rel=0.01)


def test_tracing_slows_the_host_and_not_the_account():
    """Traced steps of 20 ms, others of 10: the GPU's 5 ms are half of a step."""
    account = PhaseSums(
        (PhaseKind.TRAIN, ""), 1_000 * MS, steps=100, bursts=(burst(5, 25, 75),)
    ).account
    assert account.compute_ns == pytest.approx(500 * MS, rel=1e-6)
    assert account.idle_ns["launch"] == pytest.approx(500 * MS, rel=1e-6)


def test_what_no_burst_saw_is_unknown_and_never_another_phases():
    account = PhaseSums(
        (PhaseKind.OTHER, ""), 1_000 * MS, waits_ns=100 * MS, active_ns=0.3, read_ns=1.0
    ).account
    assert account.unknown_ns == 300 * MS and account.compute_ns == 0
    assert account.idle_ns["input"] == 100 * MS and account.idle_ns["unknown"] == 600 * MS


@given(
    st.integers(0, 10**12), st.integers(0, 5000), st.floats(0, 1.2), st.floats(0, 1),
    st.one_of(st.none(), st.floats(0, 1.1)), st.integers(0, 9), st.floats(0, 100), st.floats(0, 100),
    st.sampled_from(list(PhaseKind)),
)  # fmt: skip
def test_an_account_adds_up_whatever_is_known(length, steps, waits, reading, active,
    traced, busy, idle, kind,):  # fmt: skip
    waits_ns = int(length * min(waits, 1.0))
    account = PhaseSums(
        (kind, ""), length, steps=steps, waits_ns=waits_ns, reading_ns=int(waits_ns * reading),
        launching_ns=reading * (length - waits_ns), active_ns=active or 0.0,
        read_ns=0.0 if active is None else 1.0, pauses_ns={MarkClass.GC: length // 50},
        bursts=(burst(traced, busy, idle),) if busy + idle > 1 else (),
    ).account  # fmt: skip
    parts = [getattr(account, name) for name in BUSY] + list(account.idle_ns.values())
    assert sum(parts) == account.duration_ns == length and min(parts) >= 0
    if kind not in (PhaseKind.DATA, PhaseKind.TRAIN):
        assert (
            account.idle_ns["input"] + account.idle_ns["io"] <= waits_ns + 20
        )  # whole nanoseconds
