"""The agent into the process that we are ourselves: for a program that asks to be watched."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from collectors.agent.facts import VERSION
from collectors.attach import attach, files
from collectors.attach.attach import Attached
from collectors.attach.files import AgentFiles
from collectors.errors import CollectorError
from collectors.process import process as processes
from collectors.process.process import Process

_AGENT = "_brrrtop_agent"
"""The name that every way in gives it, so that no two are loaded."""


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
    try:
        refusal = _module(place.agent_inside)(
            place.library_inside, place.socket_inside, "", VERSION
        )
    except Exception as fault:
        place.remove()
        raise CollectorError(f"the agent did not start: {fault}", "see `brrrtop doctor`") from fault
    if refusal:
        place.remove()
        raise CollectorError(f"the agent did not start: {refusal}", "see `brrrtop doctor`")
    os.close(place.handle)


def _module(folder: str) -> Any:
    """The agent's own `load`, from the closed package that lies in `folder`."""
    if _AGENT not in sys.modules:
        spec = spec_from_file_location(
            _AGENT, f"{folder}/__init__.py", submodule_search_locations=[folder]
        )
        if spec is None or spec.loader is None:
            raise CollectorError(f"{folder} holds no agent", "install brrrtop again")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[_AGENT] = module
    return import_module(f"{_AGENT}.loading").load()
