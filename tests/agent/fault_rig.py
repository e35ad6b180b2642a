"""Lives through one fault: a trainer, who watches it, and what each of them noticed."""

import json
import os
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from collectors.protocol.frames import Kind
from tests import waits
from tests.agent.faults import ALL, Fault
from tests.agent.rig import Monitor, Trainer

ROOT = Path(__file__).resolve().parents[2]
NVML_CHILD = ROOT / "tests" / "live" / "child.py"
STEPS = 100
RESULT = zlib.crc32("".join(map(str, range(STEPS))).encode())
PATIENCE_S = 15.0
LONGEST_S = 2.0
"""No step may take that long: what hangs for 2.5 s has not held the trainer."""
END = "end"
MOST_IN_A_BURST = 100
"""Of three steps with ten kernels each, and some at the edges."""
OPTIONS = "drain_ms=50;flush_ms=30"
TRAINING = f"""
import select, zlib
own, epoll, room = ctypes.CDLL(None, use_errno=True), select.epoll(), ctypes.create_string_buffer(12)
def train(launch, until):
    state, longest, step, cut = 0, 0.0, 0, 0
    while step < {STEPS} or not os.path.exists(until):
        began = time.perf_counter()
        if step < {STEPS}: state = zlib.crc32(str(step).encode(), state)
        launch()
        # The interpreter may be asked here, and the thread held; Python would make an own wait again.
        cut += own.epoll_wait(epoll.fileno(), room, 1, 4) != 0
        longest, step = max(longest, time.perf_counter() - began), step + 1
    return [state, longest, cut, report()]
def launched():
    cupti.fake_launch(name('gemm'), 10, 20_000, 0, 7)
    lib.brrr_step(time.time_ns(), threading.get_native_id())
"""
ATTACH = """
import sys
from pathlib import Path
from collectors.attach import agent_library as native
from collectors.attach.attach import attach
from collectors.attach.files import AgentFiles
from collectors.errors import CollectorError
try:
    attach(int(sys.argv[1]), AgentFiles(native.AGENT_DIR, Path(sys.argv[2])), need_torch=False)
    print("attached")
except CollectorError as fault:
    print(fault.message)
"""


@dataclass
class Outcome:
    """What was noticed."""

    says: list[str] = field(default_factory=list)
    losses: dict[str, int] = field(default_factory=dict)
    kernels: int = 0
    lacks: set[str] = field(default_factory=set)
    beyond: bool = False
    hung_up: bool = False
    turned_away: bool = False
    hits: int = 1
    result: int = RESULT
    longest_s: float = 0.0
    own_calls: list[object] = field(default_factory=list)
    """Of the trainer's those that returned what they would not alone."""
    exit_code: int | None = 0

    def unfulfilled(self, fault: Fault) -> list[str]:
        """What of the row's promises to the user has not come true."""
        parts = fault.must_say.split("…")
        message = any(all(part in one for part in parts) for one in ["", *self.says])
        missing = [] if message else [fault.must_say]
        missing += [f"lost {one}" for one in fault.losses if not self.losses.get(one)]
        missing += ["kernels"] if fault.kernels and not self.kernels else []
        missing += ["kernels from beyond"] if fault.beyond and not self.beyond else []
        missing += ["a hang-up"] if fault.hung_up and not self.hung_up else []
        return missing

    def broken(self, fault: Fault) -> list[str]:
        """All in which the row is wrong."""
        wrong = self.unfulfilled(fault)
        told_all = fault.lacks or fault.sees.startswith(ALL)  # a gap may hold a name or a launch
        lacks = set(filter(None, [fault.lacks]))
        wrong += [f"{self.lacks} lacking"] if told_all and self.lacks != lacks else []
        wrong += ["the fault itself"] if self.hits < 1 else []
        wrong += ["no hang-up"] if self.hung_up != fault.hung_up else []
        wrong += ["the second monitor"] if self.turned_away != fault.turned_away else []
        wrong += ["the result"] if self.result != RESULT else []
        wrong += ["the exit code"] if self.exit_code != 0 else []
        wrong += ["the trainer's own calls"] if self.own_calls else []
        wrong += ["no step so long"] if self.longest_s > LONGEST_S else []
        return wrong


def live_through(fault: Fault, built: dict[str, Path], folder: Path) -> Outcome:
    """The fault from before it begins to the trainer's end."""
    folder.mkdir()
    if fault.begins == "nvml":
        return _ask_nvml(fault, built)
    if fault.begins == "attach":
        return _enter(fault, built, folder)
    environment = {"LD_PRELOAD": str(built["faults"]), "BRRRTOP_FAULT": fault.script}
    trainer, outcome = Trainer(built, folder, **environment), Outcome()
    monitors: list[Monitor] = []
    try:
        trainer.load().do("faults = ctypes.CDLL(None)")
        _prepare(trainer)
        if fault.begins == "start":
            _arm(trainer)
        try:
            trainer.start(OPTIONS)
            monitors.append(Monitor(trainer.socket_path))
        except AssertionError as refused:
            outcome.says.append(str(refused).splitlines()[0])
        if monitors and fault.begins != "start":
            monitors[0].in_state("ready")
            _arm(trainer)
        trainer.begin(f"answer = train(launched, {str(folder / END)!r})")
        if monitors:
            _watch(fault, trainer, monitors, outcome)
        _end_training(trainer, outcome)
        trainer.do("lib.brrr_stop()")
        calls = [part.split(":")[0] for part in fault.script.split(",")]
        hits = ", ".join(f"faults.fault_hits({call.encode()!r})" for call in calls)
        outcome.hits = min(trainer.do(f"answer = [{hits}]"))
        outcome.exit_code = trainer.end()
    finally:
        for monitor in monitors:
            monitor.close()
        trainer.close()
    return outcome


