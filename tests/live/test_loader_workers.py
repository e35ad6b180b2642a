"""The loader workers of a trainer are its children that run what it runs; their states make a word."""

from __future__ import annotations

import os
import time

import pytest

from collectors.process import loader_workers
from collectors.process.load import HostLoad
from collectors.process.loader_workers import LEAST_LOOKS, LoaderWorkers
from tests.attach.children import SLEEPING, child, python

FORKED = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        while True: {does}
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("does", "words"),
    [("time.sleep(60)", "loader workers asleep"), ("sum(range(10**6))", "busy on their CPUs")],
)
def test_forked_workers_are_seen_at_what_they_do(does: str, words: str) -> None:
    with python(FORKED.format(does=does)) as one:
        workers = LoaderWorkers(one.pid)
        for number in range(LEAST_LOOKS):
            assert workers.says is None, number
            workers.sample()
            time.sleep(0.05)
        says = workers.says
        for pid in loader_workers._children(one.pid):
            os.kill(pid, 9)
    assert says is not None and words in says


def test_a_trainer_without_workers_says_nothing_and_other_children_are_none() -> None:
    with python("import subprocess\nsubprocess.run(['sleep', '60'])") as one:
        workers = LoaderWorkers(one.pid)
        for _ in range(LEAST_LOOKS + 1):
            workers.sample()
        assert workers.says is None
        for pid in loader_workers._children(one.pid):
            os.kill(pid, 9)


def test_disk_wait_is_told_from_states(monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter("DDSDDRDDD")
    monkeypatch.setattr(loader_workers, "_children", lambda pid: [7, 8, 9])
    monkeypatch.setattr(loader_workers, "_cmdline", lambda pid: "python train.py")
    monkeypatch.setattr(loader_workers, "_state", lambda pid: next(states))
    workers = LoaderWorkers(1)
    for _ in range(LEAST_LOOKS):
        workers.sample()
    assert workers.says == "loader workers in disk wait"


def test_a_process_that_is_gone_has_no_workers() -> None:
    with child(["sleep", "0"]) as one:
        one.process.wait(10)
        load = HostLoad(one.pid)
        assert load.status == {"workers": None}
        load.close()
    with python(SLEEPING) as two:
        assert HostLoad(two.pid).status == {"workers": None}
    assert HostLoad(None).status == {}
