"""Who waits for whom: eight real DLRM ranks, and planted stragglers on two H200s.

`dlrm` is cut from facebookresearch/param (et_replay/tests/inputs/dlrm_kineto.tar.gz, MIT licence). The others were
recorded with torch.profiler: DDP and FSDP of 8 layers of 4096x4096 on two H200s, balanced, with `time.sleep(0.024)` in
every step of rank 1, and with three times the batch on rank 1. `ddp-hidden` are recordings of a live
language model on two H200s whose rank 1 sleeps as long: its host is far ahead, so that the GPU idles for 11 ms of it,
and rank 0 waits beside its own backward pass, which that slows down. `ddp-part` is the first burst of `benchmarks/ranks.py`
on two H200s, whose rank 0 sleeps for 64 ms: entering held the other up for so long that one backward pass is in both. `fsdp-shared` are two bursts
of its FSDP job, whose rank 1 sleeps, beside another job on both GPUs: bursts begin up to 400 ms apart, and the ends of half of
the collectives differ by a time slice. `ddp4-…` are two of four ranks on H100s, cut to a step or two of each burst: rank 1
has a slow loader, which gets ahead while a burst holds the rank; another process computes on its GPU, whose clock falls; or
it keeps pace, but for steps that tracing slows, and it more than others.
"""

import pytest
from msgspec.structs import replace

from brrrtop.analysis.ranks.job import NOT_TOGETHER, PART_OF_A_STEP, AlignedRanks
from brrrtop.analysis.ranks.lateness import most_late_ns
from brrrtop.analysis.ranks.own_line import own_line
from brrrtop.model.ranks import Parallelism
from brrrtop.session.job import job_of
from brrrtop.text import causes as words
from brrrtop.views.text import job_lines
from collectors.vocabulary import CallClass, MarkClass
from tests.analysis.build import C, K, M, window
from tests.ranks.reads import job, moved, row, views

JOBS = ("dlrm", "ddp", "ddp-sleep", "ddp-work")
BALANCED_STEP_NS = 11.15e6
"""Of `ddp`, which `ddp-sleep` is without the sleep."""


def test_eight_dlrm_ranks_wait_for_one_that_only_began_late():
    judged = job("dlrm")
    assert judged.matched == 8
    assert judged.transfer_ns == 217_000
    one = row(judged, 1)
    assert (one.wait_ns, one.collective_ns) == (11_119_000, 11_336_000)
    waited = judged.waited_for
    assert (waited.rank, waited.last_in, waited.of) == (7, 5, 8)
    assert (waited.cause, waited.is_slow) == ("began-late", False)
    assert waited.late_ns == pytest.approx(7.5e6, abs=0.05e6)
    assert not judged.advisories
    assert Parallelism.EXCHANGE in judged.parallelism


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("ddp-sleep", "host"),
        ("ddp-work", "more-work"),
        ("ddp-hidden", "host"),
        ("fsdp-shared", "host"),
        ("ddp4-loader", "input"),
        ("ddp4-neighbour", "other_process"),
    ],
)
def test_a_planted_straggler_is_named_with_its_cause(name, cause):
    judged = job(name)
    waited = judged.waited_for
    assert waited is not None and waited.is_slow
    assert (waited.rank, waited.cause) == (1, cause)
    assert judged.ranks[0].rank == 1  # the odd one on top
    [advice] = judged.advisories
    assert advice.kind == "straggler"
    assert advice.says.startswith("rank 1 is ") and " late each step: " in advice.says


def test_a_line_that_only_the_late_rank_is_at_is_named():
    judged = job("ddp-hidden").waited_for
    assert judged.place == "benchmarks/ranks_trainer.py:98, time.sleep(SLOW_S)"
    windows = [view.window for view in views("ddp-hidden")]
    late = {"late_ns": 10e6, "step_ns": 70e6}
    assert own_line(windows, 1, **late) is not None
    assert own_line(windows, 0, **late) is None  # it does what the other one does too
    assert own_line([windows[1], windows[1]], 1, **late) is None
    assert own_line(windows, 1, late_ns=60e6, step_ns=70e6) is None  # too short to be why


