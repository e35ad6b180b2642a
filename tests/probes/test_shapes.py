from typing import Any

from .conftest import Script

LOOP = """
import os, struct, threading
import torch, torch.profiler, torch._dynamo
from torch._dynamo.utils import counters
SHAPES, TRACING, OPS, STATUS, PERTURBED, RECORDED_OP = 512, 64, 8, 13, 14, 15
recording = torch._C._autograd._profiler_enabled
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
class Training:
    def __init__(self, compiled=False):
        self.inner = model(); self.losses = []; self.ran_eager = 0
        forward = self.inner
        if compiled:
            def counting(x):
                if not torch.compiler.is_compiling(): self.ran_eager += 1
                return self.inner(x)
            forward = torch.compile(counting, backend="aot_eager")
        self.forward = forward
        self.optimizer = torch.optim.AdamW(self.inner.parameters(), lr=.1)
    def step(self, during=lambda: None):
        self.optimizer.zero_grad()
        loss = self.forward(torch.ones(2, 8)).square().mean()
        during()
        loss.backward(); self.optimizer.step(); self.losses.append(loss.item())
def settle(c): c._round(time.time_ns() + 1)
def said(n): return [b["says"] for k, b in n.frames if k == STATUS and "says" in b]
def ops(n): return {row[0]: row for k, b in n.frames if k == OPS for row in b}
def packed(n): return [struct.unpack_from("<qqqIIHHI", n.packed, at)
                       for at in range(0, len(n.packed), 40)]
"""


def _frames(script: Script, body: str) -> Any:
    return script(LOOP + body)


def test_one_whole_step_is_recorded_and_no_more(script):
    seen, names, marks, perturbed, steps, faults = _frames(
        script,
        """
t = Training(); t.step()
c, n = control(); c.hook(); t.step()
c._apply(SHAPES); t.step(); before = recording()
c._apply(TRACING); armed = recording(); t.step(); on = recording()
t.step(); off = recording(); t.step(); settle(c); t.step()
answer([[before, armed, on, off], ops(n), packed(n), n.of(PERTURBED), n.steps, c.fence.faults])
""",
    )
    assert seen == [False, False, True, False] and not faults
    shapes = {(row[1], str(row[2])) for row in names.values()}
    assert ("aten::addmm", "[[16], [2, 8], [8, 16], [], []]") in shapes
    assert ("aten::mm", "[[4, 2], [2, 16]]") in shapes, "the backward pass is part of the step"
    began, ended = steps[2], steps[3]
    *recorded, last = marks
    assert last[2] == len(recorded) > 20 and last[5] == 14
    assert perturbed[0][1] == perturbed[0][2] and began < perturbed[0][1] < began + 5e6
    for start, end, op_id, tid, _, kind, _, _ in recorded:
        assert perturbed[0][1] < start <= end < perturbed[1][2]
        assert kind == 15 and str(op_id) in names and tid == last[3]
    assert last[0] <= min(m[0] for m in recorded) and max(m[1] for m in recorded) > began
    assert ended < perturbed[1][2]


def test_ops_are_placed_on_the_clock_of_the_trace_to_microseconds(script):
    offs = _frames(
        script,
        """
t = Training(); c, n = control(); c.hook(); t.step()
c._apply(SHAPES | TRACING); t.step()
seen = []
for size in range(100, 140):
    before = time.time_ns(); torch.ones(size); seen.append((before, time.time_ns()))
    time.sleep(.001)
t.step(); settle(c)
sizes = {row[0]: row[2] for row in ops(n).values() if row[1] == "aten::fill_"}
fills = sorted((m[0], m[1]) for m in packed(n) if sizes.get(m[2], [[]])[0][:1] > [99])
answer([[start - a, b - end] for (start, end), (a, b) in zip(fills, seen)] + [len(fills)])
""",
    )
    *offs, count = offs
    assert count == 40
    early = sorted(start for start, _ in offs)
    late = sorted(end for _, end in offs)
    assert early[0] > -2_000 and late[0] > -2_000, "within the reading of our clock around it"
    assert early[0] < 60_000 and late[0] < 60_000, "and no further than the call around it takes"


def test_a_compiled_model_stays_compiled_and_computes_the_same(script):
    with_it, without, eager, frames, kept, recorded = _frames(
        script,
        """
def training(asked):
    torch._dynamo.reset(); counters.clear()
    t = Training(compiled=True); c, n = control(); c.hook()
    for _ in range(3): t.step()
    before = dict(counters["frames"]), dict(counters["stats"]), t.ran_eager
    if asked: c._apply(SHAPES | TRACING)
    for _ in range(5): t.step()
    settle(c); c.unhook()
    after = dict(counters["frames"]), dict(counters["stats"]), t.ran_eager
    return t.losses, t.ran_eager, before == after, len(ops(n)), after[0]
asked, plain = training(True), training(False)
answer([asked[0], plain[0], [asked[1], plain[1]], asked[4], asked[2], asked[3]])
""",
    )
    assert with_it == without and len(set(with_it)) == len(with_it)
    assert eager == [0, 0] and kept and frames["ok"] >= 1
    assert recorded > 10


