"""The agent into the process that we are ourselves: for a program that asks to be watched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from collectors.agent.facts import VERSION
from collectors.attach import attach, bootstrap, files
from collectors.attach.attach import Attached
from collectors.attach.files import AgentFiles
from collectors.errors import CollectorError
from collectors.process import process as processes
from collectors.process.process import Process


@contextmanager
def listening(own: AgentFiles) -> Iterator[None]:
    """The agent loaded and listening. One that this brought is taken out again, with its folder: a
    monitor does that when it leaves, unless it never came or was killed.

    Raises:
        CollectorError: It cannot be loaded; says why.
    """
    process = processes.read(os.getpid())
    there = attach.find_agent(process)
    if there is not None:
        there.close()
        yield
        return
    _load(process, own)
    try:
        yield
    finally:
        there = attach.find_agent(process)
        if there is not None:
            Attached(there, process, "shared", (), None, 0).leave()


def _load(process: Process, own: AgentFiles) -> None:
    place = files.prepare(process, own)
    names: dict[str, Any] = {}
    exec(bootstrap.BOOT, names)  # noqa: S102 - text of ours
    paths = (place.agent_inside, place.library_inside, place.socket_inside)
    names["boot"](*paths, "", VERSION)
    reason = attach.why_refused(place)
    if reason:
        place.remove()
        raise CollectorError(f"the agent did not start: {reason}", "see `brrrtop doctor`")
    os.close(place.handle)