def test_a_late_rank_costs_no_more_than_its_peers_hosts_leave_it():
    """Recorded of FSDP on two H100s: hosts of 138 and 152 ms a step, the first far ahead, its GPU in collectives all along."""
    marks = [M(at, at + 10_000_000, MarkClass.STEP) for at in (0, 10_000_000)]
    peer = window([K(0, 20_000_000)], [C(1_000_000, 5_000_000, kind=CallClass.SYNC)], marks)
    given = AlignedRanks(
        (), (peer, peer), (), (), None, (), (), 2.0, 12e6, False, 24_000_000, *[None] * 3
    )  # type: ignore[arg-type]
    assert most_late_ns(given, 1) == 12e6 - 8e6
    assert most_late_ns(replace(given, in_bursts=True), 1) == float("inf")


def test_of_a_part_of_a_step_no_cause_is_told():
    """The other rank did its backward pass before the first collective that both were recorded in."""
    judged = job("ddp-part")
    assert judged.matched == 14
    assert judged.waited_for is None and judged.together_ns is None
    assert PART_OF_A_STEP in judged.notes


def test_a_sleep_of_24_ms_makes_a_rank_24_ms_late():
    judged = job("ddp-sleep")
    assert judged.waited_for.late_ns == pytest.approx(24e6, rel=0.05)
    [row] = judged.whatif
    assert row.edit == "peers-in-step"
    assert row.present_ns * (1 - row.saves_high) < BALANCED_STEP_NS < row.present_ns
    assert row.present_ns * (1 - row.saves_low) > BALANCED_STEP_NS


def test_a_loader_that_is_slow_between_bursts_is_as_late_as_the_run_says():
    judged = job("ddp4-loader")
    bursts = judged.ranks[0].excess_by_cause_ns["idle_input"]
    assert judged.waited_for.late_ns == pytest.approx(25e6, rel=0.1) and bursts < 10e6
    [row] = judged.whatif
    assert row.present_ns == pytest.approx(68.07e6, rel=0.01)  # its own clock's, not the traced


def test_a_rank_that_only_traced_steps_slow_down_is_not_late():
    judged = job("ddp4-balanced")
    assert judged.together_ns / judged.steps > 1.05 * judged.step_ns
    assert row(judged, 1).excess_by_cause_ns["idle_launch"] > 3e6
    assert row(judged, 1).late_ns == 0 and judged.waited_for is None


