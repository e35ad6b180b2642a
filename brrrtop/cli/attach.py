"""`brrrtop attach PID`: the agent into a running trainer, and what it sees on the screen."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from brrrtop import units
from brrrtop.cli import gate, output
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError, UsageError
from collectors import process as processes
from collectors.process import Process

if TYPE_CHECKING:
    from collectors.attach import Attached
    from collectors.attach_files import AgentFiles


def run(options: Options) -> int:
    assert options.pid is not None
    gates = gate.parse_all(options.fail_if, options.hold_s)
    process = processes.read(options.pid)
    if not _agreed(process, options):
        return 0
    return watch(process, options, gates)


def watch(process: Process, options: Options, gates: tuple[gate.Gate, ...] = ()) -> int:
    """Attaches and shows; detaches at the end."""
    from brrrtop.cli import live
    from collectors.attach import attach

    _refuse_taken_file(options)
    attached = attach(process.pid, agent_files(), says=output.say)
    output.say(_how(attached))
    try:
        source = live.open_live(attached.client, process.pid, options, " ".join(process.cmdline))
    except BaseException:
        attached.client.close()
        raise
    try:
        return live.watch(source, options, gates)
    finally:
        if attached.place is not None:
            attached.place.remove()


def agent_files() -> AgentFiles:
    """Where the agent lies in this installation.

    Raises:
        CollectorError: Its library was not built.
    """
    from collectors.native import agent_files as found

    return found()


def _agreed(process: Process, options: Options) -> bool:
    """Somebody else's process is only entered after a yes; one's own was named, which is a yes."""
    if options.yes or process.uid == os.geteuid() or not sys.stdin.isatty():
        return True
    owner = processes.user_name(process.uid)
    output.say(f"process {process.pid} belongs to {owner}: {' '.join(process.cmdline)[:60]}")
    return confirmed("load brrrtop's agent into it?")


def confirmed(question: str) -> bool:
    """Asks on stderr; an empty answer is a yes."""
    sys.stderr.write(f"{question} [Y/n] ")
    sys.stderr.flush()
    answer = sys.stdin.readline()
    return bool(answer) and answer.strip().lower() in ("", "y", "yes")


def _refuse_taken_file(options: Options) -> None:
    """Before anything is done to a trainer: a recording that cannot be written is an error now."""
    if options.record is None:
        return
    if os.path.lexists(options.record):
        raise UsageError(f"{options.record} exists already and brrrtop never overwrites it")
    folder = Path(options.record).absolute().parent
    if not os.access(folder, os.W_OK):
        raise BrrrtopError(f"{options.record} cannot be made", f"`{folder}` must be writable")


def _how(attached: Attached) -> str:
    took = units.duration(attached.took_ns)
    if attached.shared:
        return f"joined the agent that is in process {attached.process.pid} already ({took})"
    held = units.duration(attached.stopped_ns)
    return f"attached by {attached.method} in {took}; a thread of the trainer was held for {held}"
