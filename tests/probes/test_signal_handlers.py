"""A signal handler that raises: its exceptions reach the trainer, whatever of ours it interrupts."""

import sys

import pytest

from collectors.attach import agent_library
from collectors.errors import CollectorError

from .conftest import AGENT, other_python

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]
ALARMS = f"""
import functools, signal
count = dict(raised=0, came=0); armed = False
class Alarm(Exception): pass
def ours(frame):
    if not armed: return False
    while frame is not None and not frame.f_code.co_filename.startswith({str(AGENT)!r}):
        frame = frame.f_back
    return frame is not None
def give():
    global armed
    armed = False; count["raised"] += 1
    raise Alarm
def ring(number, frame):
    if ours(frame): give()
class Bell:
    def method(self, *given): ring(*given)
    def __call__(self, number, at): ring(number, at)
def once(number, frame):
    if ours(frame):
        signal.signal(signal.SIGALRM, quiet)
        give()
def quiet(*_): pass  # Linux rearms no timer whose signal is ignored
def forgetful(number, frame):
    inside = ours(frame)
    del frame
    if inside: give()
HANDLERS = (ring, lambda *_: ring(*_), Bell().method, Bell(), functools.partial(ring),
            once, forgetful)
def ringing(handler, work, wanted, seconds=20):
    "Does the work again and again, until the handler has raised so often inside of ours."
    global armed
    wanted += count["raised"]; end = time.monotonic() + seconds
    signal.signal(signal.SIGALRM, quiet)
    signal.setitimer(signal.ITIMER_REAL, .0005, .0005)
    try:
        while count["raised"] < wanted and time.monotonic() < end:
            signal.signal(signal.SIGALRM, handler)
            armed = True
            try: work()
            except Alarm: count["came"] += 1
            armed = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0); signal.signal(signal.SIGALRM, quiet)
    assert count["raised"] >= wanted, (handler, count)
"""
"""One raises at a time, and only while the interpreter is somewhere in our code."""


def indented(text: str) -> str:
    return "\n".join(f"        {line}" for line in text.splitlines())


@pytest.mark.parametrize("version", VERSIONS)
def test_exceptions_of_handlers_come_out_of_every_hook(script, version):
    """The optimizer's hook, and what stands for a patched method of a loader or a logger."""
    count, faults = script(
        f"""
{indented(ALARMS)}
        class Drawn:
            def draw(self): return 1
        c, n = control("steps")
        c.steps.patch(Drawn, "draw", lambda _: list(range(50)), lambda *_: list(range(50)))
        drawn, hook = Drawn(), c.steps._hook
        def work():
            for _ in range(20): drawn.draw(); hook(drawn)
        for handler in HANDLERS: ringing(handler, work, 20)
        answer([count, c.fence.faults])
        """,
        python=other_python(version),
    )
    assert count["raised"] == count["came"] >= 140
    assert faults == {}, "it is no fault of ours"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fault_of_ours_ends_at_the_fence_while_a_handler_is_installed(script, version):
    faults = script(
        f"""
{indented(ALARMS)}
        signal.signal(signal.SIGALRM, ring); c, n = control("steps"); n.step = ring
        def broken(*given): raise Alarm
        c.fence.guard("direct", broken)(1, sys._getframe()); n.step = broken
        c.steps._hook(c); answer(c.fence.faults)
        """,
        python=other_python(version),
    )
    assert faults == {"direct": 1, "steps": 1}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fault_of_ours_ends_at_the_fence_where_there_is_no_room_to_look(script, version):
    """Below the trainer's recursion limit, wherever the fence itself can still be called."""
    sound, failed, faults = script(
        """
        c, n = control("steps"); sound = failed = 0
        def broken(): raise ZeroDivisionError
        hook = c.fence.guard("x", broken); empty = c.fence.guard("y", time.time)
        def sink():
            global sound, failed
            try: sink()
            except RecursionError: pass
            try: empty()
            except RecursionError: return
            sound += 1
            try: hook()
            except RecursionError: failed += 1
        sys.setrecursionlimit(150); sink()
        answer([sound, failed, c.fence.faults["x"]])
        """,
        python=other_python(version),
    )
    assert sound > 100 and failed == 0 and faults > 80


def test_exceptions_of_handlers_come_out_of_torch(script):
    count, faults = script(
        f"""
{indented(ALARMS)}
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        weight = torch.nn.Parameter(torch.ones(2)); weight.grad = torch.ones(2)
        optimizer = torch.optim.SGD([weight], lr=.1)
        loader = DataLoader(TensorDataset(torch.ones(8, 1)), batch_size=1)
        c, n = control("steps", "loader"); c.hook()
        def wait():
            for _ in loader: pass
        ringing(ring, optimizer.step, 20); ringing(ring, wait, 20)
        answer([count, c.fence.faults])
        """,
        python=sys.executable,
    )
    assert count["raised"] == count["came"] >= 40 and faults == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_exceptions_of_handlers_come_out_of_what_gives_a_recording_up(script, version):
    """The interpreter runs that in the main thread, between two instructions of the trainer."""
    count, dropped, faults = script(
        f"""
{indented(ALARMS)}
        from _thread import get_ident
        c, n = control("shapes"); shapes = c.shapes
        shapes._unwanted, shapes._begun_ns, shapes._thread = "no step", 1, get_ident()
        def work():
            for _ in range(20): shapes._pending.queue()
        ringing(ring, work, 100)
        answer([count, len(n.frames), c.fence.faults])
        """,
        python=other_python(version),
    )
    assert count["raised"] == count["came"] >= 100 and dropped > 100 and faults == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_no_exception_is_lost_to_a_collection(script, version):
    """CPython drops what a callback of `gc` raises: no Python may run in ours."""
    try:
        library = agent_library.library_path()
    except CollectorError as fault:
        pytest.skip(str(fault))
    count = script(
        f"""
        import gc
{indented(ALARMS)}
        def ours(frame): return collecting and armed  # whatever it is that is interrupted
        def work():
            global collecting
            collecting = True
            for _ in range(50): gc.collect(0)
            collecting = False
        c, n = control("gc"); collecting = False
        from _brrrtop_agent.library import Native
        c.probes[0].__init__(Native({str(library)!r}), c.fence)
        before = len(gc.callbacks); c.hook(); assert len(gc.callbacks) == before + 1
        ringing(ring, work, 400)
        answer(count)
        """,
        python=other_python(version),
    )
    assert count["raised"] == count["came"] >= 400
