"""A made-up trainer watched in bursts, one step of which may be recorded with shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from collectors.protocol.frames import CALL, KERNEL, MARK, OBSERVED, WIRE_VERSION, Frame, Kind
from collectors.vocabulary import CallClass, MarkClass
from tests.session.runs import GEMM, H200, POINTWISE, T0_NS

MAIN, BACKWARD = 0xAAAA0001, 0xBBBB0002
TORCH_BACKWARD = 2
"""torch's own number of the backward thread."""
STEP_NS = 20_000_000


@dataclass(frozen=True)
class Kernel:
    """One kernel of a step and the op that launches it."""

    name: str
    op: str
    dims: tuple[tuple[int, ...], ...]
    blocks: int = 1_320
    tid: int = MAIN
    us: int = 1_000


FORWARD = Kernel(GEMM, "aten::mm", ((4096, 4096), (4096, 4096)))
DEEP = Kernel(GEMM, "aten::mm", ((4096, 16384), (16384, 4096)))
"""The same kernel and grid with another K: only its place in the step tells it apart."""
GRADIENT = Kernel(GEMM, "aten::mm", ((4096, 512), (512, 4096)), 512, BACKWARD)
ADD = Kernel(POINTWISE[0], "aten::add", ((4096, 4096), (4096, 4096)), 4_096, us=300)
STEP = (FORWARD, ADD, DEEP, ADD, FORWARD, GRADIENT, GRADIENT)


class Trainer:
    """Steps of one sequence of kernels on CLOCK_REALTIME; frames come out as they are traced.

    Args:
        lead_ns: How far the host is ahead of the device.
    """

    def __init__(self, step: tuple[Kernel, ...] = STEP, lead_ns: int = 200_000) -> None:
        self.step, self.lead_ns = step, lead_ns
        self.now_ns = T0_NS
        self._correlation = 0
        self._names = {one.name: n for n, one in enumerate({k.name: k for k in step}.values(), 1)}
        names = {number: name for name, number in self._names.items()}
        self.frames = [
            Frame(Kind.HELLO, {"wire": WIRE_VERSION, "pid": 4711, "torch": "2.11.0"}, T0_NS),
            Frame(Kind.DEVICE, dict(H200), T0_NS),
            Frame(Kind.NAMES, names, T0_NS),
            Frame(Kind.OBSERVED, np.zeros(0, OBSERVED), T0_NS),
        ]

    def put(self, kind: Kind, body: Any) -> None:
        self.frames.append(Frame(kind, body, self.now_ns))

    def steps(
        self,
        count: int,
        traced: bool = True,
        shapes: int = -1,
        slow: int = 1,
        skip_first: int = 0,
        keep_last: int | None = None,
        step: tuple[Kernel, ...] | None = None,
        late_ns: int = 0,
        lose: int = 0,
    ) -> Trainer:
        """Trains; the frames of a burst come at its end.

        Args:
            shapes: The step whose ops are recorded; they arrive with the burst.
            slow: How many times longer that one takes.
            skip_first: Kernels of the first step that were launched before tracing began.
            keep_last: Kernels of the last step that were launched before tracing ended.
            step: Another sequence than the trainer's usual one.
            late_ns: Of the ops, behind the burst.
            lose: Ops that do not arrive.
        """
        step = step or self.step
        rows: list[list[tuple[Any, ...]]] = [[], []]
        ops: list[tuple[int, int, Kernel]] = []
        marks: list[tuple[Any, ...]] = []
        begun = self.now_ns
        for number in range(count):
            factor = slow if number == shapes else 1
            low = skip_first if number == 0 else 0
            high = keep_last if number == count - 1 and keep_last is not None else len(step)
            each = STEP_NS * factor // (len(step) + 1)
            for place, kernel in enumerate(step):
                at = self.now_ns + place * each + each // 2
                if number == shapes:
                    ops.append((at - 20_000, at + 20_000, kernel))
                if low <= place < high:
                    self._launch(kernel, at, rows)
            if number == shapes:
                span = (self.now_ns, self.now_ns + STEP_NS * factor)
            self.now_ns += STEP_NS * factor
            marks.append((self.now_ns, self.now_ns, number, MAIN, 0, MarkClass.STEP, 0, 0))
        if 0 <= shapes < count:
            points = [(span[0], span[0], 0), (*span, 0)]
            marks += [(*point, MAIN, 0, MarkClass.PERTURBED, 0, 0) for point in points]
        self.put(Kind.MARKS, np.array(marks, MARK))
        if traced:
            self.put(Kind.CALLS, np.array(rows[0], CALL))
            self.put(Kind.KERNELS, np.array(rows[1], KERNEL))
            first = max(begun, min(row[0] for row in rows[1]))
            last = max(self.now_ns, max(row[1] for row in rows[1]))
            self.put(Kind.OBSERVED, np.array([(first, last, 0, 0)], OBSERVED))
        if 0 <= shapes < count:
            self.now_ns += late_ns
            self.put(Kind.MARKS, np.zeros(0, MARK))
            self._record(ops, span, lose)
        return self

    def pause(self, count: int = 100) -> Trainer:
        """Steps that nobody traces."""
        return self.steps(count, traced=False)

    def _launch(self, kernel: Kernel, at: int, rows: list[list[tuple[Any, ...]]]) -> None:
        self._correlation += 1
        start = at + self.lead_ns
        rows[0].append(
            (at - 3_000, at + 3_000, self._correlation, kernel.tid, 0, CallClass.LAUNCH, 0)
        )
        rows[1].append(
            (start, start + kernel.us * 1_000, self._correlation, self._names[kernel.name], 0, 7,
             (kernel.blocks, 1, 1), (256, 1, 1), 0, 32, 0, 0, 0, 0)
        )  # fmt: skip

    def _record(self, ops: list[tuple[int, int, Kernel]], span: tuple[int, int], lose: int) -> None:
        signatures = {(one.op, one.dims): n for n, one in enumerate({k for _, _, k in ops}, 1)}
        self.put(
            Kind.OPS, [[n, name, list(dims), [], []] for (name, dims), n in signatures.items()]
        )
        marks = [
            (start, end, signatures[(one.op, one.dims)],
             MAIN if one.tid == MAIN else TORCH_BACKWARD, 0, MarkClass.RECORDED_OP, 0, 0)
            for start, end, one in ops
        ]  # fmt: skip
        marks = marks[lose:]
        marks.append((*span, len(ops), MAIN, 0, MarkClass.PERTURBED, 0, 0))
        self.put(Kind.MARKS, np.array(marks, MARK))
