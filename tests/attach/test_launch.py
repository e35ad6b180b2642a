"""`brrrtop run -- CMD`: the command runs as if alone, and each trainer in it gets an agent."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from collectors.attach import launch as launching
from collectors.attach.launch import Launched, launch
from collectors.errors import LaunchFailed

_TORCH = """
class cuda:
    _initialized = False
"""


@pytest.fixture
def env(tmp_path) -> dict[str, str]:
    """An environment with a package that is called torch and takes no time."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "torch.py").write_text(_TORCH)
    return {**os.environ, "PYTHONPATH": str(tmp_path / "lib")}


@contextmanager
def running(argv: list[str], *more: object, **options: object) -> Iterator[Launched]:
    one = launch(argv, *more, **options)  # type: ignore[arg-type]
    try:
        yield one
    finally:
        if one.exit_code is None:
            one.process.kill()
            one.process.wait(10)
        one.remove()
        assert one.folder is not None and not one.folder.exists()


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


_USES_CUDA = "import torch, time; torch.cuda._initialized = True; time.sleep(600)"


def test_a_trainer_gets_an_agent_once_it_uses_cuda(stand_in, env):
    with running(script(_USES_CUDA), stand_in, "a=b", env=env) as one:
        client = one.first_agent(10)
        assert client is not None
        assert client.hello["pid"] == one.pid
        assert client.hello["options"].split(";")[0] == "a=b"
        client.close()


def test_a_python_without_cuda_gets_none(stand_in, env):
    code = "import torch, threading, time; time.sleep(0.4)"
    with running(script(code), stand_in, env=env) as one:
        assert one.first_agent(5) is None
        assert one.exit_code == 0
        assert one.sockets() == {}


def test_each_rank_gets_its_own_and_helpers_get_none(stand_in, env):
    code = f"""
import os, subprocess, sys, torch
ranks = [
    subprocess.Popen([sys.executable, "-c", {_USES_CUDA!r}], env=dict(os.environ, RANK=str(n)))
    for n in range(2)
]
helper = subprocess.Popen([sys.executable, "-c", "import torch, time; time.sleep(600)"])
try: sys.stdin.read()
finally:
    for one in (*ranks, helper): one.kill()
"""
    reader, writer = os.pipe()
    before = os.dup(0)
    os.dup2(reader, 0)
    try:
        with running(script(code), stand_in, env=env) as one:
            second = one.first_agent(10, rank=1)
            first = one.first_agent(10, rank=0)
            assert first is not None
            assert second is not None
            assert first.hello["pid"] != second.hello["pid"]
            time.sleep(0.3)
            assert set(one.sockets()) == {first.hello["pid"], second.hello["pid"]}
            first.close()
            second.close()
            os.close(writer)
            assert one.process.wait(10) == 0
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reader)


def test_the_module_path_is_as_without_us(stand_in, env):
    code = "import sys; print([p for p in sys.path if p]); print(sys.argv)"
    plain = subprocess.run(script(code), env=env, capture_output=True, text=True).stdout
    reader, writer = os.pipe()
    before = os.dup(1)
    os.dup2(writer, 1)
    try:
        with running(script(code), stand_in, env=env) as one:
            one.process.wait(10)
    finally:
        os.dup2(before, 1)
        os.close(before)
        os.close(writer)
    with open(reader) as pipe:
        assert pipe.read() == plain


def test_the_users_own_sitecustomize_runs(stand_in, env, tmp_path):
    mark = tmp_path / "mark"
    text = f"import sys; open({str(mark)!r}, 'w').write(__name__ + ' ' + __file__)"
    (tmp_path / "lib" / "sitecustomize.py").write_text(text)
    code = "import sys, sitecustomize; sys.exit(0 if 'lib' in sitecustomize.__file__ else 5)"
    with running(script(code), stand_in, env=env) as one:
        assert one.process.wait(10) == 0
    assert mark.read_text() == f"sitecustomize {tmp_path / 'lib' / 'sitecustomize.py'}"


def test_nothing_is_printed_without_a_sitecustomize(stand_in, env, capfd):
    with running(script("print('only this')"), stand_in, env=env) as one:
        assert one.wait() == 0
    assert capfd.readouterr() == ("only this\n", "")


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_passed_on(code, stand_in):
    with running(script(f"raise SystemExit({code})"), stand_in) as one:
        assert one.wait() == code


def test_a_death_by_signal_is_told_as_a_shell_tells_it(stand_in):
    with running(script("import os; os.kill(os.getpid(), 9)"), stand_in) as one:
        assert one.wait() == 128 + 9


@pytest.mark.parametrize(("at_terminal", "reach_it"), [(False, 2), (True, 1)])
def test_signals_to_us_reach_the_command_once(at_terminal, reach_it, stand_in, monkeypatch):
    """At the terminal ^C reaches it without us."""
    monkeypatch.setattr(launching, "_in_foreground", lambda: at_terminal)
    code = """
import signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, lambda n, _: seen.append(n))
print("up", flush=True)
while signal.SIGTERM not in seen: time.sleep(0.01)
time.sleep(0.2)
sys.exit(len(seen) * 10)
"""
    sent: list[int] = []

    def meanwhile() -> None:
        if len(sent) < 2:
            sent.append([signal.SIGINT, signal.SIGTERM][len(sent)])
            os.kill(os.getpid(), sent[-1])

    with running(script(code), stand_in) as one:
        time.sleep(0.5)
        assert one.wait(meanwhile) == 10 * reach_it
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_command_that_is_not_there_is_told_as_a_shell_tells_it(stand_in):
    with pytest.raises(LaunchFailed) as caught:
        launch(["no-such-command-anywhere"], stand_in)
    assert caught.value.exit_code == 127


def test_a_command_that_may_not_run_is_told_as_such(stand_in, tmp_path):
    (tmp_path / "script").write_text("#!/bin/sh\n")
    with pytest.raises(LaunchFailed) as caught:
        launch([str(tmp_path / "script")], stand_in)
    assert caught.value.exit_code == 126
    assert "chmod" in caught.value.action
    with pytest.raises(LaunchFailed) as caught:
        launch([str(tmp_path)], stand_in)
    assert "chmod" not in caught.value.action and "program in it" in caught.value.action
