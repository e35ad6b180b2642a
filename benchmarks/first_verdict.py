"""Attaches to a program and waits for the first verdict, as `brrrtop attach` does without a screen."""

from __future__ import annotations

import time
from typing import Any

LATEST_S = 25.0


def ask(client: Any) -> None:
    """Allows what `attach` does by default."""
    from collectors.protocol import requests

    client.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.HOLDS))


def verdict(pid: int) -> dict[str, Any]:
    """How long the first verdict took from before the attach, and what it was."""
    from brrrtop.model.estimate import Regime
    from brrrtop.session.controller import Controller
    from brrrtop.session.live import Live, alone
    from brrrtop.sources.live import LiveSource
    from collectors.attach import agent_library
    from collectors.attach.attach import attach
    from collectors.gpu.sampler_thread import GaugeThread

    files = agent_library.agent_files()
    began = time.perf_counter()
    attached = attach(pid, files)
    try:
        ask(attached.client)
        gauges = GaugeThread(pid)
        gauges.start()
        source = LiveSource(attached.client, pid, feeds=[gauges])
        driver = Live([alone(Controller(source))])
        snapshot = driver.advance()
        while time.perf_counter() - began < LATEST_S:
            if snapshot.estimate is not None and snapshot.estimate.regime != Regime.UNKNOWN:
                break
            time.sleep(0.05)
            snapshot = driver.advance()
        result: dict[str, Any] = {
            "verdict_s": round(time.perf_counter() - began, 2),
            "attach": attached.method,
            "notes": list(snapshot.source.notes),
        }
        if snapshot.estimate is not None:
            result["regime"] = snapshot.estimate.regime.value
            result["steps"] = snapshot.estimate.steps.source
            result["kernels"] = sum(row.count for row in snapshot.estimate.kernels)
        driver.close()
        return result
    finally:
        attached.leave()
