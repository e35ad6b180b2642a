"""Everything from a real torch training to the real screen; only NVIDIA's libraries are stand-ins.

A child trains, ptrace lets the agent in, kernels, steps and loader waits come over the socket, the
monitor judges them, and Textual draws the verdict.
"""

import json
import os
import re
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.conftest import built
from tests.attach.children import child
from tests.attach.conftest import tracing

__all__ = ["built", "tracing"]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE_S = 60.0


def a_screen(monitor: subprocess.Popen[str], name: str) -> str:
    """The next screen that the monitor prints."""
    ready, _, _ = select.select([monitor.stdout], [], [], PATIENCE_S)
    assert ready, f"{name} never came"
    line = monitor.stdout.readline()
    assert line, monitor.stderr.read()
    return str(json.loads(line)[name])


@pytest.mark.timeout(240)
def test_a_training_is_watched_from_its_first_verdict_to_its_end_and_into_its_restart(
    tracing, built, fake_nvml
):
    pytest.importorskip("torch")
    command = [sys.executable, str(HERE / "training.py"), str(built["cuda"]), str(built["cupti"])]
    with child(command) as trainer:
        assert trainer.hears(b"step 3", 40), trainer.output.decode()
        environment = {"LD_LIBRARY_PATH": str(fake_nvml), "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            [sys.executable, str(HERE / "watched.py"), str(trainer.pid)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | environment,
        ) as monitor:  # fmt: skip
            try:
                main = a_screen(monitor, "main")
                assert f"pid {trainer.pid} · NVIDIA Fake" in main
                assert "WAITS FOR DATA" in main
                assert "ampere_sgemm_128x64_nn" in main
                assert "DataLoader(" in main
                waits = re.search(r"waits for data ([0-9.]+) ms", main)
                assert waits is not None, main
                assert float(waits[1]) > 1, "the loader holds each step up"
                assert "● live" in main and "live/bursts" in main
                assert "kernel tracing is ready" in a_screen(monitor, "log")
                trainer.output = b""
                assert trainer.hears(b"step"), "the training goes on"
                trainer.process.kill()
                trainer.process.wait(10)
                monitor.stdin.write("\n")
                monitor.stdin.flush()
                ended = a_screen(monitor, "ended")
                assert "■ ended" in ended
                assert f"pid {trainer.pid}" in ended
                assert "exited: killed by SIGKILL; looking for the same command" in ended
                with child(command) as second:
                    offered = a_screen(monitor, "offered")
                    assert f"pid {second.pid} runs the same command: Enter to watch" in offered
                    compared = a_screen(monitor, "compared")
                    assert f"pid {second.pid} · NVIDIA Fake" in compared
                    assert f"pid {trainer.pid}, exited" in compared
                assert monitor.wait(PATIENCE_S) == 0
            finally:
                monitor.kill()
