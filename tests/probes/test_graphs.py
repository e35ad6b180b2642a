"""The trainer's graphs are found, heard of before they are captured, and doubted."""

import sys
import types

import pytest

from collectors.agent.probes.neighbours import Graphs, Neighbour
from collectors.agent.probes.probe import FaultGuard


class GraphLibrary:
    """Stands in for the library: keeps what it was told."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.captures: list[int] = []

    def graphs(self, may_exist: int) -> None:
        self.answers.append(may_exist)

    def capture(self, begins: int) -> None:
        self.captures.append(begins)


def trainer_with(monkeypatch, segments: object, awake: bool = True) -> type:
    """A torch.cuda that has these segments; returns its CUDAGraph class."""

    class CUDAGraph:
        def capture_begin(self, *pool: object) -> str:
            return "captured"

        def capture_end(self) -> None:
            pass

    def snapshot() -> object:
        if isinstance(segments, Exception):
            raise segments
        return segments

    cuda = types.ModuleType("torch.cuda")
    cuda.is_initialized = lambda: awake  # type: ignore[attr-defined]
    cuda.memory_snapshot = snapshot  # type: ignore[attr-defined]
    graphs = types.ModuleType("torch.cuda.graphs")
    graphs.CUDAGraph = CUDAGraph  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    monkeypatch.setitem(sys.modules, "torch.cuda.graphs", graphs)
    return CUDAGraph


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([{"segment_pool_id": (0, 0)}, {}], [0]),
        ([{"segment_pool_id": (0, 0)}, {"segment_pool_id": (0, 1)}], [1]),
        ([], [0]),
    ],
)
def test_a_pool_of_its_own_is_a_graph(monkeypatch, segments, message):
    trainer_with(monkeypatch, segments)
    graph_library = GraphLibrary()
    probe = Graphs(graph_library, FaultGuard())  # type: ignore[arg-type]
    probe.install()
    probe.wake(0)
    probe.wake(1)
    assert graph_library.answers == message, "asked once"
    probe.remove()
    probe.install()
    probe.wake(2)
    assert graph_library.answers == message * 2, "nobody listened meanwhile"


def test_where_it_cannot_be_seen_nothing_is_promised(monkeypatch):
    trainer_with(monkeypatch, RuntimeError("no"))
    received, fence = GraphLibrary(), FaultGuard()
    probe = Graphs(received, fence)  # type: ignore[arg-type]
    probe.install()
    fence.guard(probe.name, probe.wake)(0)
    assert received.answers == []


def test_a_capture_is_heard_of_before_it_begins(monkeypatch):
    graph_class = trainer_with(monkeypatch, [])
    graph_library = GraphLibrary()
    probe = Graphs(graph_library, FaultGuard())  # type: ignore[arg-type]
    original = vars(graph_class)["capture_begin"]
    probe.capturing = lambda: graph_library.captures.append(2)
    probe.install()
    assert graph_class().capture_begin() == "captured"
    assert (graph_library.answers, graph_library.captures) == ([1], [2, 1])
    probe.capturing = None
    graph_library.captures.clear()
    graph_class().capture_end()
    assert graph_library.captures == [0]
    probe.remove()
    assert graph_library.captures == [0], "it was over"
    probe.install()
    graph_class().capture_begin()
    probe.remove()
    assert graph_library.captures == [0, 1, 0], "nobody would hear of its end any more"
    assert vars(graph_class)["capture_begin"] is original


def test_before_torch_is_there_no_profiler_is_looked_for(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch.autograd.profiler", raising=False)
    probe = Neighbour(GraphLibrary(), FaultGuard())  # type: ignore[arg-type]
    probe.install()
    assert not probe.present


def test_without_cuda_nothing_is_said(monkeypatch):
    trainer_with(monkeypatch, [], awake=False)
    graph_library = GraphLibrary()
    probe = Graphs(graph_library, FaultGuard())  # type: ignore[arg-type]
    probe.install()
    probe.wake(0)
    assert graph_library.answers == []


def profilers(monkeypatch) -> types.ModuleType:
    """A torch whose profiler does nothing."""

    class profile:
        kineto_results: object = None
        _prepare_trace, _start_trace, __exit__ = (
            lambda self: None,
            lambda self: None,
            lambda self: None,
        )

    module = types.ModuleType("torch.autograd.profiler")
    vars(module).update(profile=profile, _is_profiler_enabled=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_a_profiler_has_cupti_until_it_ends_watched_or_not(monkeypatch):
    module, heard = profilers(monkeypatch), list[str]()
    library = types.SimpleNamespace(give_way=heard.append, resume=lambda: heard.append("over"))
    probe = Neighbour(library, FaultGuard())  # type: ignore[arg-type]
    probe.arriving = lambda: heard.append("arriving")
    probe.install()
    one, begun = module.profile(), ["arriving", "torch.profiler"]
    one._prepare_trace()
    one._start_trace()
    probe.remove()
    probe.install()
    probe.wake(0)
    assert heard == [*begun, "arriving"] and probe.present
    probe.remove()
    one.kineto_results = "it ended meanwhile"
    probe.install()
    assert heard[3:] == ["over"] and not probe.present
    one._start_trace()
    one.__exit__()
    one._prepare_trace()
    del one
    probe.wake(1)
    assert heard[4:] == [*begun, "over"] * 2


def test_a_profiler_that_ran_before_us_is_waited_for(monkeypatch):
    module, heard = profilers(monkeypatch), list[str]()
    library = types.SimpleNamespace(give_way=heard.append, resume=lambda: heard.append("over"))
    probe = Neighbour(library, FaultGuard())  # type: ignore[arg-type]
    module._is_profiler_enabled = True  # type: ignore[attr-defined]
    probe.install()
    probe.wake(0)
    assert heard == ["torch.profiler"]
    module._is_profiler_enabled = False  # type: ignore[attr-defined]
    probe.wake(1)
    assert heard == ["torch.profiler", "over"]
