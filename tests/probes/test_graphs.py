"""The trainer's graphs are found, heard of before they are captured, and doubted."""

import sys
import types

import pytest

from collectors.agent.fault_guard import FaultGuard
from collectors.agent.probes.neighbours import Graphs


class GraphLibrary:
    """Stands in for the library: keeps what it was told."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.captures: list[int] = []

    def graphs(self, may_exist: int) -> None:
        self.answers.append(may_exist)

    def capture(self, begins: int) -> None:
        self.captures.append(begins)


def trainer_with(monkeypatch: pytest.MonkeyPatch, segments: object, awake: bool = True) -> type:
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
def test_a_pool_of_its_own_is_a_graph(
    monkeypatch: pytest.MonkeyPatch, segments: object, message: list[int]
) -> None:
    trainer_with(monkeypatch, segments)
    graph_library = GraphLibrary()
    probe = Graphs(graph_library, FaultGuard())  # type: ignore[arg-type]
    probe.install()
    probe.wake(0)
    probe.wake(1)
    assert graph_library.answers == message, "asked once"


def test_where_it_cannot_be_seen_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer_with(monkeypatch, RuntimeError("no"))
    received, fence = GraphLibrary(), FaultGuard()
    probe = Graphs(received, fence)  # type: ignore[arg-type]
    probe.install()
    fence.guard(probe.name, probe.wake)(0)
    assert received.answers == []


def test_a_capture_is_heard_of_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_class = trainer_with(monkeypatch, [])
    graph_library = GraphLibrary()
    probe = Graphs(graph_library, FaultGuard())  # type: ignore[arg-type]
    original = vars(graph_class)["capture_begin"]
    probe.install()
    assert graph_class().capture_begin() == "captured"
    assert (graph_library.answers, graph_library.captures) == ([1], [1])
    graph_class().capture_end()
    assert graph_library.captures == [1, 0]
    graph_class().capture_begin()
    probe.remove()
    assert graph_library.captures == [1, 0, 1, 0], "nobody would hear of its end any more"
    assert vars(graph_class)["capture_begin"] is original


def test_without_cuda_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer_with(monkeypatch, [], awake=False)
    graph_library = GraphLibrary()
    probe = Graphs(graph_library, FaultGuard())  # type: ignore[arg-type]
    probe.install()
    probe.wake(0)
    assert graph_library.answers == []