def _arm(trainer: Trainer) -> None:
    assert trainer.do("answer = faults.fault_arm(b'libbrrrtop_agent')")


def _prepare(trainer: Trainer) -> None:
    """A thread of it stands in each call that a stop can cut short, and now and then its main one too."""
    waiting = waits.BEGIN.format(library=str(trainer.built["waits"]), limit_ms=100)
    trainer.do(waiting + TRAINING)


def _end_training(trainer: Trainer, outcome: Outcome) -> None:
    (trainer.folder / END).touch()
    outcome.result, outcome.longest_s, cut, told = trainer.answer()
    outcome.own_calls += [f"epoll_wait of the main thread, {cut} times"] if cut else []
    outcome.own_calls += [waits.odd_waits(told)] if waits.odd_waits(told) else []
    trainer.do("waiting.waits_end()")


def _watch(fault: Fault, trainer: Trainer, monitors: list[Monitor], outcome: Outcome) -> None:
    """Asks for bursts until what the row promises has come."""
    first, until, asked_s = monitors[0], time.monotonic() + PATIENCE_S, 0.0
    if fault.begins == "knock":
        outcome.turned_away = not _knock(trainer, monitors)
    while time.monotonic() < until and outcome.unfulfilled(fault) and not first.ended:
        if time.monotonic() - asked_s > 0.4:
            asked_s = time.monotonic()
            _order_burst(first)
        first.read()
        _gather(first, outcome)


def _order_burst(monitor: Monitor) -> None:
    try:
        monitor.burst(steps=3, longest_s=0.2)
    except (BrokenPipeError, ConnectionResetError):
        monitor.ended = True


def _knock(trainer: Trainer, monitors: list[Monitor]) -> bool:
    """A second monitor; whether it hears a hello, sooner or later."""
    second, until = Monitor(trainer.socket_path), time.monotonic() + PATIENCE_S
    monitors.append(second)
    while time.monotonic() < until and not second.ended and not second.of(Kind.HELLO):
        second.read()
    return bool(second.of(Kind.HELLO))


def _gather(monitor: Monitor, outcome: Outcome) -> None:
    for frame in monitor.of(Kind.STATUS):
        message = (frame.body["says"], (frame.body["cupti"] or {}).get("last_fault", ""))
        outcome.says += [one for one in message if one and one not in outcome.says]
    outcome.losses, outcome.hung_up = monitor.losses(), monitor.ended
    rows, calls = monitor.rows(Kind.KERNELS), monitor.rows(Kind.CALLS)
    if rows is not None and monitor.bursts:  # one is over: its launches have come too
        outcome.kernels = len(rows)
        outcome.beyond = outcome.kernels > MOST_IN_A_BURST * len(monitor.bursts)
        outcome.lacks = set() if rows["name_id"].any() else {"names"}
        outcome.lacks |= set() if calls is not None else {"launches"}


def _enter(fault: Fault, built: dict[str, Path], folder: Path) -> Outcome:
    """A monitor in a process of its own, whose ptrace has the fault, and a trainer that trains on."""
    trainer, outcome = Trainer(built, folder), Outcome()
    try:
        _prepare(trainer)
        trainer.begin(f"answer = train(lambda: None, {str(folder / END)!r})")
        pid = str(trainer.process.pid)
        script = {"LD_PRELOAD": str(built["faults"]), "BRRRTOP_FAULT": fault.script}
        done = subprocess.run(
            [sys.executable, "-c", ATTACH, pid, str(built["agent"])],
            env={**os.environ, **script, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
        outcome.says = [done.stdout + done.stderr]
        _end_training(trainer, outcome)
        outcome.exit_code = trainer.end()
    finally:
        trainer.close()
    return outcome


def _ask_nvml(fault: Fault, built: dict[str, Path]) -> Outcome:
    """The monitor's own reading of the counters; the trainer has no part in it."""
    name, _, code = fault.script.partition(":")
    script = {"FAKE_NVML_FAIL": f"{name}={code}", "FAKE_NVML_GPM": "2=96,5=93.5"}
    done = subprocess.run(
        [sys.executable, str(NVML_CHILD), "readings"],
        env={
            **os.environ,
            **script,
            "LD_LIBRARY_PATH": str(built["nvml"].parent),
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    if done.returncode != 0:
        return Outcome(says=[done.stderr])
    got = json.loads(done.stdout)
    read = {metric for one in got["rounds"] for metric in one}
    absent = [f"{one} absent" for one in ("TEMPERATURE_C", "SM_ACTIVE") if one not in read]
    return Outcome(says=[*got["says"], got["lost"] or "", *absent])
