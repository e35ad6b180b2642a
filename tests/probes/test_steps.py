import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from collectors.agent.probes import steps
from collectors.agent.probes.probe import FaultGuard

from .conftest import Script

LOOP = """
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
def model(): torch.manual_seed(0); return torch.nn.Linear(4, 4)
def loss(m): return m(torch.ones(2, 4)).sum()
"""


def test_each_optimizer_step_is_marked_once_and_in_order(script: Script) -> None:
    steps, fresh, hooks = script(
        LOOP
        + """
m = model(); o = torch.optim.AdamW(m.parameters()); s = torch.optim.lr_scheduler.StepLR(o, 1)
def go():
    o.zero_grad(); loss(m).backward(); o.step(); s.step()
go()
c, n = control("steps"); c.hook(); c.hook()
for _ in range(5): go()
c.unhook(); before = len(n.steps); go()
answer([n.steps, len(n.steps) - before, len(hooks)])
"""
    )
    assert len(steps) == 5 and steps == sorted(steps)
    assert fresh == 0 and hooks == 0


def test_of_two_optimizers_the_even_one_is_the_step(script: Script) -> None:
    step_count, other_count, name, moved = script(
        LOOP
        + """
m = model(); uneven = torch.optim.SGD(m.parameters()); even = torch.optim.AdamW(m.parameters())
c, n = control("steps"); c.hook()
for i in range(12):
    loss(m).backward()
    for _ in range(1 + i % 3): uneven.step()
    time.sleep(.004); even.step()
first = len(n.steps); c._round(time.time_ns()); n.steps.clear(); n.marks.clear()
for i in range(4): uneven.step(); even.step(); uneven.step()
answer([len(n.steps), len(n.of(9)), n.of(9)[0][4], first])
"""
    )
    assert step_count == 4 and other_count == 8 and name.startswith("SGD")
    assert moved == 24, "before the rhythm was known the first optimizer seen was the step"


def test_a_run_that_has_begun_keeps_its_kind_of_steps(script):
    step_count, other_count = script(
        LOOP
        + """
m = model(); uneven = torch.optim.SGD(m.parameters()); even = torch.optim.AdamW(m.parameters())
c, n = control("steps"); c.hook(); loss(m).backward()
for i in range(80): uneven.step()
for i in range(12):
    for _ in range(1 + i % 3): uneven.step()
    time.sleep(.004); even.step()
c._round(time.time_ns()); n.steps.clear(); n.marks.clear()
for i in range(4): uneven.step(); even.step(); uneven.step()
answer([len(n.steps), len(n.of(9))])
"""
    )
    assert step_count == 8 and other_count == 4


def test_the_next_optimizer_is_the_step_when_the_one_before_is_gone_or_rests(
    script: Script,
) -> None:
    gone, rests = script(
        LOOP
        + """
m = model(); c, n = control("steps"); c.hook()
def train(o, count):
    for _ in range(count): loss(m).backward(); o.step()
for trial in range(3): train(torch.optim.SGD(m.parameters()), 3)
gone = len(n.steps); n.steps.clear()
first, second = torch.optim.SGD(m.parameters()), torch.optim.SGD(m.parameters())
train(first, 3); time.sleep(.1); train(second, 3); c._round(time.time_ns()); train(second, 3)
answer([gone, len(n.steps)])
"""
    )
    assert gone == 9 and rests == 6


def test_a_step_that_the_grad_scaler_skips_is_a_step(script: Script) -> None:
    assert script(
        LOOP
        + """
m = model(); o = torch.optim.SGD(m.parameters(), lr=.1)
c, n = control("steps"); c.hook()
scaler = torch.amp.GradScaler("cpu")
for i in range(4):
    o.zero_grad(); l = loss(m) * (float("inf") if i == 2 else 1)
    scaler.scale(l).backward(); scaler.step(o); scaler.update()
c.unhook()
answer([len(n.steps), "brrrtop" in torch.amp.GradScaler._maybe_opt_step.__qualname__])
"""
    ) == [4, False]


