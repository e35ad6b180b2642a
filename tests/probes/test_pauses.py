"""Compiles, collections, saves, the allocator: what makes a training thread pause."""

import sys


def test_recompiles_carry_their_number_and_reason_and_survive_a_reset(script):
    marks, left = script(
        """
        import torch
        c, n = control("compile"); c.hook()  # dynamo is not imported yet
        f = torch.compile(lambda x: x * 2, backend="eager")
        import torch._dynamo
        c._round(time.time_ns())
        f(torch.ones(3)); f(torch.ones(3, 3)); c._round(time.time_ns())
        torch._dynamo.reset(); c._round(time.time_ns())
        f(torch.ones(5)); c._round(time.time_ns())
        c.unhook(); handler = torch._dynamo.callback.callback_handler
        answer([n.of(3), len(handler.start_callbacks) + len(handler.end_callbacks)])
        """,
        python=sys.executable,
    )
    assert [mark[3] for mark in marks] == [0, 1, 0] and left == 0
    assert marks[1][4].startswith("DYNAMO 0/1 <lambda> | ") and "rank mismatch" in marks[1][4]
    assert all(end - start > 1_000_000 for _, start, end, _, _ in marks)


def test_collections_are_told_to_the_library_while_hooked(script):
    phases, generations, left = script(
        """
        import gc
        gc.disable(); before = list(gc.callbacks)
        c, n = control("gc"); gc.collect(); c.hook(); c.hook()
        del n.collections[:]
        gc.collect(0); gc.collect()
        c.unhook(); gc.collect()
        told = n.collections
        answer([[t[0] for t in told], [t[1]["generation"] for t in told], gc.callbacks == before])
        """
    )
    assert phases == ["start", "stop"] * 2 and generations == [0, 0, 2, 2] and left


def test_saves_and_loggers_are_timed_and_put_back(script):
    classes, names, same, pickled, length = script(
        """
        import torch, types, pickle, io
        board = types.ModuleType("torch.utils.tensorboard.writer")
        class SummaryWriter:
            def add_scalar(self, name, value): time.sleep(.01); return value
        board.SummaryWriter = SummaryWriter; sys.modules[board.__name__] = board
        before = torch.save, torch.serialization.save, dict(vars(SummaryWriter))
        writer = SummaryWriter(); c, n = control("saving"); c.hook(); c.hook()
        torch.save({}, io.BytesIO()); assert writer.add_scalar("loss", 7) == 7
        try: torch.save()
        except TypeError: pass
        pickled = pickle.loads(pickle.dumps(torch.save)) is torch.save
        c.unhook(); torch.save({}, io.BytesIO())
        same = before == (torch.save, torch.serialization.save, dict(vars(SummaryWriter)))
        length = n.marks[1][2] - n.marks[1][1]
        answer([[m[0] for m in n.marks], [m[4] for m in n.marks], same, pickled, length])
        """
    )
    assert classes == [5, 7, 5] and same and pickled and length > 9_000_000
    assert names[:2] == ["torch.save", "SummaryWriter.add_scalar"]


def test_allocator_retries_are_marked_only_for_devices_in_use(script):
    marks, asked = script(
        """
        import torch
        asked, stats = [], {"num_alloc_retries": 2}
        torch._C._cuda_memoryStats = lambda d: asked.append(d) or dict(stats)
        torch._C._cuda_getDeviceCount = lambda: 2
        torch._C._cuda_hasPrimaryContext = lambda d: d == 1
        c, n = control("allocator"); c.hook(); at = time.time_ns()
        c._each("wake", at); assert not asked, "CUDA is not initialised"
        torch.cuda.is_initialized = lambda: True
        for second in range(1, 5):
            if second == 3: stats["num_alloc_retries"] = 7
            c._each("wake", at + second * 1_100_000_000)
            c._each("wake", at + second * 1_100_000_000 + 1)
        answer([n.marks, asked])
        """
    )
    assert asked == [1, 1, 1, 1], "at most once a second"
    assert [(mark[0], mark[3]) for mark in marks] == [(6, 5)]


