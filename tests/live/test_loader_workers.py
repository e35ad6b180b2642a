"""The loader workers of a trainer are its children that run what it runs; their states make a word."""

import os
import time

import pytest

from collectors.process import load as loader_workers
from collectors.process.load import LEAST_LOOKS, YOUNG_S, HostLoad, LoaderWorkers
from collectors.vocabulary import Metric
from tests.attach.children import SLEEPING, child, python


def children_of(pid):
    return LoaderWorkers(pid)._children()


FORKED = """
import os, time
for _ in range(3):
    if os.fork() == 0:
        while True: {does}
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("does", "words", "busy", "cores"),
    [
        ("time.sleep(60)", "loader workers asleep", (0.0, 0.4), (0.0, 0.1)),
        ("sum(range(10**6))", "busy on their CPUs", (0.6, 1.0), (0.01, 3.2)),
    ],
)
def test_forked_workers_are_seen_at_what_they_do(does, words, busy, cores):
    with python(FORKED.format(does=does)) as one:
        while [loader_workers._age_s(pid) > YOUNG_S for pid in children_of(one.pid)] != [True] * 3:
            time.sleep(0.01)
        workers = LoaderWorkers(one.pid)
        for number in range(LEAST_LOOKS):
            assert workers.message is None, number
            workers.sample()
            time.sleep(0.2)
        workers.sample()
        says, figures = workers.message, workers.figures
        for pid in children_of(one.pid):
            os.kill(pid, 9)
    assert says is not None and words in says
    assert figures[Metric.LOADER_WORKERS] == 3
    assert busy[0] <= figures[Metric.LOADER_BUSY_SHARE] <= busy[1]
    assert cores[0] <= figures[Metric.LOADER_CPU_SHARE] <= cores[1]


MANY_THREADS = """
import os, threading, time
for _ in range(20):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
def fork():
    if os.fork() == 0: time.sleep(600)
    time.sleep(600)
threading.Thread(target=fork).start()
"""


def test_between_looks_at_all_threads_those_with_children_are_asked(monkeypatch):
    with python(MANY_THREADS) as one:
        while len(children_of(one.pid)) != 1:
            time.sleep(0.01)
        asked, read = [], loader_workers.proc.read
        monkeypatch.setattr(
            loader_workers.proc, "read", lambda path: asked.append(path) or read(path)
        )
        workers = LoaderWorkers(one.pid)
        seen = [(len(workers._children()), len(asked), asked.clear())[:2] for _ in range(5)]
        for pid in children_of(one.pid):
            os.kill(pid, 9)
    assert seen == [(1, 22), (1, 2), (1, 2), (1, 2), (1, 22)]


def test_workers_that_ended_are_a_count_of_none_and_have_no_cpu_time():
    with python(FORKED.format(does="time.sleep(60)")) as one:
        workers = LoaderWorkers(one.pid)
        while workers.figures.get(Metric.LOADER_WORKERS) != 3:
            workers.sample()
            time.sleep(0.01)
        for pid in children_of(one.pid):
            os.kill(pid, 9)
        one.process.kill()
        one.process.wait(10)
        workers.sample()
        assert workers.figures[Metric.LOADER_WORKERS] == 0
        assert Metric.LOADER_CPU_SHARE not in workers.figures


ABOUT_TO_RUN_ANOTHER = """
import os, time
if os.fork() == 0:
    while not os.path.exists({goes!r}): time.sleep(0.01)
    os.execvp("sleep", ["sleep", "60"])
time.sleep(600)
"""


def test_a_trainer_without_workers_says_nothing_and_other_children_are_none(tmp_path, monkeypatch):
    """Not even before such a child has become another program."""
    goes = tmp_path / "goes"
    with python(ABOUT_TO_RUN_ANOTHER.format(goes=str(goes))) as one:
        while not children_of(one.pid):
            time.sleep(0.01)
        (other,) = children_of(one.pid)
        workers = LoaderWorkers(one.pid)
        with monkeypatch.context() as patch:
            patch.setattr(loader_workers, "_age_s", lambda pid: 0.01)
            for _ in range(LEAST_LOOKS + 1):
                workers.sample()
        assert workers.message is None and workers.figures == {}
        goes.touch()
        while "sleep 60" not in loader_workers._cmdline(other):
            time.sleep(0.01)
        monkeypatch.setattr(loader_workers, "_age_s", lambda pid: 10.0)
        for _ in range(LEAST_LOOKS + 1):
            workers.sample()
        assert workers.message is None and workers.figures == {}
        os.kill(other, 9)


def test_disk_wait_is_told_from_states(monkeypatch):
    states = iter("DDSDDRDDD")
    monkeypatch.setattr(LoaderWorkers, "_children", lambda _: [7, 8, 9])
    monkeypatch.setattr(loader_workers, "_cmdline", lambda pid: "python train.py")
    monkeypatch.setattr(loader_workers, "_age_s", lambda pid: 10.0)
    monkeypatch.setattr(loader_workers.proc, "stat", lambda pid: [next(states), *"0" * 20])
    workers = LoaderWorkers(1)
    for _ in range(LEAST_LOOKS):
        workers.sample()
    assert workers.message == "loader workers in disk wait"
    assert workers.figures[Metric.LOADER_DISK_SHARE] == pytest.approx(7 / 9)
    assert workers.figures[Metric.LOADER_BUSY_SHARE] == pytest.approx(1 / 9)


def test_a_process_that_is_gone_has_no_workers():
    with child(["sleep", "0"]) as one:
        one.process.wait(10)
        load = HostLoad(one.pid)
        assert load.status == {"workers": None}
        load.close()
    with python(SLEEPING) as two:
        assert HostLoad(two.pid).status == {"workers": None}
    assert HostLoad(None).status == {}
