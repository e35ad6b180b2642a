"""What goes wrong while a trainer is opened leaves nothing behind, in it or on the disk."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from brrrtop.cli import live, output
from brrrtop.cli.commands import attach
from brrrtop.cli.options import Options
from collectors.errors import PeerGone
from collectors.process import process as processes
from tests.live.agents import FakeAgent


def test_an_agent_that_has_gone_leaves_no_recording_behind(tmp_path: Path) -> None:
    agent = FakeAgent(0)
    agent.close()
    record = tmp_path / "run.brrr"
    with pytest.raises(PeerGone):
        live.open_live(agent, 1, Options(record=str(record), trace_graphs=True), "")
    assert not record.exists()


def test_an_interrupt_at_any_moment_after_the_attach_takes_the_agent_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[bool] = []
    process = processes.read(os.getpid())
    attached = SimpleNamespace(
        shared=True, process=process, took_ns=1, leave=lambda: left.append(True) or True
    )
    monkeypatch.setattr(attach, "attach", lambda *_, **__: attached)
    monkeypatch.setattr(attach, "agent_files", lambda: None)
    monkeypatch.setattr(attach, "_left", lambda *_: "")

    def interrupted(_text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(output, "say", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attach.watch(process, Options(once=True))
    assert left == [True]
