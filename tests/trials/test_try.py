"""`brrrtop try` on real programs on the CPU: what is measured, what fails, and that nothing is left."""

import copy
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from brrrtop.errors import BrrrtopError, UsageError
from brrrtop.trials.edits import EDITS, line_of
from brrrtop.trials.program import Program, guarded_folder
from collectors.trial import guardian
from collectors.trial.edits import Autocast, Edits, Forward

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="no torch here")
ROOT = Path(__file__).parents[2]
EXAMPLE = [sys.executable, str(ROOT / "examples" / "slow_loader.py")]
COMMAND = [sys.executable, "-m", "brrrtop", "try", "--yes", "--seconds", "0.5"]
LIGHT = """
import sys, types
plain = types.SimpleNamespace(disable=lambda function, *_, **__: function, graph_break=lambda: None)
sys.modules["torch._dynamo"] = plain
"""
"""An optimizer imports torch's compiler, which takes as long as torch itself; here nothing is compiled."""
LOOP = """
import sys, torch
torch.manual_seed(0); torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    loss = model(torch.randn(64, 64)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    {more}
"""


def a_loop(folder: Path, steps: int = 10**9, more: str = "pass") -> list[str]:
    (folder / "loop.py").write_text(LIGHT + LOOP.format(more=more))
    return [sys.executable, str(folder / "loop.py"), str(steps)]


def tried(command: list[str], *options: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options, "--", *command], capture_output=True, text=True, timeout=120, **more
    )


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    *rows, last = map(json.loads, done.stdout.splitlines())
    assert last["schema"] == "brrrtop.try/1"
    assert {row["edit"] for row in rows} == {row["edit"] for row in last["edits"]}
    return dict(last)