def test_stacks_name_the_users_frames_and_only_while_watched(script):
    marks, before, after, rested, sampling = script(
        """
        import threading
        import torch
        def fetch():
            done.wait(2)  # stands for loss.item()
        def train_step(depth):
            return train_step(depth - 1) if depth else sorted([1], key=lambda _: fetch())
        done = threading.Event(); c, n = control("stacks")
        from _brrrtop_agent.library import CONNECTED, GONE, REST, STOP
        def sample():
            time.sleep(.1); c._apply(0); out.append(len(n.marks))
            c._apply(CONNECTED | REST); n.marks.clear()
            for _ in range(2): time.sleep(.01); c._apply(0)
            rested = len(n.marks); c._apply(CONNECTED)
            for _ in range(2): time.sleep(.01); c._apply(0)
            c._apply(STOP | GONE); seen = len(n.marks); c._apply(0)
            out.extend([len(n.marks) - seen, rested]); done.set()
        out = []; threading.Thread(target=sample).start(); train_step(20)
        answer([n.of(10), *out, c.stacks.sampling])
        """
    )
    assert before == after == rested == 0 and not sampling and len(marks) == 3
    places, _, source = marks[1][4].partition(" | ")
    assert source == "done.wait(2)  # stands for loss.item()"
    users, _, leaf = places.partition(" > ")
    own, *callers = users.split(" < ")
    assert own.endswith("fetch") and "train.py:" in own and "wait" in leaf
    assert len(callers) == 10, "of 23"
    assert "lambda" in callers[0] and callers[-1].endswith("<module>")
    assert all(" train_step" in caller for caller in callers[1:4])
    assert marks[0][3] == 0 and 10_000_000 <= marks[1][3] < 1_000_000_000


def test_what_torchs_compiler_does_and_made_is_not_the_users_own(script):
    while_compiling, compiled = script(
        """
        import os
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = "/x/made"; made = "/x/made/ab/cabc.py"
        def library(name, source):
            space = {"sample": sample}; exec(compile(source, name, "exec"), space); return space
        def sample(): c.stacks.sample(time.time_ns())
        compiler = library("/x/torch/_inductor/compile_fx.py", "def compile_fx_inner(f): return f()")
        runner = library(made, "def call(): sample()")
        c, n = control("stacks"); c.hook()
        def step(): compiler["compile_fx_inner"](runner["call"])
        def later_step(): runner["call"]()
        step(); later_step()
        answer([mark[4] for mark in n.of(10)])
        """
    )
    assert while_compiling.partition(" > ")[2].startswith(
        "_inductor/compile_fx.py:1 compile_fx_inner"
    )
    assert "cabc.py" not in while_compiling and "cabc.py" not in compiled


def test_no_thread_is_sampled_without_the_interpreters_lock(script):
    sampling, marks = script(
        """
        sys._is_gil_enabled = lambda: False
        c, n = control("stacks"); c._apply(0)
        from _brrrtop_agent.library import CONNECTED
        c._apply(CONNECTED); c._apply(0)
        answer([c.stacks.sampling, len(n.marks)])
        """
    )
    assert not sampling and not marks


def test_steps_and_loaders_say_where_the_user_stands_every_5_s(script):
    steps, inputs, marks, ends = script(
        """
        import torch
        from torch.utils.data import DataLoader
        w = torch.nn.Parameter(torch.ones(1)); w.grad = torch.zeros(1)
        optimizer = torch.optim.SGD([w], lr=0.)
        def train(batches):
            for batch in batches: optimizer.step()
        def validate(batches):
            for batch in batches: pass
        c, n = control("stacks", "steps", "loader")
        from _brrrtop_agent.library import CONNECTED
        c._apply(CONNECTED)
        train(DataLoader(range(50))); time.sleep(.3); validate(DataLoader(range(50)))
        c._round(time.time_ns()); first = n.of(16); n.marks.clear()
        time.sleep(.3); c._apply(CONNECTED); train(DataLoader(range(50)))  # another monitor
        c._round(time.time_ns())
        answer([len(n.steps), len(n.of(2)), [first, n.of(16)], [m[2] for m in n.of(2)] + n.steps])
        """
    )
    assert steps == 100 and inputs == 51
    first, second = marks
    assert [mark[3] for mark in first] == [2, 1, 2] and [mark[3] for mark in second] == [2, 1]
    lines = [mark[4] for mark in first]
    assert [line.partition(" ")[2].partition(" <")[0] for line in lines] == [
        "train",
        "train",
        "validate",
    ]
    assert all(" <module> | for batch in" in line for line in (lines[0], lines[2])), lines
    assert {mark[2] for mark in second} <= set(ends), "at the time of the mark it is about"


def test_stacks_come_often_while_the_trainer_waits_and_seldom_while_it_runs(script):
    """A sample takes the interpreter from a thread that runs, and nothing from one that waits."""
    waiting, running = script(
        """
        c, n = control("stacks")
        from _brrrtop_agent.probes import places
        def period_ms(part):
            now_ns = [0]; places.ran_so_far_ns = lambda ident: int(part * now_ns[0])
            c.unhook(); c.hook()
            for turn in range(1, 100):
                now_ns[0] = turn * 50_000_000
                c.stacks.sample(turn * 50_000_000); c.stacks.weigh(100_000)
            return c.stacks.period_ms
        answer([period_ms(0.0), period_ms(1.0)])
        """
    )
    assert waiting == 25 and running > 2 * waiting
