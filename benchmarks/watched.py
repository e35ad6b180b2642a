"""The product's own live path in this process: attach, sample under the governor, detach."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from brrrtop.model.estimate import Regime  # noqa: E402
from brrrtop.scheduling.governor import Governor  # noqa: E402
from brrrtop.session.controller import Controller  # noqa: E402
from brrrtop.session.live import Live, alone  # noqa: E402
from brrrtop.sources.live import LiveSource  # noqa: E402
from brrrtop.sources.recording import RecordingWriter  # noqa: E402
from collectors.attach import agent_library  # noqa: E402
from collectors.attach.attach import attach  # noqa: E402
from collectors.gpu.sampler_thread import GaugeThread  # noqa: E402
from collectors.protocol import requests  # noqa: E402
from collectors.stacks.feed import StackFeed  # noqa: E402

LOOK_S = 0.25
EPOCH_NS = 1 << 60
"""Integers above are times of day in ns, not durations."""


class Watch:
    """One attach, from the entry to `close`; like `brrrtop attach`, without a screen.

    Raises:
        CollectorError: It cannot be attached to.
    """

    def __init__(
        self, pid: int, governor: Governor, wanted: requests.Wanted | None = None,
        sink: RecordingWriter | None = None, shapes: bool | None = None,
    ) -> None:  # fmt: skip
        self.governor = governor
        began = time.perf_counter()
        self.attached = attach(pid, agent_library.agent_files())
        if wanted is not None:
            self.attached.client.send(requests.kinds(wanted))
        gauges = GaugeThread(pid)
        gauges.start()
        stacks = StackFeed(pid)
        stacks.start()
        self.source = LiveSource(self.attached.client, pid, feeds=[gauges, stacks], sink=sink)
        self.controller = Controller(self.source, governor, shapes)
        self.driver = Live([alone(self.controller)])
        self.verdict_s: float | None = None
        self._began = began
        self.watch_for(0)

    def watch_for(self, seconds: float, until_idle_s: float = 0.0) -> None:
        """Looks on for that long, then for a burst under way to end, at most `until_idle_s` more."""
        end = time.perf_counter() + seconds
        while True:
            self.snapshot = self.driver.advance()
            estimate = self.snapshot.estimate
            known = estimate is not None and estimate.regime != Regime.UNKNOWN
            if known and self.verdict_s is None:
                self.verdict_s = time.perf_counter() - self._began
            left = end - time.perf_counter()
            busy = self.governor.tracing and not self.governor.continuous
            if left <= 0 and not (busy and left > -until_idle_s):
                return
            time.sleep(min(LOOK_S, left) if left > 0 else 0.02)

    def close(self) -> bool:
        """True: the agent has ended."""
        self.driver.close()
        return self.attached.leave()


def skip_time(governor: Governor, gap_ns: int) -> None:
    """Makes the governor believe that no time passed while nobody was attached.

    Otherwise each new attach would begin with a burst that is due, and bursts would come more often
    than in one long watch. All times of day it remembers move on, those of steps included.
    """
    parts = (governor, governor.cost, governor._slack, governor.watch, governor._last)
    for part in filter(None, parts):
        for name, value in vars(part).items():
            setattr(part, name, _moved(value, gap_ns))


def _moved(value: Any, gap_ns: int) -> Any:
    if isinstance(value, deque):
        return deque((_moved(one, gap_ns) for one in value), value.maxlen)
    if isinstance(value, bool) or not isinstance(value, int | tuple | list | np.ndarray):
        return value
    if isinstance(value, int):
        return value + gap_ns if value > EPOCH_NS else value
    if isinstance(value, np.ndarray):
        return value + gap_ns if len(value) and value.dtype == np.int64 else value
    moved = [_moved(one, gap_ns) for one in value]
    return tuple(moved) if isinstance(value, tuple) else moved


def monitor_environment(site: str | None) -> dict[str, str]:
    """For a brrrtop of this checkout in a process of its own."""
    ahead = [str(ROOT), *([site] if site else []), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in ahead if p)}


def by_command_line(pid: int, site: str | None, limit_s: float) -> dict[str, Any]:
    """`brrrtop attach PID --json` until its first verdict; seconds count from the process's start."""
    command = [
        sys.executable,
        "-m",
        "brrrtop",
        "attach",
        str(pid),
        "--yes",
        "--json",
        "--interval",
        "0.1",
    ]
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=monitor_environment(site),
    )
    assert process.stdout is not None
    result: dict[str, Any] = {"first_verdict_s": None, "regime": None}
    kept = b""
    while result["regime"] is None and (left := limit_s - (time.perf_counter() - began)) > 0:
        if not select.select([process.stdout], [], [], left)[0]:
            break
        chunk = os.read(process.stdout.fileno(), 1 << 16)
        if not chunk:
            break
        *lines, kept = (kept + chunk).split(b"\n")
        for line in lines:
            regime = json.loads(line).get("regime")
            if regime not in (None, "unknown") and result["regime"] is None:
                result = {"first_verdict_s": time.perf_counter() - began, "regime": regime}
    process.send_signal(signal.SIGINT)
    try:
        _, text = process.communicate(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        _, text = process.communicate()
        result["fault"] = "it did not stop within 15 s"
    result["exit"] = process.returncode
    result["said"] = text.decode("utf-8", "replace").strip().splitlines()[-3:]
    return result