def test_compiled_optimizers_are_seen_and_nothing_recompiles(script: Script) -> None:
    for early in (False, True):
        seen, recompiles = script(
            LOOP
            + f"""
import torch._dynamo
m = model(); o = torch.optim.SGD(m.parameters(), lr=.1); loss(m).backward()
c, n = control()
step = torch.compile(lambda: o.step(), backend="eager")
if {early}: c.hook()
for _ in range(3): step()
c.hook(); seen = len(n.steps)
for _ in range(3): step()
seen = len(n.steps) - seen
c.unhook()
for _ in range(3): step()
reasons = [m.recompile_reason for m in torch._dynamo.utils.get_compilation_metrics()]
answer([seen, [r for r in reasons if r]])
"""
        )
        assert seen == 3 and recompiles == []


def test_torch_may_be_imported_long_after_the_agent_came(script: Script) -> None:
    step_count, waits, before = script(
        """
        c, n = control(); c.hook(); c._round(time.time_ns())
        import torch
        from torch.utils.data import DataLoader
        w = torch.nn.Parameter(torch.ones(1)); o = torch.optim.SGD([w])
        def go():
            for _ in DataLoader(range(3)): w.sum().backward(); o.step()
        go(); before = len(n.steps)
        c._round(time.time_ns()); go(); c.unhook()
        answer([len(n.steps), len(n.of(2)), before])
        """,
        python=sys.executable,
    )
    assert (step_count, waits, before) == (3, 4, 0)


def test_a_forked_child_does_not_wait_for_threads_it_does_not_have(script: Script) -> None:
    slept, hooks = script("""
import os, torch
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
c, n = control("steps"); c.hook(); watched(c)
from _brrrtop_agent.probes import steps
slept = []
steps.sleep = slept.append
r, w = os.pipe()
if os.fork() == 0:
    os.write(w, bytes([len(slept), len(hooks)])); os._exit(0)
answer(list(os.read(r, 2)))
""")
    assert (slept, hooks) == (0, 0)


def test_torchs_hooks_change_only_while_no_thread_goes_through_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hooks, stepped, naps = list[object](), list[int](), list[float]()
    torchs = types.ModuleType("torch.optim.optimizer")
    torchs.__file__ = "/torch/optim/optimizer.py"

    def register(hook: object) -> types.SimpleNamespace:
        hooks.append(hook)
        return types.SimpleNamespace(remove=hooks.clear)

    vars(torchs)["register_optimizer_step_post_hook"] = register
    monkeypatch.setitem(sys.modules, torchs.__name__, torchs)
    monkeypatch.setattr(steps, "sleep", naps.append)
    native = types.SimpleNamespace(step=lambda at_ns, _: stepped.append(at_ns))
    probe = steps.Steps(native, FaultGuard())  # type: ignore[arg-type]
    probe.places.due[steps.STEP] = sys.maxsize

    @contextmanager
    def inside() -> Iterator[None]:
        entered, leave = threading.Event(), threading.Event()
        step = compile("entered.set(); leave.wait()", torchs.__file__ or "", "exec")
        thread = threading.Thread(target=exec, args=(step, {"entered": entered, "leave": leave}))
        thread.start()
        entered.wait()
        yield
        leave.set()
        thread.join()

    with inside():
        probe.install()
        assert hooks == [] and naps == [0.0005] * steps._TRIES
    probe.install()
    probe.install()
    (hook,) = hooks
    assert callable(hook)
    with inside():
        probe.remove()
        hook(torchs)
        assert hooks == [hook] and stepped == [], "what cannot be removed does nothing"
        probe.install()
        hook(torchs)
    assert hooks == [hook] and len(stepped) == 1
    probe.remove()
    assert hooks == []
    probe.install()
    assert hooks == [hook]
