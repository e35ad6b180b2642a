"""Advice is priced for the rank that somebody sees: then, at once, and for no other."""

from collections.abc import Iterator
from typing import Any

import pytest

from brrrtop.advisories.advise import Advice, advise
from brrrtop.analysis.estimate import Analysis
from brrrtop.model.snapshot import Snapshot
from brrrtop.session import verdict
from tests.live.test_live_job import MS, Bench

FIRST, LATE, OTHER = "1", "2", "3"


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Three ranks, the second of which is late."""
    bench = Bench(0, 8 * MS, 0)
    yield bench
    bench.job.close()


@pytest.fixture
def priced(monkeypatch) -> list[int]:
    """The ranks that advice was made for, once for each time."""
    ranks: list[int] = []

    def counted(judged: Analysis, *others: Any, **more: Any) -> Advice:
        ranks.append(judged.facts.window.hello["rank"])
        return advise(judged, *others, **more)

    monkeypatch.setattr(verdict, "advise", counted)
    return ranks


def judged(bench: Bench) -> list[int]:
    """How often each rank was."""
    sessions = [one.session for one in bench.job.members]
    return [one.verdicts for one in sessions if one is not None]


def kinds(shown: Snapshot) -> set[str]:
    return {one.kind for one in shown.advisories}


def test_only_the_rank_that_is_shown_is_priced_at_a_verdict_or_another_run(bench, priced):
    bench.watch(8)
    bench.job.select_rank(LATE)
    bench.watch(1)
    before, _ = judged(bench), priced.clear()
    shown = bench.watch(40)
    more = [now - then for now, then in zip(judged(bench), before, strict=True)]
    assert min(more) > 0
    assert set(priced) == {1} and more[1] <= len(priced) < 2 * more[1]
    assert all(row.estimate is not None for row in shown.job.ranks if row.rank != 3)
    others = [one.estimate for key, one in bench.job.snapshots.items() if key != LATE]
    assert [one and one.kernels for one in others] == [(), ()]


def test_the_first_picture_of_a_rank_that_is_opened_has_its_advice(bench, priced):
    assert "straggler" in kinds(bench.watch(12))
    priced.clear()
    bench.job.select_rank(OTHER)
    shown = bench.job.advance()
    assert priced == [2] and shown.source.rank == 2
    session = bench.job.session
    own = advise(session.analysis, session._run)
    assert {one.kind for one in own.given} and {one.edit for one in own.whatif}
    assert kinds(shown) >= {one.kind for one in own.given} - {"exposed-communication"}
    assert {one.edit for one in shown.whatif} >= {one.edit for one in own.whatif} - {
        "overlap-communication"
    }
    assert shown.picture is not None and shown.estimate is not None
    acts, kernels = session.analysis.facts.window.activities, shown.estimate.kernels
    assert sum(row.total_ns for row in kernels) == (acts.ends_ns - acts.starts_ns).sum()
    assert shown.estimate.neighbours.keys() <= {row.name for row in kernels}
    assert "baseline" in bench.job.mark_baseline()
    assert shown.baseline is None and session.baseline is not None
    assert {one.kind for one in session.baseline.advisories} == {one.kind for one in own.given}


def test_advice_of_when_a_rank_was_last_seen_is_not_shown_as_that_of_now(bench):
    bench.job.select_rank(FIRST)
    bench.watch(8)
    session = bench.job.session
    assert "exposed-communication" in kinds(session.in_full(bench.watch(0.25)))
    bench.job.select_rank(OTHER)
    bench.agents[0]._late_ns = 12 * MS
    bench.watch(60)
    bench.job.select_rank(FIRST)
    shown = bench.job.advance()
    assert shown.source.rank == 0 and session.analysis is not None
    own = kinds(session.in_full(shown))
    assert own == {one.kind for one in advise(session.analysis, session._run).given}
    assert own and "exposed-communication" not in own