def test_it_waits_for_a_burst_and_gives_up_without_one(script):
    on, says = _frames(
        script,
        """
t = Training(); c, n = control(); c.hook(); t.step()
c._apply(SHAPES); c.shapes._wished_ns -= 6_000_000_000; settle(c)
c._apply(TRACING); t.step(); on = recording(); t.step()
answer([on, said(n)])
""",
    )
    assert not on and says == ["no shapes: no burst of tracing began"]


def test_what_cannot_be_recorded_is_said(script):
    early, profiled, threaded, slow = _frames(
        script,
        """
t = Training(); c, n = control(); c.hook()
def asked():
    n.frames.clear(); c._apply(SHAPES | TRACING); t.step(); on = recording(); t.step()
    return [on, said(n)]
early = asked()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
    c._apply(SHAPES | TRACING); profiled = said(n)[-1]
c.steps.thread_ident += 1; threaded = asked(); c.steps.thread_ident -= 1
c.steps._primary.stamps.extend(10_000_000_000 * i for i in range(64)); slow = asked()
answer([early, profiled, threaded, slow])
""",
    )
    assert early == [False, ["no shapes: no optimizer step has been seen yet"]]
    assert profiled == "no shapes: torch.profiler is at work"
    assert threaded == [False, ["no shapes: the optimizer does not step on the main thread"]]
    assert slow == [False, ["no shapes: a step takes more than 5 s"]]


def test_a_profiler_that_begins_in_the_recorded_step_has_its_way(script):
    for begin in (
        "torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])",
        "torch.autograd.profiler.profile()",
    ):
        on, ours_off, events, says, faults = _frames(
            script,
            f"""
t = Training(); c, n = control(); c.hook(); t.step()
c._apply(SHAPES | TRACING); t.step(); on = recording()
with {begin} as theirs: t.step()
settle(c)
answer([on, not recording(), len(theirs.key_averages()), said(n), c.fence.faults])
""",
        )
        assert on and ours_off and events > 5 and not faults
        assert says == ["no shapes: torch.profiler begins"]


def test_a_step_that_does_not_end_is_given_up_from_outside(script):
    on, off, took, says, packed, faults = _frames(
        script,
        """
t = Training(); c, n = control(); c.hook(); t.step()
c._apply(SHAPES | TRACING); t.step(); on = recording()
c.shapes._until_ns = 0
other = threading.Thread(target=settle, args=(c,)); other.start()
began = time.time()
with torch.no_grad():
    while recording() and time.time() - began < 5: t.inner(torch.ones(2, 8))
took = time.time() - began; other.join(); t.step(); settle(c)
answer([on, not recording(), took, said(n), len(n.packed), c.fence.faults])
""",
    )
    assert on and off and took < 2 and packed == 0 and not faults
    assert says == ["no shapes: no step began and ended in time"]


def test_leaving_in_the_middle_of_the_step_switches_off(script):
    here, there, again = _frames(
        script,
        """
def left(leave):
    t = Training(); c, n = control(); c.hook(); t.step()
    c._apply(SHAPES | TRACING); t.step(); assert recording()
    t.step(lambda: leave(c)); off = not recording(); t.step(); c.unhook()
    return off and not n.packed and not c.fence.faults
def from_outside(c):
    other = threading.Thread(target=c.unhook); other.start()
    while other.is_alive(): time.sleep(.001)
answer([left(lambda c: c.unhook()), left(from_outside), left(lambda c: c.end())])
""",
    )
    assert here and there and again


def test_a_child_forked_in_the_step_does_not_record(script):
    child, parent, recorded = _frames(
        script,
        """
t = Training(); c, n = control(); watched(c); c.hook(); t.step()
c._apply(SHAPES | TRACING); t.step()
status = []
def fork():
    pid = os.fork()
    if not pid: os._exit(1 if recording() else 0)
    status.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
t.step(fork); settle(c)
answer([status, recording(), len(ops(n))])
""",
    )
    assert child == [0] and not parent and recorded > 10


def test_what_was_recorded_survives_ops_that_begin_or_end_outside(script):
    """The hook runs inside `Optimizer.step`'s own range, and a whole step may lie in another."""
    recorded, off = _frames(
        script,
        """
t = Training(); c, n = control(); c.hook(); t.step()
c._apply(SHAPES | TRACING); t.step()
with torch.profiler.record_function("outer"): t.step()
settle(c)
answer([sorted({row[1] for row in ops(n).values()}), not recording()])
""",
    )
    assert off and "aten::addmm" in recorded and all("::" in name for name in recorded)


def test_a_main_thread_that_is_busy_for_long_switches_off_when_it_comes_back(script):
    """Nobody holds the agent any more by then, and nothing it left behind may be gone."""
    on, off, waited = _frames(
        script,
        """
import ctypes, gc
t = Training(); c, n = control(); c.hook(); t.step()
c._apply(SHAPES | TRACING); t.step(); on = recording()
leaving = threading.Thread(target=c.unhook); leaving.start()
lib = ctypes.CDLL(None); lib.usleep(1_800_000)  # in C, without the GIL
waited = not leaving.is_alive()
del c, leaving; gc.collect()
for _ in range(100): gc.collect(0)
answer([on, not recording(), waited])
""",
    )
    assert on and off and waited
