"""What only a GPU can show of the probes: CUDA facts, allocator retries, threads as CUPTI has them."""

import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.attach import agent_library, bootstrap
from collectors.protocol import frames as wire
from collectors.protocol import requests
from collectors.protocol.frames import Kind
from collectors.vocabulary import CallClass, MarkClass

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

TRAIN = """
import gc, sys, time, torch
m = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda()
o = torch.optim.AdamW(m.parameters())
with open(sys.argv[1]) as file: exec(file.read())
torch.cuda.set_per_process_memory_fraction(0.05)
limit = int(torch.cuda.get_device_properties(0).total_memory * 0.05)
x = torch.randn(64, 512, device="cuda")
end = time.monotonic() + 40; turn = 0
while time.monotonic() < end:
    o.zero_grad(); loss = m(x).square().mean(); loss.backward(); o.step()
    loss.item()
    turn += 1
    if turn % 500 == 0:  # blocks that do not fit beside the cached ones: the allocator retries
        small = [torch.empty(limit // 16, dtype=torch.uint8, device="cuda") for _ in range(10)]
        del small
        large = torch.empty(limit // 2, dtype=torch.uint8, device="cuda")
        del large
"""


class Watched:
    """A trainer on the GPU and what its agent has said so far."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "s"
        agent = agent_library.AGENT_DIR
        text = bootstrap.payload(str(agent), str(agent_library.library_path()), str(self.place))
        (folder / "payload").write_text(text)
        (folder / "train.py").write_text(TRAIN)
        self.trainer = subprocess.Popen([sys.executable, "train.py", "payload"], cwd=folder)
        self.monitor = socket.socket(socket.AF_UNIX)
        self.decoder = wire.Decoder()
        self.names: dict[int, str] = {}
        self.bodies: dict[int, list[Any]] = {kind: [] for kind in Kind}
        self.monitor.settimeout(1)
        try:
            self._connect(60)
        except BaseException:
            self.close()
            raise

    def _connect(self, limit_s: float) -> None:
        end = time.monotonic() + limit_s
        while self.monitor.connect_ex(os.fspath(self.place)):
            assert self.trainer.poll() is None, f"exit code {self.trainer.poll()} before any agent"
            assert time.monotonic() < end, f"no agent answered within {limit_s:.0f} s"
            time.sleep(0.05)

    def until(self, enough: Callable[[], bool], limit_s: float = 20) -> bool:
        """Listens until `enough`; fails when that does not come."""
        end = time.monotonic() + limit_s
        while not enough():
            assert time.monotonic() < end, f"it did not come within {limit_s:.0f} s"
            try:
                data = self.monitor.recv(1 << 18)
            except TimeoutError:
                continue
            assert data, f"the agent hung up; the trainer's exit code: {self.trainer.poll()}"
            for frame in self.decoder.feed(data):
                if frame.kind == Kind.NAMES:
                    self.names.update(frame.body)
                self.bodies[frame.kind].append(frame.body)
        return True

    def marks(self, mark_class: MarkClass) -> list[Any]:
        return [
            row
            for rows in self.bodies[Kind.MARKS]
            for row in rows
            if row["mark_class"] == mark_class
        ]

    def close(self) -> None:
        self.monitor.close()
        self.trainer.kill()
        self.trainer.wait(10)


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Iterator[Watched]:
    made = Watched(tmp_path_factory.mktemp("trainer"))
    yield made
    made.close()


def test_the_device_frame_has_the_fields_of_the_model(watched):
    from brrrtop.model.tables import Device

    assert watched.until(lambda: bool(watched.bodies[Kind.DEVICE]))
    device = Device(**watched.bodies[Kind.DEVICE][0])
    assert device.device_id == 0 and device.name and device.sm_count and device.memory_bytes
    assert (device.uuid or "").startswith("GPU-") and len(device.uuid or "") == 40


def test_allocator_retries_are_marked_and_totals_sent(watched):
    assert watched.until(lambda: bool(watched.marks(MarkClass.ALLOCATOR)))
    message = [body["allocator"][0] for body in watched.bodies[Kind.STATUS] if "allocator" in body]
    assert (
        message[-1]["device"] == 0
        and message[-1]["reserved_bytes"] >= message[-1]["allocated_bytes"] > 0
    )


def test_marks_and_calls_number_threads_alike(watched):
    watched.monitor.sendall(requests.burst(20, 2_000_000_000))

    def launches() -> list[Any]:
        rows = [row for batch in watched.bodies[Kind.CALLS] for row in batch]
        return [row for row in rows if row["call_class"] == CallClass.LAUNCH]

    assert watched.until(lambda: len(launches()) > 500)
    stepping = {int(row["tid"]) for row in watched.marks(MarkClass.STEP)}
    threads = Counter(int(row["tid"]) for row in launches())
    assert len(stepping) == 1 and stepping & set(threads), "the forward pass is this thread's"
    assert len(threads) == 2, "autograd launches the backward pass from a thread of its own"


def test_stacks_show_the_line_that_waits(watched):
    assert watched.until(lambda: len(watched.marks(MarkClass.STACK)) >= 40)
    lines = Counter(watched.names[int(row["name_id"])] for row in watched.marks(MarkClass.STACK))
    assert all("train.py:" in line for line in lines)
    assert any(line.endswith("| loss.item()") for line in lines), lines
