"""What the series of a large cluster cost a Prometheus: exporters of many hosts, simulated on this one.

    python benchmarks/prometheus_cost.py --out DIR [--hosts 32 64] [--ranks 8] [--interval 15] [--minutes 3]

One process serves the metrics of so many hosts, each through brrrtop's own exporter on a port of its own,
with real verdicts (the demos) under labels of their own and values that change at each scrape. Debian's
`prometheus` scrapes them with a fresh database. Its own counters say what that cost: the second half of
the time is measured, after it has met every series. The figures are extrapolated to 512 hosts by a line through
the scales that were measured. Writes DIR/prometheus.json.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from brrrtop.cli.commands.demo import scenarios  # noqa: E402
from brrrtop.exporters.prometheus import PrometheusServer, Sample, samples  # noqa: E402
from brrrtop.model.snapshot import Freshness, Snapshot  # noqa: E402
from brrrtop.session.session import Session  # noqa: E402
from brrrtop.sources.registry import open_source  # noqa: E402

HOSTS = 512
DEMOS = ("input-bound", "sync-bound", "straggler", "healthy")
SPREAD = 0.03
COUNTERS = {
    "cpu_s": "process_cpu_seconds_total",
    "resident_bytes": "process_resident_memory_bytes",
    "heap_bytes": "go_memstats_heap_inuse_bytes",
    "series": "prometheus_tsdb_head_series",
    "samples": "prometheus_tsdb_head_samples_appended_total",
}


def verdicts() -> Iterator[Snapshot]:
    """The last snapshot of each demo, as of a trainer that runs."""
    for name in DEMOS:
        path = scenarios()[name]
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            source = open_source(str(file))
            assert source.span is not None
            snapshot = Session(source, keep_ns=None).advance(source.span.t1_ns)
            source.close()
            yield replace(snapshot, freshness=Freshness.LIVE)


def host_samples(host: int, ranks: int, shown: list[Snapshot]) -> Callable[[], list[Sample]]:
    """What the exporter of one host serves, other values at each scrape."""
    fixed: list[Sample] = []
    for local in range(ranks):
        rank = host * ranks + local
        job = {"pid": str(40_000 + local), "rank": str(rank), "hpc_job": str(rank // 64)}
        for one in samples(shown[rank % len(shown)], job, f"node-{host:04}"):
            uuid = f"GPU-{rank:08x}-0000-4000-8000-000000000000"
            labels = {**one.labels, "rank": str(rank), "gpu": str(local), "UUID": uuid}
            fixed.append(replace(one, labels=labels))

    def newest() -> list[Sample]:
        return [
            replace(one, value=one.value * random.uniform(1 - SPREAD, 1 + SPREAD)) for one in fixed
        ]

    return newest


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def counters(port: int) -> dict[str, float]:
    """Of Prometheus itself, with the time."""
    text = get(f"http://127.0.0.1:{port}/metrics")
    read = {
        key: float(re.search(rf"^{name}(?:{{.*?}})? (\S+)", text, re.MULTILINE)[1])  # type: ignore[index]
        for key, name in COUNTERS.items()
    }
    return read | {"at_s": time.monotonic()}


def measure(hosts: int, args: argparse.Namespace, shown: list[Snapshot]) -> dict[str, float]:
    """Serves and scrapes so many hosts for a while."""
    with ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory()))
        servers = [
            PrometheusServer(host_samples(host, args.ranks, shown), "127.0.0.1", 0)
            for host in range(hosts)
        ]
        for server in servers:
            closing.callback(server.close)
        targets = [f"127.0.0.1:{server.port}" for server in servers]
        config = {
            "global": {"scrape_interval": f"{args.interval}s"},
            "rule_files": [str(HERE.parent / "docs" / "prometheus" / "alerts.yml")],
            "scrape_configs": [{"job_name": "brrrtop", "static_configs": [{"targets": targets}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        page_bytes = len(get(f"http://{targets[0]}/metrics"))
        began_s = time.process_time()
        for target in targets[:8]:
            get(f"http://{target}/metrics")
        serving_s = (time.process_time() - began_s) / min(8, hosts)
        port = args.port
        command = ["prometheus", f"--config.file={folder}/prometheus.yml",
                   f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        closing.callback(process.wait)
        closing.callback(process.terminate)
        time.sleep(args.minutes * 30)
        first = counters(port)
        time.sleep(args.minutes * 30)
        last = counters(port)
        query = f"http://127.0.0.1:{port}/api/v1/query?query=avg(scrape_duration_seconds)"
        scrape_s = float(json.loads(get(query))["data"]["result"][0]["value"][1])
        took_s = last["at_s"] - first["at_s"]
        appended = last["samples"] - first["samples"]
        return {
            "hosts": hosts, "processes": hosts * args.ranks, "interval_s": args.interval,
            "series": last["series"], "series_per_process": last["series"] / (hosts * args.ranks),
            "samples_per_s": appended / took_s, "page_bytes": page_bytes,
            "cpu_cores": (last["cpu_s"] - first["cpu_s"]) / took_s,
            "cpu_us_per_sample": 1e6 * (last["cpu_s"] - first["cpu_s"]) / appended,
            "resident_bytes": last["resident_bytes"], "heap_bytes": last["heap_bytes"],
            "exporter_cpu_s_per_scrape": serving_s, "scrape_s": scrape_s,
        }  # fmt: skip


def extrapolated(rows: list[dict[str, float]]) -> dict[str, float] | None:
    """A line through the smallest and the largest scale, at 512 hosts; None for a single scale."""
    small, large = min(rows, key=lambda r: r["hosts"]), max(rows, key=lambda r: r["hosts"])
    if small["hosts"] == large["hosts"]:
        return None
    reach = (HOSTS - small["hosts"]) / (large["hosts"] - small["hosts"])
    keys = ("series", "samples_per_s", "cpu_cores", "resident_bytes", "heap_bytes")
    return {"hosts": HOSTS} | {key: small[key] + reach * (large[key] - small[key]) for key in keys}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--hosts", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--interval", type=int, default=15)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--port", type=int, default=19090)
    args = parser.parse_args()
    if shutil.which("prometheus") is None:
        parser.error("there is no prometheus here: apt install prometheus")
    args.out.mkdir(parents=True, exist_ok=True)
    shown = list(verdicts())
    rows = [measure(hosts, args, shown) for hosts in args.hosts]
    result = {"measured": rows, "extrapolated": extrapolated(rows)}
    (args.out / "prometheus.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
