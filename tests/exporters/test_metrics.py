"""Metrics: what is in them, that Prometheus' own tools accept them, and the whole path to a real one."""

import json
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from brrrtop.cli.commands.export import labels_of
from brrrtop.errors import BrrrtopError
from brrrtop.exporters import prometheus
from brrrtop.exporters.prometheus import (
    DEVICE_LABELS,
    HELP,
    JOB_LABELS,
    LONGEST_LABEL,
    MOST_CONNECTIONS,
    OWN_LABELS,
    PrometheusServer,
    samples,
)
from brrrtop.model.snapshot import Freshness, Snapshot
from collectors.printable import printable
from collectors.process import process as processes
from tests.recorded import analyzed

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "prometheus"
RECORDING = ROOT / "tests" / "recordings" / "h200" / "item_sync.brrr"
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def judged() -> Snapshot:
    return replace(analyzed(RECORDING), freshness=Freshness.LIVE)


def test_samples_are_the_report_and_add_up(judged):
    result = list(samples(judged, {"pid": "7", "hpc_job": "42"}, "node-1"))
    assert {one.name for one in result} <= HELP.keys()
    named = {(one.name, one.labels.get(OWN_LABELS.get(one.name, ""))): one.value for one in result}
    assert len(named) == len(result), "no two samples have the same name and labels"
    assert named["brrrtop_split_ratio", "overhead"] == judged.estimate.split.overhead
    assert named["brrrtop_step_seconds", None] == (judged.estimate.steps.step_ns or 0) / 1e9
    account = [value for (name, _), value in named.items() if name == "brrrtop_account_ratio"]
    assert sum(account) == pytest.approx(1)
    keys = {*DEVICE_LABELS, *JOB_LABELS}
    for one in result:
        assert one.labels.keys() - set(OWN_LABELS.values()) == keys
        assert one.labels["Hostname"] == "node-1" and one.labels["hpc_job"] == "42"
        assert one.labels["modelName"] == "NVIDIA H200" and one.labels["gpu"] == "0"


def test_what_ended_has_no_figures_but_that(judged):
    over = [replace(judged, freshness=one) for one in (Freshness.ENDED, Freshness.STALE)]
    for gone in (None, *over):
        assert [(one.name, one.value) for one in samples(gone, {}, "h")] == [("brrrtop_up", 0.0)]


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\bbrrrtop_\w+", text))


def test_board_and_alerts_use_metrics_and_labels_that_exist():
    board = json.loads((PAGES / "board.json").read_text())
    used = [t["expr"] for panel in board["panels"] for t in panel["targets"]]
    alerts = (PAGES / "alerts.yml").read_text()
    assert used and names_in("\n".join(used)) | names_in(alerts) <= HELP.keys()
    labels = {*DEVICE_LABELS, *JOB_LABELS, *OWN_LABELS.values()}
    assert set(re.findall(r"\$labels\.(\w+)", alerts)) <= labels
    selected = re.findall(r"[{,](\w+)=~?\"", "\n".join(used))
    assert set(selected) <= labels
    ids = Counter(panel["id"] for panel in board["panels"])
    assert max(ids.values()) == 1


def test_prometheus_accepts_rules_and_every_expression_of_the_board(tmp_path):
    promtool = shutil.which("promtool") or pytest.skip("no promtool here")
    board = json.loads((PAGES / "board.json").read_text())
    rules = [
        {"record": f"x:{n}", "expr": t["expr"].replace("$host", ".*").replace("$job", ".*")}
        for n, t in enumerate(t for panel in board["panels"] for t in panel["targets"])
    ]
    (tmp_path / "board.yml").write_text(json.dumps({"groups": [{"name": "b", "rules": rules}]}))
    for path in (PAGES / "alerts.yml", tmp_path / "board.yml"):
        done = subprocess.run(
            [promtool, "check", "rules", str(path)], capture_output=True, text=True
        )
        assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def test_each_alert_fires_on_what_calls_for_it_and_on_nothing_else():
    promtool = shutil.which("promtool") or pytest.skip("no promtool here")
    cases = PAGES / "alerts_test.yml"
    named = set(re.findall(r"alert: (\w+)", (PAGES / "alerts.yml").read_text()))
    assert set(re.findall(r"alertname: (\w+)", cases.read_text())) == named
    done = subprocess.run(
        [promtool, "test", "rules", str(cases)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and "SUCCESS" in done.stdout, done.stdout + done.stderr


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=90) as answer:
        return str(answer.read().decode())


def test_a_scrape_is_what_prometheus_reads(judged):
    port = free_port()
    evil = {"pid": "7", "pod": 'a"b\\c\nd'}
    server = PrometheusServer(lambda: samples(judged, evil, "h"), "127.0.0.1", port)
    try:
        text = get(f"http://127.0.0.1:{port}/metrics")
    finally:
        server.close()
    assert 'brrrtop_split_ratio{Hostname="h"' in text or "brrrtop_split_ratio{" in text
    if promtool := shutil.which("promtool"):
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text, capture_output=True, text=True
        )
        # It would have DCGM's `modelName` in another case; anything else is ours to mend.
        assert [line for line in done.stderr.splitlines() if "camelCase" not in line] == []
        assert done.returncode in (0, 3)


