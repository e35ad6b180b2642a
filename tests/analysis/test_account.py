"""The account balances, whatever the records."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from brrrtop.analysis.account import account
from brrrtop.analysis.account.account import charge
from brrrtop.analysis.estimate import estimate
from brrrtop.analysis.facts import launches, stack_samples
from brrrtop.analysis.facts.table import BUCKETS, Facts, Labels
from brrrtop.analysis.kernels.compute_or_memory import label
from brrrtop.model.account import Account
from brrrtop.model.tables import Span, Window
from brrrtop.timeline import correlation
from collectors.vocabulary import CallClass, MarkClass
from tests.analysis.build import ADD, D2H, GEMM, H2D, NCCL, C, K, M, window

LINES = ["train.py:8 main | rows = np.load(path)", "train.py:9 main | x = x.scale()"]
NAMES = [GEMM, ADD, NCCL, H2D, D2H, "_my_kernel"]


def booked(w: Window) -> Account:
    facts = Facts(w, correlation.call_of(w.activities, w.calls))
    return account.book(facts.labelled(label(facts)))


def total(a: Account) -> int:
    return (
        a.compute_ns + a.memory_ns + a.underfilled_ns + a.exposed_comm_ns + a.exposed_copy_ns
        + sum(a.idle_ns.values()) + a.unknown_ns
    )  # fmt: skip


@st.composite
def windows(draw: st.DrawFn) -> Window:
    n = draw(st.integers(1, 25))
    kernels, calls = [], []
    for i in range(n):
        start = draw(st.integers(0, 400_000))
        kernels.append(
            K(
                start, start + draw(st.integers(1, 60_000)), draw(st.sampled_from(NAMES)),
                corr=draw(st.integers(0, n)), stream=draw(st.integers(1, 3)), blocks=draw(st.integers(1, 4000)),
            )
        )  # fmt: skip
        if draw(st.booleans()):
            at = draw(st.integers(0, 400_000))
            calls.append(
                C(at, at + draw(st.integers(1, 30_000)), i, draw(st.sampled_from(list(CallClass))))
            )
    marks = []
    for _ in range(draw(st.integers(0, 5))):
        at = draw(st.integers(0, 400_000))
        marks.append(
            M(at, at + draw(st.integers(0, 90_000)), draw(st.sampled_from(list(MarkClass))))
        )
    for _ in range(draw(st.sampled_from([0, 19, 40]))):
        at, line = draw(st.integers(0, 400_000)), draw(st.sampled_from(LINES))
        marks.append(M(at, at, MarkClass.STACK, line))
    low = draw(st.integers(0, 200_000))
    span = (low, low + draw(st.integers(1, 300_000)))
    counted = st.tuples(st.integers(0, 500_000), st.integers(0, 2))
    others = sorted(draw(st.lists(counted, max_size=4)))
    return window(kernels, calls, marks, span, others=others)


@given(windows())
@settings(deadline=None, max_examples=80)
def test_every_nanosecond_is_booked_exactly_once(w):
    a = booked(w)
    assert total(a) == w.span.duration_ns == a.duration_ns
    idle_ns = a.duration_ns - a.busy_ns - a.unrecorded_ns
    assert sum(a.mechanical_ns.values()) == idle_ns == a.idle_total_ns
    parts = (a.compute_ns, a.memory_ns, a.underfilled_ns, a.exposed_comm_ns, a.exposed_copy_ns)
    assert min(*parts, a.unknown_ns, *a.idle_ns.values(), *a.mechanical_ns.values()) >= 0


@given(windows(), st.floats(0.01, 0.99))
@settings(deadline=None, max_examples=60)
def test_two_halves_add_up_to_the_whole(w, at):
    cut = w.span.t0_ns + int(at * w.span.duration_ns)
    whole, left, right = (
        booked(replace(w, span=Span(*s)))
        for s in ((w.span.t0_ns, w.span.t1_ns), (w.span.t0_ns, cut), (cut, w.span.t1_ns))
    )
    for field in (
        "compute_ns",
        "memory_ns",
        "underfilled_ns",
        "exposed_comm_ns",
        "exposed_copy_ns",
    ):
        parts = getattr(left, field) + getattr(right, field)
        assert abs(getattr(whole, field) - parts) <= 3
    assert whole.busy_ns == left.busy_ns + right.busy_ns


@given(windows(), st.randoms())
@settings(deadline=None, max_examples=60)
def test_the_order_of_records_does_not_matter(w, random):
    order = np.random.default_rng(random.randrange(1 << 30)).permutation(len(w.activities))  # type: ignore[attr-defined]
    shuffled = w.activities.take(order)
    back = shuffled.take(np.argsort(shuffled.starts_ns, kind="stable"))
    a, b = booked(w), booked(replace(w, activities=back))
    assert (a.busy_ns, a.exposed_comm_ns, a.idle_total_ns) == (
        b.busy_ns,
        b.exposed_comm_ns,
        b.idle_total_ns,
    )
    assert abs(a.compute_ns - b.compute_ns) <= 1


def test_a_collective_beside_compute_is_hidden():
    a = booked(window([K(0, 50_000), K(10_000, 80_000, NCCL, stream=9)]))
    assert a.exposed_comm_ns == 30_000
    assert a.compute_ns == 50_000


def test_a_copy_under_a_collective_is_not_booked_twice():
    a = booked(window([K(0, 50_000, NCCL), K(10_000, 70_000, H2D, stream=9)]))
    assert (a.exposed_comm_ns, a.exposed_copy_ns) == (50_000, 20_000)


def test_a_short_kernel_that_reaches_few_sms_is_underfilled_and_a_long_one_is_not():
    a = booked(window([K(0, 19_000, ADD, blocks=2, threads=128)]))
    assert a.underfilled_ns == 19_000
    b = booked(window([K(0, 50_000, ADD, blocks=2, threads=128)]))
    assert (b.underfilled_ns, b.memory_ns) == (0, 50_000)


def test_lost_records_make_idle_time_unknown_in_proportion():
    kernels = [K(0, 10_000), K(90_000, 100_000)]
    a = booked(window(kernels, lost=2))
    assert a.unknown_ns == 40_000
    assert total(a) == 100_000


def test_what_a_broken_off_file_lacks_takes_as_long_as_what_it_has():
    kernels = [K(0, 10_000), K(90_000, 100_000)]
    few, many = (booked(replace(window(kernels), torn_records=n)) for n in (1, 20))
    assert few.unknown_ns == 10_000  # one more kernel, not a third of the idle time
    assert many.unknown_ns == 80_000
    assert total(few) == total(many) == 100_000


def test_untraced_spans_take_no_time():
    kernels = [K(0, 10_000), K(15_000, 20_000), K(1_000_000, 1_010_000)]
    a = booked(window(kernels, observed=(Span(0, 20_000), Span(1_000_000, 1_010_000))))
    assert a.duration_ns == 30_000
    assert a.busy_ns == 25_000


LATE = [K(0, 10_000, corr=1), K(60_000, 70_000, corr=2)]


def test_the_host_being_late_is_told_from_the_launch_itself():
    a = booked(window(LATE, [C(-9_000, -5_000, 1), C(50_000, 58_000, 2)]))
    assert a.mechanical_ns["host_late"] == 40_000
    assert a.mechanical_ns["launch"] == 10_000
    assert a.idle_ns["launch"] == 50_000


def test_queued_work_that_starts_late_waited_on_the_device():
    a = booked(window(LATE, [C(-9_000, -5_000, 1), C(-5_000, -1_000, 2)]))
    assert a.idle_ns["device"] == 50_000


def test_a_loader_wait_is_input_and_a_collection_inside_it_is_gc():
    marks = [M(12_000, 48_000, MarkClass.INPUT), M(20_000, 25_000, MarkClass.GC)]
    a = booked(window(LATE, [C(-9_000, -5_000, 1), C(50_000, 58_000, 2)], marks))
    assert (a.idle_ns["input"], a.idle_ns["gc"]) == (31_000, 5_000)
    assert a.idle_ns["launch"] == 14_000


def test_the_refill_after_a_synchronisation_is_charged_to_it():
    kernels = [K(0, 100_000, corr=1), K(130_000, 140_000, corr=2)]
    calls = [C(-9_000, -5_000, 1), C(5_000, 101_000, 0, CallClass.SYNC), C(120_000, 125_000, 2)]
    a = booked(window(kernels, calls))
    assert a.idle_ns["sync"] == 30_000


def test_a_synchronisation_that_waited_for_nothing_owes_nothing():
    kernels = [K(0, 10_000, corr=1), K(130_000, 140_000, corr=2)]
    calls = [C(-9_000, -5_000, 1), C(50_000, 51_000, 0, CallClass.SYNC), C(120_000, 125_000, 2)]
    a = booked(window(kernels, calls))
    assert a.idle_ns["sync"] == 0
    assert a.idle_ns["launch"] == 120_000


def _after_a_wait(away_ns: int) -> Account:
    """A kernel of 90 us that the host waits for, and the next launch so long after the wait."""
    returned = 101_000
    late = returned + away_ns
    kernels = [K(10_000, 100_000, corr=1), K(late + 5_000, late + 9_000, corr=2)]
    wait = C(8_000, returned, 0, CallClass.SYNC)
    return booked(window(kernels, [C(1_000, 5_000, 1), wait, C(late, late + 4_000, 2)]))


def test_a_host_that_stays_away_after_a_wait_is_away_for_its_own_reasons():
    a = _after_a_wait(3_300_000)
    assert a.idle_ns["host"] == 3_300_000
    # Until the wait came back, and the launch that its 90 us of device work would have hidden.
    assert a.idle_ns["sync"] == 1_000 + 5_000


def test_a_refill_of_a_millisecond_is_the_waits():
    a = _after_a_wait(1_000_000)
    assert (a.idle_ns["host"], a.idle_ns["sync"]) == (0, 1_006_000)


@pytest.mark.parametrize(("until", "cause"), [(5_900_000, "host"), (5_996_000, "launch")])
def test_a_long_op_that_launches_nothing_while_the_device_idles_ran_on_the_cpu(until, cause):
    """The op that launches the next kernel ends after the launch: it was on its way to it."""
    kernels = [K(0, 10_000, corr=1), K(6_000_000, 6_010_000, corr=2)]
    calls = [C(-9_000, -5_000, 1), C(5_990_000, 5_995_000, 2)]
    a = booked(window(kernels, calls, [M(20_000, until, MarkClass.OP, "aten::sort")]))
    assert a.idle_ns[cause] >= 5_970_000


def test_an_op_that_takes_60_ms_to_its_launch_sets_something_up():
    kernels = [K(0, 10_000, corr=1), K(60_000_000, 60_010_000, corr=2)]
    calls = [C(-9_000, -5_000, 1), C(59_990_000, 59_995_000, 2)]
    op = M(20_000, 60_100_000, MarkClass.OP, "aten::_cudnn_attention_forward")
    assert booked(window(kernels, calls, [op])).idle_ns["host"] > 59_000_000


@pytest.mark.parametrize(("took_us", "waited"), [(3, False), (19, False), (25, True)])
@pytest.mark.parametrize("name", [H2D, D2H, "Memcpy HtoD (Host -> Device)"])
def test_a_copy_call_that_returns_in_microseconds_waited_for_nothing(took_us, waited, name):
    kernels = [K(0, 10_000, corr=1), K(100_000, 150_000, name, corr=2)]
    calls = [C(-9_000, -5_000, 1), C(90_000, 90_000 + took_us * 1_000, 2, CallClass.COPY)]
    w = window(kernels, calls)
    assert launches.blocking(Facts(w, np.array([0, 1]))).tolist() == [False, waited]


def _absent(stacks: list[M], marks: tuple[M, ...] = ()) -> Account:
    """The host is away for 1.98 ms, and was sampled."""
    kernels = [K(0, 10_000, corr=1), K(2_000_000, 2_010_000, corr=2)]
    calls = [C(-9_000, -5_000, 1), C(1_990_000, 1_995_000, 2)]
    return booked(window(kernels, calls, [*stacks, *marks]))


def _stacks(line: str, count: int, start: int = 20_000) -> list[M]:
    return [M(start + i * 1_000, start + i * 1_000, MarkClass.STACK, line) for i in range(count)]


def test_an_absence_sampled_in_file_work_is_io_for_its_part_of_the_samples():
    a = _absent(_stacks(LINES[0], 15) + _stacks(LINES[1], 15))
    assert (a.idle_ns["io"], a.idle_ns["host"]) == (990_000, 990_000)
    assert total(a) == a.duration_ns


@pytest.mark.parametrize(("files", "rest"), [(19, 0), (9, 30)])
def test_a_handful_of_samples_in_file_work_is_no_io(files, rest):
    a = _absent(_stacks(LINES[0], files) + _stacks(LINES[1], rest))
    assert (a.idle_ns["io"], a.idle_ns["host"]) == (0, 1_980_000)


def test_samples_inside_a_wait_that_has_a_name_do_not_speak_for_the_rest():
    """The loader's files are `input`; what the host did besides was not reading."""
    wait = M(10_000, 60_000, MarkClass.INPUT)
    a = _absent(_stacks(LINES[0], 30) + _stacks(LINES[1], 30, 100_000), (wait,))
    assert (a.idle_ns["input"], a.idle_ns["io"], a.idle_ns["host"]) == (50_000, 0, 1_930_000)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("train.py:8 main | with open(path, 'rb') as file:", "io"),
        ("train.py:8 main | text = file.read()", "io"),
        ("train.py:8 main | state = torch.load(path)", "io"),
        ("data/rows.py:3 fetch > python3.11/socket.py:706 readinto | r = session.get(url)", "io"),
        ("data/rows.py:3 fetch > urllib3/connectionpool.py:440 _make_request", "io"),
        ("train.py:8 main | subprocess.run(['rsync', a, b])", "io"),
        ("train.py:8 main | for batch in loader: x = np.load(batch)", "input"),
        ("rows.py:3 Rows.__getitem__ | return np.load(self.paths[i])", "input"),
        ("train.py:8 main | torch.save(state, open(path, 'wb'))", "checkpoint"),
        ("train.py:8 main | out.write(text)", "logging"),
        ("a/b.py:8 main > lib/_format_impl.py:849 read_array | x = rows(path)", "io"),
        ("a/b.py:8 main > lib/format.py:801 read_array | x = rows(path)", "io"),
        ("a/b.py:8 main > torch/serialization.py:1500 load | x = weights(path)", "io"),
        ("a/b.py:8 main > torch/serialization.py:900 _save | keep(x, path)", None),
        ("a/b.py:8 main > PIL/ImageFile.py:390 ImageFile.load | x = picture(path)", "io"),
        ("a/b.py:8 main > PIL/Image.py:3513 open | x = picture(path)", "io"),
        ("a/b.py:8 main > PIL/Image.py:2365 Image.resize | x = x.resize((224, 224))", "input"),
        ("a/b.py:8 main | x = cv2.imread(path)", "io"),
        ("a/b.py:8 main > parsers/readers.py:1026 read_csv | x = table(path)", "io"),
        ("a/b.py:8 main > <frozen os>:685 _Environ.__getitem__ | loss = mse(decoder(z), x)", None),
        ("a/b.py:8 main > _hl/dataset.py:802 Dataset.__getitem__ | x = f['x'][i]", "io"),
        ("a/b.py:8 Rows.__getitem__ > _hl/dataset.py:802 Dataset.__getitem__ | x = f[i]", "input"),
        ("a/b.py:8 main > site-packages/soundfile.py:305 read | x = sound(path)", "io"),
        ("a/b.py:8 main > json/__init__.py:293 load | x = settings(path)", "io"),
        ("a/b.py:8 main > json/__init__.py:346 loads | x = settings(text)", None),
        *(
            (f"nb/train.py:3 batch > {reader}", "io")
            for reader in (  # of the standard library, in each Python
                "python3.12/pathlib.py:1013 Path.open", "pathlib/_local.py:540 Path.open",
                "pathlib/__init__.py:780 Path.open", "zipfile/__init__.py:1613 ZipFile.open",
                "_common/_streams.py:103 DecompressReader.read",
            )
        ),
        ("lib/format.py:8 layout | x = x.permute(0, 2, 1)", None),
        ("src/requests.py:8 route | y = self.net(x)", None),
        ("train.py:8 main | loss.backward()", None),
        ("train.py:8 main | dist.recv(tensor, src=0)", None),
        ("train.py:8 reopen | self.reopen(x)", None),
        ("serve.py:479 serve > <built-in method acquire of _thread.lock>", "input"),
    ],
)  # fmt: skip
def test_a_line_reads_as_what_it_names_whoever_called_it(line, cause):
    assert stack_samples.reads_as(line) == cause
    frames, bar, source = line.partition(" | ")
    user, arrow, leaf = frames.partition(" > ")
    called = f"{user} < train.py:1 save_checkpoint < train.py:2 decode{arrow}{leaf}{bar}{source}"
    assert stack_samples.reads_as(called) == cause
    assert stack_samples.split_line(called) == stack_samples.split_line(line)


