"""Snapshots made by hand, and the command, in this process and as one of its own."""

import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any

import pytest

from brrrtop.cli.main import main
from brrrtop.model.account import IDLE_CAUSES, MECHANICAL_CLASSES, Account, Split
from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import Estimate, KernelRow, Launch, Regime, Side, Steps
from brrrtop.model.snapshot import Freshness, Snapshot, SourceInfo
from brrrtop.model.tables import Device, Span

MakeSnapshot = Callable[..., Snapshot]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def an_account(**changes: Any) -> Account:
    """1,000 ns, half of them idle for want of input."""
    idle = dict.fromkeys(IDLE_CAUSES, 0) | {"input": 500, "unknown": 20}
    mechanical = dict.fromkeys(MECHANICAL_CLASSES, 0) | {"host_late": 520}
    figures: dict[str, Any] = {
        "duration_ns": 1000, "compute_ns": 300, "memory_ns": 100, "underfilled_ns": 30,
        "exposed_comm_ns": 20, "exposed_copy_ns": 20, "idle_ns": idle, "unknown_ns": 10,
        "mechanical_ns": mechanical, "busy_ns": 480,
    }  # fmt: skip
    return Account(**(figures | changes))


def an_estimate(**changes: Any) -> Estimate:
    row = KernelRow(
        "void ampere_sgemm_128x64_nn<float, 3>(very, long, parameters, of, a, template)", "gemm",
        Side.COMPUTE, 12, 300, 0.75, "L1.5", 0.9, precision="fp32",
    )  # fmt: skip
    facts: dict[str, Any] = {
        "span": Span(0, 1000), "device": Device(0, "NVIDIA H200"), "account": an_account(),
        "split": Split(0.3, 0.1, 0.59, 0.01), "regime": Regime.OVERHEAD, "cause": "input",
        "confidence": 0.9, "runner_up": Regime.COMPUTE, "launch": Launch(1700, 0.97, 0.03, 12),
        "steps": Steps(4, 250, "annotations", 0.9), "kernels": (row,),
        "evidence_shares": {"L1.5": 1.0}, "batch": None,
    }  # fmt: skip
    return Estimate(**(facts | changes))


@pytest.fixture
def make_snapshot() -> MakeSnapshot:
    """`make_snapshot(estimate={…}, …)`: one judged window, changed where the test says so."""

    def make(estimate: dict[str, Any] | None = None, **changes: Any) -> Snapshot:
        advice = Advisory(
            "dataloader-stall", "The GPU waits for input half of the time.", 0.9, 0.5,
            {"input_share": 0.5}, "more loader workers", "faster kernels",
        )  # fmt: skip
        judged = an_estimate(**(estimate or {}))
        facts: dict[str, Any] = {
            "source": SourceInfo("kineto", "trace.json.gz"), "freshness": Freshness.ENDED,
            "now_ns": 1000, "age_ns": 0, "progress": 1.0, "estimate": judged,
            "devices": (judged,), "advisories": (advice,),
        }  # fmt: skip
        return Snapshot(**(facts | changes))

    return make


@pytest.fixture
def command(tmp_path) -> Run:
    """The command as a process of its own in an empty folder, off a terminal."""

    def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        settings: dict[str, Any] = {
            "cwd": tmp_path, "capture_output": True, "text": True, "timeout": 50,
            "stdin": subprocess.DEVNULL,
        }  # fmt: skip
        words = [sys.executable, "-m", "brrrtop", *arguments]
        return subprocess.run(words, **(settings | options))

    return run


@pytest.fixture
def brrrtop(tmp_path, monkeypatch) -> Run:
    """The command in this process, in an empty folder: its exit code and what it said."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        text, narrated = (TextIOWrapper(BytesIO(), "utf-8", newline="") for _ in range(2))
        handled = {number: signal.getsignal(number) for number in HANDLED}
        try:
            with redirect_stdout(text), redirect_stderr(narrated), monkeypatch.context() as patch:
                patch.setattr(sys, "stdin", StringIO())
                code = main(list(arguments))
        finally:
            for number, handler in handled.items():
                signal.signal(number, handler)
        return subprocess.CompletedProcess(arguments, code, _written(text), _written(narrated))

    return run


def _written(stream: TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
