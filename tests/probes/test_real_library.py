"""Bootstrap, probes, the real C library and the wire, in a trainer with torch on the CPU."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from collectors import vocabulary
from collectors.attach import agent_library, bootstrap
from collectors.errors import CollectorError
from collectors.protocol import frames as wire

from .conftest import AGENT, clean_environment

TRAINING = [vocabulary.MarkClass.STEP, vocabulary.MarkClass.INPUT]
TRAIN = f"""
import gc, sys, time
sys.path.append({str(Path(__file__).parents[1])!r})
import torch
from descent import Descent
from torch.utils.data import DataLoader, TensorDataset
from torch.optim.optimizer import _global_optimizer_post_hooks as hooks
m = torch.nn.Linear(8, 8); o = Descent(m.parameters())
with open(sys.argv[1]) as file: exec(file.read())
data = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8)
end = time.monotonic() + 30; seen = False; kinds = set()
while time.monotonic() < end and not (seen and not hooks):
    for (x,) in data:
        o.zero_grad(); m(x).sum().backward(); o.step(); time.sleep(.001)
    seen = seen or bool(hooks); gc.collect(); kinds.update(type(one).__name__ for one in gc.callbacks)
print("hooked" if seen else "never", len(hooks), *kinds)
"""


def test_steps_and_waits_arrive_and_end_when_the_monitor_leaves(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the trainer of this test needs torch")
    try:
        library = agent_library.library_path()
    except CollectorError as fault:
        pytest.skip(str(fault))
    place = tmp_path / "s"
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "payload").write_text(bootstrap.payload(str(AGENT), str(library), str(place)))
    trainer = subprocess.Popen(
        [sys.executable, "train.py", "payload"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    marks: Counter[int] = Counter()
    names: dict[int, str] = {}
    hellos: list[dict[str, object]] = []
    threads: set[int] = set()
    end = time.monotonic() + 30
    try:
        with socket.socket(socket.AF_UNIX) as monitor:
            while monitor.connect_ex(os.fspath(place)) and time.monotonic() < end:
                time.sleep(0.02)
            monitor.settimeout(1)
            decoder = wire.Decoder()
            while (marks[1] < 100 or len(hellos) < 2) and time.monotonic() < end:
                for frame in decoder.feed(monitor.recv(1 << 16)):
                    if frame.kind == wire.Kind.NAMES:
                        names.update(frame.body)
                    elif frame.kind == wire.Kind.HELLO:
                        hellos.append(frame.body)
                    elif frame.kind == wire.Kind.MARKS:
                        marks.update(frame.body["mark_class"].tolist())
                        # A collection of garbage comes in whichever thread allocates.
                        of_steps = np.isin(frame.body["mark_class"], TRAINING)
                        threads.update(frame.body["tid"][of_steps].tolist())
        left = time.monotonic()
        out = trainer.communicate(timeout=20)[0]
    finally:
        trainer.kill()
        trainer.wait()
    # Of a call of ctypes' audit hooks are told from 3.14 on: Python runs in them, and its signal handlers.
    assert out == "hooked 0 builtin_function_or_method\n" and trainer.returncode == 0
    assert time.monotonic() - left < 5, "the probes go with the monitor"
    assert abs(marks[vocabulary.MarkClass.INPUT] - marks[vocabulary.MarkClass.STEP] * 9 / 8) < 20
    assert any(name.startswith("DataLoader(num_workers=0") for name in names.values())
    assert marks[vocabulary.MarkClass.GC] and "gc generation 2" in names.values()
    assert hellos[0]["pid"] == trainer.pid and hellos[0]["torch"] and len(threads) == 1
    assert not place.exists(), "the socket goes when the trainer ends"