QUEUED = [C(-9_000, -5_000, 1), C(-5_000, -1_000, 2)]


@pytest.mark.parametrize(
    ("others", "shared_ns"),
    [
        ([(0, 1)], 50_000),
        ([(30_000, 2)], 50_000),
        ([(0, 1), (30_000, 0)], 20_000),
        ([(0, 0), (65_000, 3)], 0),
        ([], 0),
    ],
)
def test_queued_work_that_waited_beside_another_process_says_so(others, shared_ns):
    a = booked(window(LATE, QUEUED, others=others))
    assert (a.idle_ns["other_process"], a.idle_ns["device"]) == (shared_ns, 50_000 - shared_ns)
    assert a.mechanical_ns["device_wait"] == 50_000
    assert total(a) == a.duration_ns


def test_another_process_is_no_excuse_for_a_late_host():
    calls = [C(-9_000, -5_000, 1), C(50_000, 58_000, 2)]
    a = booked(window(LATE, calls, others=[(0, 1)]))
    assert (a.idle_ns["other_process"], a.idle_ns["launch"]) == (0, 50_000)


def test_another_process_seen_in_untraced_time_only_took_nothing():
    spans = (Span(0, 70_000), Span(1_000_000, 1_010_000))
    kernels = [*LATE, K(1_000_000, 1_010_000)]
    others = [(0, 0), (200_000, 1), (900_000, 0)]
    a = booked(window(kernels, QUEUED, observed=spans, others=others))
    assert (a.idle_ns["other_process"], a.idle_ns["device"]) == (0, 50_000)


