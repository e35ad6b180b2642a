"""Garbage collections, from `gc.callbacks` to the wire: the library is called with no Python between."""

from collections.abc import Callable
from pathlib import Path

from collectors.protocol.frames import Kind
from collectors.vocabulary import MarkClass
from tests.agent.rig import Monitor, Trainer

Connect = Callable[[Trainer], Monitor]
WORTH_NS = 200_000
"""Of a mark: what takes less goes without."""
ROOT = Path(__file__).resolve().parents[2]


def test_collections_that_take_time_are_marked_with_their_generation(trainer, connect):
    monitor = connect(trainer.load().start())
    path = str(trainer.built["agent"])
    before, after, thread = trainer.do(
        f"import gc\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from collectors.agent.library import Native\n"
        f"gc.disable(); gc.callbacks.append(Native({path!r}).collection)\n"
        "gc.collect(0)\n"
        "keep = [[i] for i in range(300_000)]; before = time.time_ns()\n"
        "gc.collect(1); gc.callbacks[0]('stop', {}); after = time.time_ns()\n"
        "answer = [before, after, threading.get_ident() & 0xFFFFFFFF]"
    )
    monitor.until(lambda m: m.count(Kind.MARKS) >= 1)
    trainer.do("lib.brrr_mark(5, 1, 2, 3, 0, 0)")
    monitor.until(lambda m: MarkClass.CHECKPOINT in m.rows(Kind.MARKS)["mark_class"])
    rows = monitor.rows(Kind.MARKS)
    collections = rows[rows["mark_class"] == MarkClass.GC]
    assert len(rows) == len(collections) + 1, "no mark of a collection that never began"
    lasted = collections["end_ns"] - collections["start_ns"]
    assert (lasted >= WORTH_NS).all(), "young ones are marked only where the machine was slow"
    (collection,) = collections[collections["value"] == 1]
    assert before - 256 < collection["start_ns"] < collection["end_ns"] <= after
    assert collection["tid"] == thread
    assert monitor.names()[int(collection["name_id"])] == "gc generation 1"
