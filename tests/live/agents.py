"""An agent that exists only in memory, with a trainer of numbers behind it."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from collectors.errors import PeerGone
from collectors.gpu.feed import SamplerFeed
from collectors.protocol.frames import GAUGE, HEADER, KERNEL, MARK, OBSERVED, Frame, Kind
from collectors.protocol.requests import CONTROL_KIND, Op
from collectors.vocabulary import MarkClass, Metric

SECOND = 1_000_000_000
STEP_NS = 20_000_000
KERNELS_A_STEP = 40


def gauges(t_ns: int, *readings: tuple[Metric, float], device: int = 0) -> Frame:
    """A frame of readings taken at one time."""
    rows = [(t_ns, value, device, int(metric)) for metric, value in readings]
    return Frame(Kind.GAUGES, np.array(rows, GAUGE), t_ns)


class FakeAgent:
    """Answers orders as the real one does, on a clock that the test moves."""

    def __init__(self, now_ns: int, *, pid: int = 4711) -> None:
        self.hello: dict[str, Any] = {
            "wire": 1, "pid": pid, "torch": "2.13", "cuda": "13.0", "cmdline": "train.py",
        }  # fmt: skip
        self.closed = False
        self.orders: list[tuple[Op, int, int]] = []
        self._now_ns = now_ns
        self._stepped_ns = now_ns
        self._out: list[Frame] = [
            Frame(Kind.HELLO, self.hello, now_ns),
            Frame(Kind.NAMES, {1: "ampere_bf16_gemm_128x128", 2: "elementwise_kernel"}, now_ns),
            Frame(Kind.DEVICE, {"device_id": 0, "sm_count": 132, "uuid": "aa-bb"}, now_ns),
        ]
        self._tracing: tuple[int, int] | None = None
        self._leaves = False

    def frames(self) -> list[Frame]:
        frames, self._out = self._out, []
        self.closed |= self._leaves
        return frames

    def send(self, data: bytes) -> None:
        if self.closed:
            raise PeerGone("the agent in the trainer has gone", "attach again")
        size, kind, _, _ = HEADER.unpack_from(data)
        assert (size, kind) == (len(data) - HEADER.size, CONTROL_KIND)
        op, _, a, b = struct.unpack_from("<IIqq", data, HEADER.size)
        self.orders.append((Op(op), a, b))
        self._leaves |= op == Op.DETACH
        if op == Op.BURST:
            self._tracing = (self._now_ns, self._now_ns + (a + 1) * STEP_NS)

    def close(self) -> None:
        self.closed = True

    def count(self, op: Op) -> int:
        """How often an order came."""
        return sum(one[0] is op for one in self.orders)

    def say(self, frame: Frame) -> None:
        """Something the test wants on the wire."""
        self._out.append(frame)

    def move_to(self, now_ns: int) -> None:
        """Trains up to then, and reports it."""
        ends = np.arange(self._stepped_ns + STEP_NS, now_ns + 1, STEP_NS)
        if len(ends):
            marks = np.zeros(len(ends), MARK)
            marks["start_ns"] = marks["end_ns"] = ends
            marks["mark_class"] = MarkClass.STEP
            self._out.append(Frame(Kind.MARKS, marks, now_ns))
            self._stepped_ns = int(ends[-1])
        self._now_ns = now_ns
        if self._tracing is not None and now_ns >= self._tracing[1]:
            self._report(*self._tracing)
            self._tracing = None

    def _report(self, start_ns: int, end_ns: int) -> None:
        starts = np.arange(start_ns, end_ns, STEP_NS // KERNELS_A_STEP)
        rows = np.zeros(len(starts), KERNEL)
        rows["start_ns"], rows["end_ns"] = starts, starts + 300_000
        rows["name_id"] = 1 + np.arange(len(starts)) % 2
        rows["grid"], rows["block"], rows["stream"] = (256, 1, 1), (128, 1, 1), 7
        rows["registers"] = 32
        self._out.append(Frame(Kind.KERNELS, rows, self._now_ns))
        spans = np.array([(start_ns, end_ns, 0, 0)], OBSERVED)
        self._out.append(Frame(Kind.OBSERVED, spans, self._now_ns))


class FakeFeed(SamplerFeed):
    """A sampler whose frames the test puts in."""

    worker: int | None = None
    remarks: Sequence[str] = ()
    active = settling = replaces_agent = False

    def __init__(self) -> None:
        self.remarks = []
        self.pending: list[Frame] = []
        self.matched: dict[int, str] = {}
        self.closed = False

    def drain(self) -> list[Frame]:
        drain, self.pending = self.pending, []
        return drain

    def match(self, uuids: Mapping[int, str]) -> None:
        self.matched = dict(uuids)

    def close(self) -> None:
        self.closed = True


class FakeLoad:
    """A host on which the trainer runs until the test says otherwise."""

    def __init__(self) -> None:
        self.trainer_running: bool | None = True
        self.trainer_stopped: str | None = None
        self.trainer_age_s: float | None = None
        self.trainer_end = "the trainer (pid 4711) exited: exit code 1"
        self.status: dict[str, str | None] = {}
        self.helpers: tuple[int, ...] = ()

    def tell_end(self, says: str) -> None:
        self.trainer_running, self.trainer_end = False, says

    def sample(self, helpers: Iterable[int] = ()) -> Any:
        self.helpers = tuple(helpers)
        return np.zeros(0, GAUGE)

    def close(self) -> None:
        self.trainer_running = None