def test_without_launch_records_idle_time_is_unknown():
    a = booked(window([K(0, 10_000), K(60_000, 70_000)]))
    assert a.idle_ns["unknown"] == 50_000


@pytest.mark.parametrize("n", [0, 1])
def test_a_record_alone_gives_no_verdict(n):
    result = estimate(window([K(i * 10, i * 10 + 5) for i in range(n)], span=(0, 100))).estimate
    assert result.regime == "unknown"
    assert total(result.account) == 100


def test_a_handful_of_records_gives_an_unsure_verdict():
    result = estimate(window([K(i * 10, i * 10 + 1) for i in range(5)], span=(0, 100))).estimate
    assert (result.regime, result.confidence) == ("overhead", 0.5)


SECOND = 1_000_000_000
HOUR = 3600 * SECOND


def labels(*buckets: str) -> Labels:
    count = len(buckets)
    return Labels(
        np.zeros(count, np.int64), (), np.array([BUCKETS.index(b) for b in buckets], np.int8),
        np.ones(count),
    )  # fmt: skip


@pytest.mark.parametrize("hours", [0.001, 2, 3, 24, 24 * 30, 24 * 365 * 50])
def test_kernels_of_any_length_are_charged_to_the_nanosecond(hours):
    span = int(hours * HOUR)
    alone = charge(np.array([5]), np.array([5 + span]), labels("compute"))
    assert alone["compute"] == sum(alone.values()) == span
    starts, ends = np.array([5, 6]), np.array([5 + span, 5 + span])
    shared = charge(starts, ends, labels("compute", "memory"))
    assert sum(shared.values()) == span
    assert shared["memory"] == pytest.approx(span / 2, abs=2, rel=1e-15)