def test_one_trainers_words_cannot_take_the_answer_from_all(judged):
    trainer = subprocess.Popen(
        ["sleep", "60"],
        env={
            b"SLURM_JOB_ID": b"\xff\xfe\x1b[2J" + b"x" * 1000,
            b"RANK": b"1" * 100_000,
            b"KUBERNETES_SERVICE_HOST": b"1",
            b"POD_NAME": b"\xed\xa0\x80",
        },
    )
    try:
        until(lambda: b"POD_NAME" in Path(f"/proc/{trainer.pid}/environ").read_bytes())
        labels = labels_of(processes.read(trainer.pid))
    finally:
        trainer.kill()
        trainer.wait()
    hostile = list(samples(judged, labels, "h\udcff"))
    server = PrometheusServer(
        lambda: [*hostile, *samples(judged, {"pid": "8"}, "h")], "127.0.0.1", 0
    )
    try:
        text = get(f"http://127.0.0.1:{server.port}/metrics")
    finally:
        server.close()
    assert 'pid="8"' in text and f'pid="{trainer.pid}"' in text
    given = [value for one in hostile for key, value in one.labels.items() if key in JOB_LABELS]
    assert {len(value) for value in given} <= set(
        range(LONGEST_LABEL + 1)
    ) and "1" * 10 not in given
    assert all(printable(value) == value for value in given)
    assert "???[2Jxxx" in text and 'rank=""' in text


def test_connections_are_few_and_end_in_time(judged, monkeypatch):
    monkeypatch.setattr(prometheus, "REQUEST_LIMIT_S", 1.0)
    server = PrometheusServer(lambda: samples(judged, {}, "h"), "127.0.0.1", 0)
    threads = threading.active_count()
    with ExitStack() as stack:
        stack.callback(server.close)
        address = ("127.0.0.1", server.port)
        idle = [
            stack.enter_context(socket.create_connection(address))
            for _ in range(MOST_CONNECTIONS + 20)
        ]
        for one in idle[:MOST_CONNECTIONS]:
            one.sendall(b"GET /metrics HTTP/1.1\r\n")
        for one in idle[MOST_CONNECTIONS:]:
            one.settimeout(5)
            assert one.recv(1) == b"", "refused at once"
        assert threading.active_count() - threads <= MOST_CONNECTIONS
        began = time.monotonic()
        while time.monotonic() - began < 4:  # a byte now and then is no reason to wait longer
            try:
                idle[0].sendall(b"x")
            except OSError:
                break
            time.sleep(0.1)
        assert time.monotonic() - began < 4
        text = until(lambda: get(f"http://127.0.0.1:{server.port}/metrics"))
        assert "brrrtop_up{" in text
        until(lambda: threading.active_count() <= threads + 1)


def test_a_process_that_is_not_there_is_nothing_to_export():
    dead = subprocess.Popen(["true"])
    dead.wait()
    command = [sys.executable, "-m", "brrrtop", "export", "prometheus", str(dead.pid)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and f"{dead.pid}" in done.stderr


def test_a_port_in_use_is_said_and_a_prometheus_that_hangs_up_costs_nobody_else(judged):
    server = PrometheusServer(lambda: samples(judged, {}, "h"), "127.0.0.1", 0)
    try:
        with pytest.raises(BrrrtopError) as taken:
            PrometheusServer(list, "127.0.0.1", server.port)
        assert f"127.0.0.1:{server.port} cannot be served on: Address already in use" in str(
            taken.value
        )
        assert "--listen HOST:PORT" in taken.value.action
        for text in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.port)) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.sendall(text)
        assert "brrrtop_up{" in get(f"http://127.0.0.1:{server.port}/metrics")
    finally:
        server.close()


def until(done: Callable[[], Any]) -> Any:
    """What `done` gives once that is something; faults on the way are waited out."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            if value := done():
                return value
        except OSError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)
