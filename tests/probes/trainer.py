"""Inside a child process: the agent under its private name, over a library that only remembers."""

import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any

AGENT = Path(__file__).resolve().parents[2] / "collectors" / "agent"


def load_agent() -> None:
    """What the bootstrap does, without its thread."""
    spec = importlib.util.spec_from_file_location(
        "_brrrtop_agent", AGENT / "__init__.py", submodule_search_locations=[str(AGENT)]
    )
    sys.modules["_brrrtop_agent"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


class Recorder:
    """In the place of `Native`. A mark is `(class, start_ns, end_ns, value, name)`."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, int, int, int, str]] = []
        self.packed = b""
        self.steps: list[int] = []
        self.frames: list[tuple[int, dict[str, Any]]] = []
        self.calls: list[str] = []
        self.collections: list[tuple[str, dict[str, Any]]] = []
        self._names: list[str] = [""]

    def mark(self, cls: int, start: int, end: int, value: int, name: int, tid: int) -> None:
        assert tid == threading.get_ident() & 0xFFFFFFFF or cls in (3, 10)
        assert start <= end
        self.marks.append((cls, start, end, value, self._names[name]))

    def step(self, t_ns: int, tid: int) -> None:
        self.steps.append(t_ns)

    def collection(self, phase: str, message: dict[str, Any]) -> None:
        self.collections.append((phase, message))

    def name(self, text: str) -> int:
        if text not in self._names:
            self._names.append(text)
        return self._names.index(text)

    def forget_names(self) -> None:
        """An id kept from before is told by what it says in a mark."""
        self._names = [f"forgotten {number}" for number in range(len(self._names))]

    def frame(self, kind: int, body: Any) -> int:
        self.frames.append((kind, body))
        return 0

    def send_marks(self, records: bytes, count: int) -> int:
        assert len(records) == 40 * count
        self.packed += records
        return 0

    def give_way(self, who: str) -> None:
        self.calls.append("yield")

    def resume(self) -> None:
        self.calls.append("resume")

    def stop(self) -> None:
        self.calls.append("stop")

    def disarm(self) -> None:
        self.calls.append("disarm")

    def of(self, cls: int) -> list[tuple[int, int, int, int, str]]:
        return [mark for mark in self.marks if mark[0] == cls]


def control(*probes: str) -> tuple[Any, Recorder]:
    """A Control over a Recorder, its thread not started: a test wakes it by hand."""
    if "_brrrtop_agent" not in sys.modules:
        load_agent()
    from _brrrtop_agent.entry import Control  # type: ignore[import-not-found]

    native = Recorder()
    made = Control(native, "")
    made.probes = [one for one in made.probes if not probes or one.name in probes]
    return made, native


def watched(control: Any) -> None:
    """Makes this Control the process's agent, as `entry.start` does, so that forks are noticed."""
    from _brrrtop_agent import entry

    entry._control = control
    entry._watch()