def test_steps_that_entering_stretched_do_not_make_a_rank_late():
    some = views("ddp4-balanced")
    estimates = [one.snapshot.estimate for one in some]
    longer = [
        replace(e, steps=replace(e.steps, step_ns=e.steps.step_ns * 6 // 5)) for e in estimates
    ]
    entered = [
        replace(one, snapshot=replace(one.snapshot, estimate=e))
        for one, e in zip(some, longer, strict=True)
    ]
    judged, whole = job_of(entered), job("ddp4-balanced")
    assert judged.step_ns == whole.step_ns and judged.waited_for is None


def test_a_balanced_job_waits_for_nobody():
    judged = job("ddp")
    assert judged.together_ns
    assert judged.waited_for is None and not judged.advisories
    assert judged.parallelism == (Parallelism.DDP,)
    [row] = judged.whatif
    assert -0.02 < row.saves < 0.03


@pytest.mark.parametrize("name", JOBS)
def test_stays_are_transfer_and_wait_and_lateness_is_what_the_accounts_differ_by(name):
    judged = job(name)
    for one in judged.ranks:
        assert one.transfer_ns + one.wait_ns == one.collective_ns
        assert sum(one.waits_for.values()) == one.wait_ns
        assert one.late_ns is not None and judged.together_ns
        if len(judged.ranks) == 2:  # medians of eight do not add up
            more = max(sum(one.excess_by_cause_ns.values()), 0.0)
            assert one.late_ns == pytest.approx(more, abs=0.01 * judged.together_ns)
    for collective in judged.collectives:
        assert collective.link_share is None or 0 < collective.link_share < 1


@pytest.mark.parametrize("by_ns", [37_000, -2_500_000, 3_700_000_000, -86_400_000_000_000])
def test_a_rank_on_another_clock_is_aligned(by_ns):
    one, two = views("ddp-sleep")
    assert two.window is not None
    judged = job_of([one, replace(two, window=moved(two.window, by_ns))])
    assert judged.matched == job("ddp-sleep").matched
    assert judged.waited_for is not None and judged.waited_for.rank == 1
    assert judged.waited_for.late_ns == pytest.approx(job("ddp-sleep").waited_for.late_ns, rel=0.01)  # type: ignore[union-attr]
    offset = row(judged, 1).clock_offset_ns
    assert offset is not None and abs(offset + by_ns) < 100_000


def test_traces_a_day_apart_are_called_so():
    one, two = views("ddp-sleep")
    assert two.window is not None
    later = replace(two, window=moved(two.window, 86_400_000_000_000))
    [note] = job_of([one, later]).notes
    assert note.startswith("rank 1 was recorded 86400 s after the others by its clock")
    near = replace(two, window=moved(two.window, 3_700_000_000))
    assert not job_of([one, near]).notes


def test_recordings_of_one_host_at_different_times_are_not_compared():
    one, two = views("ddp-sleep")
    assert one.window is not None and two.window is not None
    hello = {"hostname": "node7"}
    judged = job_of(
        [
            replace(one, window=replace(one.window, hello=hello)),
            replace(two, window=replace(moved(two.window, 1_000_000_000), hello=hello)),
        ]
    )
    assert judged.matched == 0 and judged.waited_for is None
    assert NOT_TOGETHER in judged.notes


def test_a_rank_that_cannot_be_read_has_a_row_that_says_why():
    one, two = views("ddp-sleep")
    judged = job_of([one, replace(two, snapshot=None, window=None, why="it exited")])
    assert row(judged, 1).why == "it exited"
    assert row(judged, 0).estimate is not None
    assert judged.waited_for is None


@pytest.mark.parametrize(
    ("uuids", "notes"),
    [
        (("GPU-a", "GPU-a"), ["ranks 0, 1 share one GPU"]),
        (("GPU-a", "GPU-b"), []),
    ],
)
def test_ranks_that_share_a_gpu_are_called_so(uuids, notes):
    changed = []
    for one, uuid in zip(views("ddp-sleep"), uuids, strict=True):
        assert one.snapshot is not None and one.snapshot.estimate is not None
        estimate = one.snapshot.estimate
        device = replace(estimate.device, uuid=uuid)
        snapshot = replace(one.snapshot, estimate=replace(estimate, device=device))
        changed.append(replace(one, snapshot=snapshot))
    assert list(job_of(changed).notes) == notes


@pytest.mark.parametrize("given", [(0, 1), (0, 1, 2, 3), (0, 2, 4, 5)])
def test_while_ranks_are_missing_nobody_is_late_and_times_are_bounds(given):
    """Rank 7 is the last of all eight; of these, any one that is last is so by chance."""
    some = [view for view in views("dlrm") if view.rank in given]
    judged, whole = job_of(some), job("dlrm")
    assert judged.missing == 8 - len(given)
    assert judged.waited_for is None and not judged.advisories and not judged.whatif
    assert all(one.late_ns is None for one in judged.ranks)
    assert all(one.bus_bytes_per_s is None for one in judged.collectives)
    assert judged.transfer_ns >= whole.transfer_ns
    for one in judged.ranks:
        beside_all = row(whole, one.rank or 0)
        assert one.wait_ns <= beside_all.wait_ns
    missing = ", ".join(str(rank) for rank in range(8) if rank not in given)
    says = words.sentence(judged)
    assert says.startswith(f"{8 - len(given)} of 8 ranks are missing ({missing})")
    report = "\n".join(job_lines(judged))
    assert "at most" in report and "GB/s" not in report


def test_a_rank_that_nothing_was_recorded_of_is_missing_too():
    """Live, one of two may be on another host, or may not be attached to."""
    one, two = views("ddp-sleep")
    judged = job_of([one, replace(two, window=None, snapshot=None, why="no access")])
    assert judged.waited_for is None and not judged.whatif


def test_waits_for_others_are_not_blamed_on_the_late_rank():
    judged = job("fsdp-shared")
    waited = judged.waited_for
    to_it = row(judged, 0).waits_for[waited.rank] / judged.steps
    assert waited.others_wait_ns <= to_it * 1.01
