"""The shipped demos: half a minute or more of real runs, each with the verdict and the advice planted in it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import pytest

from brrrtop.advisories.steady import APPEARS_AFTER
from brrrtop.cli.commands import replay
from brrrtop.cli.commands import replay as replay_verb
from brrrtop.cli.commands.replay import scenarios
from brrrtop.cli.files import FromFirstActivity, open_job, read
from brrrtop.cli.options import Options
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.replay import Replay
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source
from brrrtop.text import phrases
from brrrtop.text.headline import symptom
from brrrtop.tui.widgets.time_spent import long_phases
from collectors.protocol.frames import Kind

SETTLING_S = 5.0
"""And windows enough for advice that one is not enough for: bursts are up to 11 s apart."""


WRONG = frozenset(
    "channels-last dataloader-stall enable-tf32-or-amp flash-attention fuse-pointwise fused-optimizer "
    "launch-bound-compile pin-memory sync-point tensor-core-alignment".split()
)
"""Advice that is wrong of a demo, unless it is planted there or true as well."""


@dataclass(frozen=True)
class Truth:
    """What is planted in the script that was recorded; advice in words."""

    regime: str
    cause: str | None
    """Of overhead. A host that stops for values launches late for longer than it is stopped."""
    advice: str
    as_well: str
    most: float = 1.0
    """The largest share that any advice may promise."""

    @property
    def wrong(self) -> frozenset[str]:
        return WRONG - {*self.advice.split(), *self.as_well.split()}


TRUTHS = {
    "fp32-convolutions": Truth(
        "compute",
        None,
        "enable-tf32-or-amp channels-last",
        "fuse-pointwise fused-optimizer tensor-core-alignment",
    ),
    "healthy": Truth("compute", None, "", "fuse-pointwise", most=0.2),
    "imagenet": Truth("overhead", "input", "dataloader-stall", "fused-optimizer sync-point"),
    "input-bound": Truth(
        "overhead", "input", "dataloader-stall", "fused-optimizer pin-memory sync-point"
    ),
    "launch-bound": Truth(
        "overhead", "launch", "launch-bound-compile fused-optimizer", "fuse-pointwise"
    ),
    "memory-bound": Truth("memory", None, "fuse-pointwise", "fused-optimizer launch-bound-compile"),
    "plain-attention": Truth("memory", None, "flash-attention", "fuse-pointwise fused-optimizer"),
    "sync-bound": Truth(
        "overhead", "launch", "sync-point", "fuse-pointwise fused-optimizer launch-bound-compile"
    ),
    "unpinned-copies": Truth(
        "overhead",
        "exposed_copy",
        "pin-memory",
        "dataloader-stall enable-tf32-or-amp fused-optimizer sync-point",
    ),
}
NAMES = sorted(TRUTHS)
OF_RANKS = {"straggler"}
"""Of a job: a file a rank."""
CHANGES = {"phases"}
"""Of a run that has one verdict after the other."""


def watched(path: Path, interval_s: float = 1.0) -> Iterator[tuple[float, Snapshot]]:
    """What `brrrtop demo` shows from where it opens to the end, with the time since it opened."""
    ticks = count()
    source = FromFirstActivity(open_source(str(path)))
    replay = Replay(Session(source, keep_ns=None), clock=lambda: next(ticks) * interval_s)
    replay_verb.to_first_verdict(replay, replay_verb.DEMO_STEPS)
    opened_s = None
    try:
        while True:
            snapshot = replay.advance()
            opened_s = snapshot.now_ns / 1e9 if opened_s is None else opened_s
            yield snapshot.now_ns / 1e9 - opened_s, snapshot
            if (snapshot.progress or 0.0) >= 1.0:
                return
    finally:
        replay.close()


def check(truth: Truth, snapshot: Snapshot, settled: bool) -> None:
    """Fails where the verdict, or once `settled` the advice, is not what was planted."""
    estimate = snapshot.estimate
    assert estimate.regime.value == truth.regime
    assert estimate.cause == truth.cause
    if estimate.steps.count:
        assert estimate.steps.count == pytest.approx(estimate.steps_covered, abs=1)
    given = {one.kind: one.confidence for one in snapshot.advisories}
    assert not given.keys() & truth.wrong
    if settled:
        assert given.keys() >= set(truth.advice.split())
    assert all((one.saves_at_most or 0) <= truth.most for one in snapshot.advisories)


def test_every_shipped_demo_has_a_known_truth():
    assert scenarios().keys() == TRUTHS.keys() | OF_RANKS | CHANGES


def test_the_list_of_demos_says_what_each_shows(capsys):
    assert replay.demo(Options(list=True)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(scenarios())
    assert all(len(line.split()) > 3 and len(line) <= 80 for line in lines)


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_of_a_demo_gets_the_verdict_and_the_advice_that_are_planted(name):
    check(TRUTHS[name], read(str(scenarios()[name]), Options()), settled=True)


@pytest.mark.parametrize("name", NAMES)
def test_whoever_watches_a_demo_never_sees_another_verdict(name):
    seen, windows = 0, set()
    for at_s, snapshot in watched(scenarios()[name]):
        windows.add(snapshot.estimate.span.t1_ns)
        settled = at_s > SETTLING_S and len(windows) >= APPEARS_AFTER
        check(TRUTHS[name], snapshot, settled)
        seen += settled
    assert seen >= 5


def test_a_run_that_changes_is_shown_as_it_changes():
    shown = [snapshot for _, snapshot in watched(scenarios()["phases"])]
    causes = [(one.estimate.regime.value, one.estimate.cause) for one in shown]
    assert causes.index(("overhead", "input")) < causes.index(("memory", None))
    assert causes[-1] == ("memory", None)
    firsts = [one.advisories[0].kind for one in shown]
    assert firsts[0] == "dataloader-stall" and firsts[-1] == "channels-last"
    kinds = {phase.kind.value for phase in shown[-1].run.phases}
    assert kinds >= {"train", "evaluation", "saving"}
    drawn = [kind for kind, *_ in long_phases(shown[-1].run, 1_500_000_000)]
    assert drawn == ["train", "evaluation", "train"], "the second loop logs for 50 ms every 1.3 s"
    given = {advisory.kind for one in shown for advisory in one.advisories}
    assert not given & {"fused-optimizer", "pin-memory", "sync-point"}


def test_the_straggler_names_the_line_at_which_its_rank_sleeps_wherever_one_looks(capsys):
    assert replay.demo(Options(scenario="straggler", once=True, json=True)) == 0
    waited = json.loads(capsys.readouterr().out)["peers_waited_for"]
    assert (waited["rank"], waited["cause"]) == (1, "host")
    assert waited["place"] == "benchmarks/ranks_trainer.py:98, time.sleep(SLOW_S)"
    assert waited["late_by_ms"] == pytest.approx(24, abs=4), "with what tracing takes it was 29.7"
    ticks = count()
    files = sorted(map(str, scenarios()["straggler"].iterdir()))
    driver = open_job(files, Options(), loop=True, clock=lambda: float(next(ticks)))
    replay_verb.to_first_verdict(driver, after=replay_verb.DEMO_OF_RANKS_AFTER)
    shown = driver.advance()
    assert shown.advisories[0].suggests.startswith("remove what only rank 1 does there")
    assert phrases.badge(shown) == "ONE RANK IS LATE", "not what the late rank's own GPU waits for"
    assert symptom(shown) == f"Rank 0 waits for rank 1: its main thread is at {waited['place']}"
    try:
        for _ in range(25):
            job = driver.advance().job
            assert job.waited_for.rank == 1
        assert job.waited_for.place == waited["place"]
    finally:
        driver.close()


def test_a_demo_that_starts_over_never_shows_an_empty_screen():
    ticks = count()
    source = FromFirstActivity(open_source(str(scenarios()["plain-attention"])))
    replay = Replay(
        Session(source, keep_ns=None), loop=True, clock=lambda: next(ticks) * 2.5, speed=1.0
    )
    try:
        replay_verb.to_first_verdict(replay, replay_verb.DEMO_STEPS)
        shown = [replay.advance() for _ in range(28)]
    finally:
        replay.close()
    places = [snapshot.progress or 0.0 for snapshot in shown]
    assert sum(now < before for before, now in pairwise(places)) >= 2, "it started over"
    assert all(snapshot.estimate is not None for snapshot in shown)


def test_demos_are_small_and_tell_nothing_of_the_machine_they_are_from():
    paths = [
        file for path in scenarios().values()
        for file in ([path] if path.is_file() else sorted(path.iterdir()))
    ]  # fmt: skip
    assert len(paths) == len(TRUTHS) + 2 * len(OF_RANKS) + len(CHANGES)
    assert sum(path.stat().st_size for path in paths) < 3 << 20
    for path in paths:
        source = open_source(str(path))
        reported = [text for frame in source.frames() for text in _texts(frame.body)]
        source.close()
        assert len(reported) > 100
        places = [text for text in reported if re.search(r"(?:^|[\s'\"=(:])/(?!s\b)[A-Za-z]", text)]
        assert set(places) <= {"/usr/local/cuda"}, path.name
        hosts = {
            frame.body.get("hostname") for frame in open_source(str(path)).frames()
            if frame.kind == Kind.HELLO
        }  # fmt: skip
        assert hosts == {"gpu-host"}, path.name


def _texts(body: object) -> Iterator[str]:
    if isinstance(body, str):
        yield body
    elif isinstance(body, dict):
        for value in body.values():
            yield from _texts(value)
    elif isinstance(body, list):
        for value in body:
            yield from _texts(value)


def test_a_demo_trains_evaluates_and_saves_and_its_history_tells_them_apart():
    run = read(str(scenarios()["imagenet"]), Options()).run
    assert run is not None
    assert {one.kind for one in run.phases} >= {"train", "evaluation", "saving"}
    assert len({one.phase for one in run.stretches}) >= 3 and len(run.stretches) >= 6


def test_only_recordings_are_scenarios():
    assert set(scenarios()) == set(replay.WHAT)
