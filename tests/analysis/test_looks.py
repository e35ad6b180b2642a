"""Samples of the training thread outside a burst say where the host is, on a recording of an H200.

`reads.brrr`: a loop that reads each batch with `np.load`, 79 % of the time by its own meter; one
burst of 171 ms, then 41 looks at its main thread in ten seconds.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

from brrrtop.analysis.facts import stack_samples
from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import Estimate
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source
from brrrtop.text import phrases
from brrrtop.views import json_report as report
from brrrtop.views import text as report_text
from tests.recorded import analyzed

READS = Path(__file__).resolve().parents[1] / "recordings" / "host" / "reads.brrr"
LINE = "nb/reader.py:30, rows = np.load(path)"
METER = 0.79


def whole() -> Snapshot:
    return analyzed(READS)


def judged(snapshot: Snapshot) -> Estimate:
    assert snapshot.estimate is not None
    return snapshot.estimate


def stall(snapshot: Snapshot) -> Advisory:
    return next(one for one in snapshot.advisories if one.kind == "host-stall")


def played(parts: int) -> list[Snapshot]:
    source = open_source(READS)
    first, length = source.span.t0_ns, source.span.duration_ns
    session = Session(source)
    snapshots = [session.advance(first + length * i // parts) for i in range(1, parts + 1)]
    source.close()
    return snapshots


def test_file_work_gets_a_part_of_the_idle_time_that_the_loops_own_meter_confirms():
    result = judged(whole())
    low, high = result.stack_samples.io_bounds
    idle = result.account.idle_ns
    away = idle["io"] + idle["host"]
    assert idle["io"] > 0.9 * away
    assert low - 0.05 < METER < high
    assert abs(idle["io"] / result.account.duration_ns - METER) < 0.1


def test_advice_says_where_how_many_looks_and_what_to_do_with_that_line():
    given = stall(whole())
    assert f"in 38 of 41 samples the main thread is at {LINE}; 78% of the time" in given.says
    assert "nothing that was seen" not in given.says
    assert "`rows = np.load(path)`" in given.suggests
    assert given.evidence["line"] == LINE
    assert (given.evidence["looks_at_line"], given.evidence["looks"]) == (38, 41)


def test_reports_call_the_part_of_file_work_an_estimate_and_say_from_how_many():
    snapshot = whole()
    text = " ".join(report_text.to_text(snapshot).split())
    assert "`idle: io` is an estimate: 38 of 41 samples of the main thread within 9.38 s" in text
    looks = report.document(snapshot)["looks"]
    assert (looks["count"], looks["within_window"]) == (41, False)
    assert looks["io_share_low"] < looks["io_share"] < looks["io_share_high"]
    assert looks["lines"][0] == {
        "place": "nb/reader.py:30", "source": "rows = np.load(path)", "count": 38, "reads_as": "io",
    }  # fmt: skip


def test_looks_that_come_after_the_burst_change_its_verdict_and_never_before_they_came():
    causes, counts = [], []
    for snapshot in played(40):
        if snapshot.estimate is not None:
            causes.append(snapshot.estimate.cause)
            counts.append(
                snapshot.estimate.stack_samples.count if snapshot.estimate.stack_samples else 0
            )
    assert causes == sorted(causes), "from host to io, and not back"
    assert {*causes} == {"host", "io"}
    assert counts == sorted(counts) and counts[-1] == 41
    assert all(count >= 12 for cause, count in zip(causes, counts, strict=True) if cause == "io")


@pytest.mark.parametrize("parts", [7, 40])
def test_however_it_is_played_the_end_is_that_of_the_whole_recording(parts):
    last, all_at_once = judged(played(parts)[-1]), judged(whole())
    assert (last.account, last.stack_samples) == (all_at_once.account, all_at_once.stack_samples)
    assert phrases.because(last) == phrases.because(all_at_once)


@pytest.mark.parametrize(
    ("text", "place", "source"),
    [
        ("My Drive/train.py:30 main | x = read(p)", "My Drive/train.py:30", "x = read(p)"),
        ("My Drive/train.py:30 main", "My Drive/train.py:30 main", ""),
        ("a b/train.py:3 <module> > python3.11/ssl.py:9 f", "a b/train.py:3", ""),
        ("nb/train.py:3 f.<locals>.g | a = b | c", "nb/train.py:3", "a = b | c"),
    ],
)
def test_a_place_is_told_whole_in_folders_with_spaces_too(text, place, source):
    assert stack_samples.split_line(text) == (place, source)


def test_a_few_looks_are_told_with_their_number_and_book_nothing():
    early = next(
        s
        for s in played(80)
        if s.estimate and s.estimate.stack_samples and s.estimate.stack_samples.lines
    )
    result = judged(early)
    assert result.stack_samples is not None and result.stack_samples.count < 20
    assert result.cause == "host" and result.account.idle_ns["io"] == 0
    assert (
        f"{result.stack_samples.lines[0].count} of {result.stack_samples.count} samples"
        in phrases.because(result)
    )
    assert "file or network" in phrases.because(result)


def test_a_burst_with_samples_enough_of_its_own_is_not_told_by_others():
    snapshot = whole()
    assert snapshot.run is not None and snapshot.run.samples is not None
    few, many = (replace(snapshot.run.samples, count=n, within=True) for n in (19, 20))
    told = [stack_samples.samples_of(snapshot.run, own) for own in (None, few, many)]
    assert told == [snapshot.run.samples, snapshot.run.samples, many]
