"""Trainers in which Python of ours in the main thread, or in a forked child, would do harm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collectors import bootstrap
from collectors import process as processes
from collectors.attach import attach
from collectors.attach_files import AgentFiles
from collectors.attach_method import Attempt
from collectors.attach_ptrace import PendingCall
from collectors.errors import CollectorError
from tests.attach import children
from tests.attach.children import Child, appears, python, writes, writes_pid
from tests.attach.test_ptrace import INTERPRETERS, label, settles

pytestmark = pytest.mark.usefixtures("tracing")
everywhere = pytest.mark.parametrize("interpreter", INTERPRETERS, ids=label)


def queue(one: Child, text: str) -> Attempt:
    return PendingCall().enter(processes.read(one.pid), text, None, 5.0)


def moves(one: Child) -> bool:
    """Its main thread gets on."""
    before = one.ticks
    return settles(lambda: one.ticks > before or not one.alive) and one.alive


@everywhere
@pytest.mark.parametrize("code", [children.REFUSING_EXEC, children.EXITING_AT_EXEC])
def test_an_audit_hook_that_refuses_our_text_is_told_and_ends_nobody(
    code: str, interpreter: str, stand_in: AgentFiles
) -> None:
    with python(code, interpreter) as one:
        with pytest.raises(CollectorError, match="an audit hook"):
            attach(one.pid, stand_in, need_torch=False)
        assert moves(one), one.said
        assert one.said == b"up\n", "nothing of ours on its screen"


@everywhere
def test_a_main_thread_at_its_recursion_limit_is_entered(interpreter: str, tmp_path: Path) -> None:
    with python(children.FULL_STACK, interpreter) as one:
        for count in (1, 2):
            assert queue(one, writes(tmp_path / "mark")).entered
            assert appears(tmp_path / "mark", count), one.said
        assert moves(one), one.said


@everywhere
def test_exceptions_of_signal_handlers_reach_the_user_and_nobody_else(
    interpreter: str, tmp_path: Path
) -> None:
    text = bootstrap.payload("/none", "/none.so", str(tmp_path / "s"))
    with python(children.RAISING, interpreter) as one:
        for _ in range(25):
            assert queue(one, text).entered
            one.said = b""
            assert one.hears(b">\n<"), "an exception was lost"
            assert one.alive, one.said
        refusal = tmp_path / ("s" + bootstrap.REFUSED_SUFFIX)
        assert settles(lambda: os.path.lexists(refusal)), "the text did run"


@everywhere
def test_a_forked_child_runs_nothing_of_ours(interpreter: str, tmp_path: Path) -> None:
    mark, go = tmp_path / "mark", tmp_path / "go"
    with python(f"PATH = {str(go)!r}\n{children.FORKING}", interpreter) as one:
        assert queue(one, writes_pid(mark)).entered
        go.touch()
        assert one.hears(b"forked"), one.said
        assert lines(mark) == []
        assert one.alive


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_the_text_does_nothing_in_another_process(tmp_path: Path) -> None:
    for number, pid in enumerate((os.getpid() + 1, 0, os.getpid())):
        path = tmp_path / str(number)
        exec(bootstrap.payload("/none", "/none.so", str(path), pid=pid), {})
        refusal = Path(f"{path}{bootstrap.REFUSED_SUFFIX}")
        assert settles(refusal.is_symlink, 5 if number else 0.3) == bool(number)
