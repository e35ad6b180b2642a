"""`brrrtop run -- COMMAND`: starts a program with the agent in it and watches beside it.

The program keeps the terminal and its exit code is passed on. Where there is no agent to be had, it
runs all the same, and the counters of its GPUs are all that is seen.
"""

import time
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from brrrtop.cli import fail_if as gate
from brrrtop.cli import live, output
from brrrtop.cli.live import LaunchedRanks
from brrrtop.cli.options import Options
from brrrtop.errors import GateTripped, UsageError
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.session.controller import Controller
from brrrtop.session.live import Live
from brrrtop.views.text import to_text
from collectors.attach import agent_library
from collectors.attach.client import Client
from collectors.attach.files import AgentFiles
from collectors.attach.launch import Launched, launch
from collectors.errors import CollectorError, NotWritable
from collectors.process import process as processes
from collectors.process.proc import status_text


def run(options: Options) -> int:
    if not options.command:
        raise UsageError("run what?", "brrrtop run -- python train.py")
    gates = options.gates
    live.refuse_taken_file(options)
    files = _agent_files()
    launched = _launch(options.command, files)
    try:
        beside = _Beside(launched, options)
        code = launched.wait(beside.check)
        beside.finish()
        if code == 0 and not beside.tripped:
            gate.finish(gates)
        return code or (GateTripped.exit_code if beside.tripped else 0)
    finally:
        launched.remove()


def _agent_files() -> AgentFiles | None:
    """What goes into the program; None, and a sentence, where nothing can: it is to run all the same."""
    try:
        return agent_library.agent_files()
    except CollectorError as fault:
        output.say(_without_agent(fault))
        return None


def _launch(command: Sequence[str], files: AgentFiles | None) -> Launched:
    if files is not None:
        try:
            return launch(command, files)
        except NotWritable as fault:
            output.say(_without_agent(fault))
    return launch(command, None)


def _without_agent(fault: CollectorError) -> str:
    """What is missing, what that means, and what helps; that counters are left is no help here."""
    helps = fault.action.removesuffix(agent_library.COUNTERS_ALONE).removesuffix(", or ")
    means = "the program runs without the agent and only the GPU's counters are watched"
    message = f"brrrtop: {fault.message}: {means}"
    return f"{message}; for kernels and causes {helps}" if helps else message


class _Beside:
    """Watches while the program has the terminal. Its own faults never reach the program."""

    def __init__(self, launched: Launched, options: Options) -> None:
        self._launch = launched
        self._options = options
        self._gates = list(options.gates)
        self._driver: Live | None = None
        self._next_s = 0.0
        self._opened_s = 0.0
        self._latest: Snapshot | None = None
        self._reported = self._shapes_told = False
        self._given_up = False
        self.tripped = False

    def check(self) -> None:
        if self._given_up or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + self._options.interval
        try:
            if self._driver is None:
                self._connect()
            else:
                self._judge(self._driver.advance())
        except Exception as fault:  # noqa: BLE001 - the program goes on whatever happens to us
            self._given_up = True
            output.say(f"brrrtop: no longer watching: {fault}")

    def finish(self) -> None:
        """The last look, and the report on stderr: stdout is the program's."""
        for _ in range(1 if self._driver is not None else 2):  # the first one may have to open it
            if self._driver is not None:
                self._driver.exited(self._end())
            self._next_s = 0.0
            self.check()
        if self._driver is not None:
            live.detach(self._driver)
        if self._driver is None and not self._given_up:
            output.say(_saw_nothing(self._options))
        elif self._latest is not None and not self._options.json and not self._reported:
            ended = replace(self._latest, freshness=Freshness.ENDED)
            output.say(to_text(ended, output.only_ascii(self._options)).rstrip())

    def _end(self) -> str:
        code = self._launch.process.returncode
        return f"the program exited: {status_text(code << 8 if code >= 0 else -code)}"

    def _connect(self) -> None:
        self._opened_s = time.monotonic()
        if self._launch.folder is None:
            command = " ".join(self._options.command)
            counters = live.open_live(None, self._launch.pid, self._options, command)
            self._driver = live.plain(counters, self._options)
            return
        for pid in _first_rank_first(self._launch.sockets()):
            with suppress(CollectorError):
                client = self._launch.connect(pid)
                if (client.hello.get("world") or 1) > 1:
                    self._driver = LaunchedRanks(self._launch, self._options).job(client, pid)
                else:
                    self._driver = live.plain(_open(client, pid, self._options), self._options)
                output.say(f"brrrtop: watching {pid}; the screen: brrrtop attach {pid}")
                return

    def _judge(self, snapshot: Snapshot) -> None:
        if snapshot.estimate is not None or self._latest is None or self._latest.estimate is None:
            self._latest = snapshot
        else:
            self._latest = replace(self._latest, source=snapshot.source)
        shapes_outcome = live.outcome_of_shapes(snapshot, self._options)
        if shapes_outcome and not self._shapes_told:
            self._shapes_told = True
            output.say(f"brrrtop: {shapes_outcome}")
        if self._options.once:
            ready = snapshot.estimate is not None and shapes_outcome is not None
            if (ready or self._only_counters_come()) and not self._reported:
                output.report(snapshot, self._options)
                self._reported = True
        elif self._options.json:
            output.report(snapshot, self._options)
        for one in [one for one in self._gates if one.trips(snapshot)]:
            self._gates.remove(one)
            self.tripped = True
            output.say(f"brrrtop: {gate.trip_error(one).message}")

    def _only_counters_come(self) -> bool:
        waited_s = time.monotonic() - self._opened_s
        return self._launch.folder is None and waited_s > live.COUNTERS_S


def _saw_nothing(options: Options) -> str:
    lacks = f": {options.record} was not written" if options.record else ""
    return f"brrrtop: the program ended without having used CUDA{lacks}"


def _first_rank_first(sockets: dict[int, str]) -> list[int]:
    def rank(pid: int) -> int:
        try:
            return processes.read(pid).ranks.get("RANK", 0)
        except CollectorError:
            return 1 << 30

    return sorted(sockets, key=rank)


def _open(client: Client, pid: int, options: Options) -> Controller:
    try:
        return live.open_live(client, pid, options, " ".join(options.command))
    except BaseException:
        client.close()
        raise
