"""The order for shapes reaches Python with the tracing it needs, and what Python found the monitor."""

from collections.abc import Callable

from collectors.protocol import requests
from collectors.protocol.frames import Kind
from collectors.vocabulary import MarkClass
from tests.agent.rig import Monitor, Trainer

TRACING, SHAPES, REST = 64, 512, 1024

Connect = Callable[[Trainer], Monitor]


def test_shapes_come_with_the_burst_that_was_ordered_before_them(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    monitor.send(requests.control(requests.Op.SHAPES))
    assert not trainer.bits_until(SHAPES) & TRACING, "nothing is traced yet"
    monitor.burst(0, 0.3)
    assert trainer.bits_until(TRACING) & TRACING
    monitor.traced()


def test_shapes_are_due_at_once_while_everything_is_traced(trainer, connect):
    monitor = connect(trainer.load().start())
    monitor.send(requests.continuous(True))
    trainer.bits_until(TRACING)
    monitor.send(requests.control(requests.Op.SHAPES))
    assert trainer.bits_until(SHAPES) & TRACING
    monitor.send(requests.control(requests.Op.REST))
    assert trainer.bits_until(REST)


def test_ops_and_their_marks_arrive_as_they_were_sent(trainer, connect):
    monitor = connect(trainer.load().start()).ready()
    taken = trainer.do(
        """
import ctypes, json, struct
lib.brrr_frame.argtypes = [ctypes.c_uint16, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32]
one = struct.Struct("<qqqIIHHI")
marks = b"".join(one.pack(1000 + i, 2000 + i, i % 7, 5, 0, 15, 0, 0) for i in range(3000))
ops = [[i, "aten::mm", [[4, i], []], [], []] for i in range(7)]
answer = [lib.brrr_json(8, json.dumps(ops).encode()), lib.brrr_frame(7, marks, len(marks), 3000)]
"""
    )
    assert taken == [0, 0]
    monitor.until(lambda m: m.count(Kind.MARKS) >= 3000)
    rows = monitor.rows(Kind.MARKS)
    rows = rows[rows["mark_class"] == MarkClass.RECORDED_OP]
    assert rows["start_ns"].tolist() == list(range(1000, 4000))
    assert rows["value"].tolist() == [i % 7 for i in range(3000)]
    assert monitor.of(Kind.OPS)[0].body[3] == [3, "aten::mm", [[4, 3], []], [], []]