def left_behind() -> list[str]:
    """Processes of this test's trials."""
    mark = os.fsencode(f"{guardian.MARK}={tempfile.gettempdir()}/")
    marked = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                marked.append(path.parent.name)
        except OSError:
            continue
    return marked


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch) -> Iterator[None]:
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    for name in ("TMPDIR", "XDG_RUNTIME_DIR", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    ends_s = time.monotonic() + 90
    while time.monotonic() < ends_s:
        remains = [*left_behind(), *folder.iterdir()]
        if not remains:
            folder.rmdir()
            return
        time.sleep(0.1)
    raise AssertionError(remains)


@pytest.mark.parametrize(
    "start",
    [
        "sleep 0.1; {mark} exec sleep 61.7",
        "touch /dev/shm/torch_$$_1_0; {mark} sh -c 'env -i sleep 61.7 & sleep 60'",
    ],
    ids=["after we were killed", "without an environment"],
)
def test_the_guardian_ends_what_is_being_started_and_what_it_started(monkeypatch, start):
    monkeypatch.setattr(guardian, "INTERRUPT_S", 3.0)
    with subprocess.Popen(
        ["sh", "-c", "echo; read _"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other, guarded_folder() as folder:  # fmt: skip
        assert other.stdout is not None and other.stdout.readline()
        words = start.format(mark=f"{guardian.MARK}={folder}")
        with subprocess.Popen(["sh", "-c", words], start_new_session=True) as program:
            time.sleep(0.02 if start.startswith("sleep") else 0.5)
            older = Path(f"/dev/shm/torch_{program.pid}_2_0")
            older.touch()
            os.utime(older, (1, 1))
            assert guardian.end(str(folder))
            assert program.wait(30) < 0
            assert list(Path("/dev/shm").glob(f"torch_{program.pid}_*")) == [older]
            older.unlink()
            running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
            assert b"sleep\x0061.7\0" not in running
        assert other.poll() is None, "nothing to do with it"
        other.communicate(b"\n")


def test_it_says_what_it_does_and_starts_nothing_without_a_yes(tmp_path):
    command = [one for one in COMMAND if one != "--yes"]
    done = subprocess.run(
        [*command, "--", "touch", str(tmp_path / "ran")],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    assert done.returncode == UsageError.exit_code
    assert "again and again" in done.stderr and "10 min" in done.stderr and "--yes" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_edits_that_fail_or_change_the_loss_are_rows_and_a_scratch_folder_takes_what_is_saved(
    tmp_path,
):
    more = "torch.save(model.state_dict(), 'best.pt'); torch.load('best.pt')"
    more += "\n    if optimizer.defaults['fused']: raise ValueError('not fused, please')"
    a_loop(tmp_path, more=more)
    (tmp_path / "best.pt").write_text("precious")
    done = tried([sys.executable, "-m", "loop", "1000000"], "--json", "--edits", "fused-optimizer,bf16",
                 "--scratch", str(tmp_path / "kept"), cwd=tmp_path,
                 env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    rows = {row["edit"]: row for row in report_of(done)["edits"]}
    assert rows["fused-optimizer"]["fault"] == "ValueError: not fused, please"
    assert rows["fused-optimizer"]["measured"] is None
    assert rows["bf16"]["fault"] is None and rows["bf16"]["loss_difference"] != 0
    assert (tmp_path / "best.pt").read_text() == "precious"
    kept = (path.relative_to(tmp_path / "kept") for path in (tmp_path / "kept").rglob("best.pt"))
    assert {"base", "bf16"} <= {path.parts[0] for path in kept}


def test_a_program_that_cannot_be_measured_says_why(tmp_path):
    without = [sys.executable, "-c", "pass"]
    for command, says in (
        (without, "no step was seen"),
        (a_loop(tmp_path, 50), "ended by itself after"),
    ):
        with guarded_folder() as folder:
            outcome = Program(command, folder, 1).run((), 0.5, 60.0)
        assert outcome.pace is None and says in (outcome.fault or "")


EVALUATES = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0); torch.set_num_threads(1)
model, loss = torch.nn.Linear(8, 1), torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(40, 8), torch.randn(40, 1))
train, test = DataLoader(data, 2), DataLoader(data, 2)
while True:
    for x, y in train:
        optimizer.zero_grad(); loss(model(x), y).backward(); optimizer.step(); time.sleep(0.02)
    {evaluation}
"""


@pytest.mark.parametrize(
    "evaluation",
    [
        "[(model(x), time.sleep(0.05)) for x, _ in test]",
        "model.eval(); time.sleep(1); model.train()",
    ],
    ids=["loader", "mode"],
)
def test_evaluations_are_no_part_of_the_steps(tmp_path, evaluation):
    """Steps of 20 ms and as many of evaluation: without them a step is not twice as long."""
    (tmp_path / "job.py").write_text(LIGHT + EVALUATES.format(evaluation=evaluation))
    with guarded_folder() as folder:
        outcome = Program([sys.executable, str(tmp_path / "job.py")], folder, 1).run((), 1.5, 60.0)
    assert outcome.pace is not None, outcome.fault
    assert outcome.pace.step_ns < 45e6, "with evaluations it is 70 ms and more"
    assert outcome.pace.samples == 2


@pytest.mark.parametrize("edit", ["bf16", "channels-last", "compile"])
def test_a_model_that_was_edited_can_be_copied_and_saved(edit, tmp_path, monkeypatch):
    """A copy (averaged weights, say) computes with its own weights; in a file the model is as it was."""
    import torch  # not while tests are collected: it takes seconds in each worker

    monkeypatch.setattr(torch, "compile", lambda forward, **_: lambda *given: forward(*given))
    monkeypatch.setattr(Forward, "torch", torch)
    edits = Edits([edit], 1)
    edits._torch = torch
    model, images = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)), torch.ones(1, 1, 2, 2)
    edits._prepare(model)
    assert edits.counts == {edit: 1} and not edits.problems
    before, twin = model(images), copy.deepcopy(model)
    torch.save(model, tmp_path / "model.pt")
    saved = torch.load(tmp_path / "model.pt", weights_only=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert not model(images).any()
    edits._prepare(twin)
    assert torch.equal(twin(images), before)
    assert edits.counts == {edit: 1}, "a copy is edited once"
    assert torch.allclose(saved(images), before, atol=0.02)
    assert not isinstance(saved.forward, Forward)


def test_what_a_model_returns_under_autocast_is_for_a_loss_outside(monkeypatch):
    """torchvision's segmentation returns a dict: a loss in bf16 made bf16 win 28 % where by hand it won 18."""
    import torch

    monkeypatch.setattr(Forward, "torch", torch)
    narrow, loss = torch.ones(2, dtype=torch.bfloat16), torch.ones((), dtype=torch.bfloat16)

    def types(value: Any) -> list[torch.dtype]:
        made = Autocast(lambda: value, "cpu")()
        return [one.dtype for one in (made.values() if isinstance(made, dict) else made)]

    assert types({"out": narrow, "aux": narrow}) == types((narrow, narrow)) == [torch.float32] * 2
    assert types({"loss": loss, "logits": narrow}) == types((narrow, loss)) == [torch.bfloat16] * 2


TRAINER = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64))
begin = model.forward
def forward(*given):
    with torch.autocast("cpu", torch.bfloat16):
        return begin(*given)
model.forward = forward  # as Accelerate does it
class Trainer:
    def train(self):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            model(torch.randn(64, 64)).float().square().mean().backward()
            optimizer.step(); optimizer.zero_grad()
"""


def test_a_trainer_of_a_library_gets_its_own_argument_and_its_autocast_is_seen(tmp_path):
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").touch()
    (tmp_path / "transformers" / "trainer.py").write_text(LIGHT + TRAINER)
    (tmp_path / "job.py").write_text("from transformers.trainer import Trainer; Trainer().train()")
    with guarded_folder() as folder:
        outcome = Program([sys.executable, str(tmp_path / "job.py")], folder, 1).run((), 0.5, 60.0)
    assert outcome.header is not None and outcome.pace is not None, outcome.fault
    facts = outcome.header.facts
    assert EDITS["bf16"].lacks(facts) == "the model runs under autocast already"
    assert line_of("loader-workers", facts, 4) == "TrainingArguments(dataloader_num_workers=4)"
    assert line_of("gc-freeze", facts, 4) == EDITS["gc-freeze"].line


def test_a_program_that_is_not_there_is_no_trial():
    with guarded_folder() as folder, pytest.raises(BrrrtopError, match="no such file"):
        Program(["/nowhere/train"], folder, 1).run((), 1.0, 5.0)


def test_torchrun_is_measured_by_rank_0(tmp_path):
    text = LOOP.format(more="pass").replace(
        "torch.nn.Linear(64, 64)",
        "torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))",
    ).replace("torch.manual_seed(0)", "torch.distributed.init_process_group('gloo')")  # fmt: skip
    (tmp_path / "job.py").write_text(text)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
               str(tmp_path / "job.py"), "1000000"]  # fmt: skip
    with guarded_folder() as folder:
        outcome = Program(command, folder, 1).run(("tf32",), 0.5, 100.0)
    assert outcome.fault is None and outcome.pace is not None
    assert outcome.header is not None and outcome.header.rank == "0"


KILLS = int(os.environ.get("BRRRTOP_KILLS", "1"))
"""Of each signal, at another moment each."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL] * KILLS)
def test_nothing_is_left_of_what_is_ended_at_any_moment(tmp_path, number):
    stubborn = "import signal, subprocess; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    stubborn += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    stubborn += "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
    command = a_loop(tmp_path)
    if number == signal.SIGKILL:  # the others need not wait for one that does not hear
        (tmp_path / "loop.py").write_text(stubborn + LIGHT + LOOP.format(more="pass"))
    program = subprocess.Popen(
        [*COMMAND, "--", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    ends_s = time.monotonic() + 60
    while not left_behind() and time.monotonic() < ends_s:
        time.sleep(0.02)
    time.sleep(random.uniform(0, 3))
    program.send_signal(number)
    code = program.wait(120)
    assert code in (130, 143, -number, -signal.SIGALRM)


def test_in_the_background_of_a_script_a_trial_still_ends_by_the_first_signal(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as `sh -c "… &"` leaves it
    try:
        with guarded_folder() as folder:
            program = Program(a_loop(tmp_path), folder, 1)
            with program.running(()) as trace:
                ends_s = time.monotonic() + 60
                while trace.header is None and time.monotonic() < ends_s:
                    trace.update()
                    time.sleep(0.05)
            assert program.process.returncode in (-signal.SIGINT, 130, 1)
    finally:
        signal.signal(signal.SIGINT, before)


GPU = """
import torch
class Event:
    def __init__(self, enable_timing): assert enable_timing
    def record(self): self.step = step
    def query(self): return step > self.step + 1  # the GPU is a step behind
    def elapsed_time(self, later): return 10.0 * (later.step - self.step)
torch.cuda.Event, torch.cuda.is_initialized = Event, lambda: True
torch.cuda.max_memory_allocated, torch.cuda.get_device_name = lambda: 12345, lambda: "H100"
"""


def test_on_a_gpu_its_events_say_when_steps_end(tmp_path):
    command = a_loop(tmp_path, more="import time; time.sleep(0.001)")
    script = tmp_path / "loop.py"
    script.write_text(GPU + script.read_text())
    with guarded_folder() as folder:
        outcome = Program(command, folder, 1).run((), 1.0, 60.0)
    assert outcome.pace is not None and outcome.header is not None, outcome.fault
    assert outcome.pace.step_ns == pytest.approx(10e6)
    assert (outcome.pace.peak_bytes, outcome.header.gpu) == (12345, "H100")


def test_a_program_that_is_killed_is_a_row_that_says_so():
    with guarded_folder() as folder:
        outcome = Program(["sh", "-c", "kill -9 $$"], folder, 1).run((), 5.0, 60.0)
    assert (outcome.pace, outcome.fault) == (None, "it was ended by SIGKILL")
