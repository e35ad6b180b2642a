"""The figures of a snapshot as metrics, and the server that Prometheus scrapes.

Labels follow NVIDIA's DCGM exporter (`gpu`, `UUID`, `modelName`, `Hostname`, `hpc_job`, `namespace`,
`pod`), so that a board can join them with its series. What nobody measured has no sample.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from socket import AF_INET, AF_INET6, SHUT_RDWR
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from msgspec import Struct

from brrrtop.errors import BrrrtopError
from brrrtop.model.estimate import Estimate
from brrrtop.model.ranks import RankRow
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.text import phrases
from collectors.printable import printable
from collectors.vocabulary import Metric

DEVICE_LABELS = ("gpu", "UUID", "modelName", "Hostname")
MOST_CONNECTIONS = 32
"""Prometheus keeps one or two open; a board with its own scraper a few more."""
REQUEST_LIMIT_S = 5.0
"""From accepting a connection to the last byte of the answer; a scrape takes some 10 ms."""
LONGEST_LABEL = 128
JOB_LABELS = ("pid", "rank", "hpc_job", "namespace", "pod")

_OF_VERDICTS = {
    "brrrtop_up": "1: the training process is watched; 0: it ended or does not answer.",
    "brrrtop_step_seconds": "Median duration of a training step in the judged window.",
    "brrrtop_split_ratio": "Share of wall time that is compute-bound, bandwidth-bound, overhead or unknown.",
    "brrrtop_account_ratio": "Share of wall time by bucket of the account; idle time by its cause.",
    "brrrtop_waits_for_peers_ratio": "Share of the time in collectives for later ranks of this host, beside "
    "no kernel of its own.",
    "brrrtop_late_seconds": "How much later than the other ranks of this host it is, a step.",
    "brrrtop_regime": "1 for the regime that the window is in.",
    "brrrtop_confidence_ratio": "How sure the verdict is.",
    "brrrtop_advice_saves_ratio": "Share of the step that following an advice is predicted to save.",
    "brrrtop_whatif_saves_ratio": "Share of the step that a simulated edit saves; below 0 it costs.",
    "brrrtop_observed_ratio": "Share of the judged window that was traced.",
    "brrrtop_watching_cost_ratio": "What watching adds to the step time, measured in this run.",
    "brrrtop_lost_records": "Activity records that did not arrive.",
}
_GAUGES = {
    Metric.SM_ACTIVE: ("brrrtop_sm_active_ratio", "Share of time with a warp on the SMs."),
    Metric.TENSOR_ACTIVE: (
        "brrrtop_tensor_active_ratio", "Share of time the tensor pipes are active.",
    ),
    Metric.DRAM_ACTIVE: ("brrrtop_dram_active_ratio", "Share of the DRAM's bandwidth in use."),
    Metric.SMI_UTIL: ("brrrtop_smi_utilization_ratio", "nvidia-smi's GPU-Util: any kernel resident."),
    Metric.MEMORY_USED_BYTES: ("brrrtop_memory_used_bytes", "Device memory in use."),
    Metric.POWER_WATT: ("brrrtop_power_watts", "Power of the GPU."),
    Metric.TEMPERATURE_C: ("brrrtop_temperature_celsius", "Temperature of the GPU."),
    Metric.SM_CLOCK_HZ: ("brrrtop_sm_clock_hertz", "Clock of the SMs."),
}  # fmt: skip
HELP: Mapping[str, str] = {**_OF_VERDICTS, **dict(_GAUGES.values())}
OWN_LABELS: Mapping[str, str] = {
    "brrrtop_split_ratio": "bound",
    "brrrtop_account_ratio": "bucket",
    "brrrtop_regime": "regime",
    "brrrtop_advice_saves_ratio": "advisory",
    "brrrtop_whatif_saves_ratio": "edit",
}
"""The label that a metric has besides those of all."""


class Sample(Struct, frozen=True):
    name: str
    labels: Mapping[str, str]
    value: float


def samples(
    snapshot: Snapshot | None, job: Mapping[str, str], hostname: str, row: RankRow | None = None
) -> Iterator[Sample]:
    """Everything a snapshot measured.

    Args:
        snapshot: None: the process could not be watched.
        job: Values of `JOB_LABELS`, as far as they are known.
        row: Beside the other ranks of its job; None where it was not compared.
    """
    estimate = snapshot.estimate if snapshot else None
    labels = dict.fromkeys((*DEVICE_LABELS, *JOB_LABELS), "") | dict(job) | {"Hostname": hostname}
    if snapshot is not None and snapshot.source.rank is not None:
        labels["rank"] = str(snapshot.source.rank)
    if estimate is not None:
        device = estimate.device
        labels |= {"gpu": str(device.device_id), "UUID": device.uuid or ""}
        labels["modelName"] = device.name or ""
    # One label that cannot be encoded would take the answer away from all trainers of the host.
    labels = {key: printable(text)[:LONGEST_LABEL] for key, text in labels.items()}
    gone = (Freshness.ENDED, Freshness.STALE)
    watched = snapshot is not None and snapshot.freshness not in gone
    yield Sample("brrrtop_up", labels, float(watched))
    if snapshot is None or not watched:
        return
    for name, own, value in _figures(snapshot, row):
        key = OWN_LABELS.get(name)
        yield Sample(name, labels | {key: own} if key else labels, value)


def _figures(snapshot: Snapshot, peer: RankRow | None) -> Iterator[tuple[str, str, float]]:
    """Name of the metric, value of its own label, and the figure."""
    if snapshot.estimate is not None:
        yield from _judged_samples(snapshot.estimate)
    for advisory in snapshot.advisories:
        saves = advisory.saves if advisory.saves is not None else advisory.saves_at_most
        if saves is not None:
            yield "brrrtop_advice_saves_ratio", advisory.kind, saves
    for row in snapshot.whatif:
        yield "brrrtop_whatif_saves_ratio", row.edit, row.saves
    if snapshot.overhead.step_cost_share is not None:
        yield "brrrtop_watching_cost_ratio", "", snapshot.overhead.step_cost_share
    yield "brrrtop_lost_records", "", float(snapshot.lost_records)
    for metric, (name, _) in _GAUGES.items():
        if metric in snapshot.gauges:
            yield name, "", float(snapshot.gauges[metric])
    if peer is not None and peer.waits_for_peers is not None:
        yield "brrrtop_waits_for_peers_ratio", "", float(peer.waits_for_peers)
    if peer is not None and peer.late_ns is not None:
        yield "brrrtop_late_seconds", "", peer.late_ns / 1e9


def _judged_samples(estimate: Estimate) -> Iterator[tuple[str, str, float]]:
    if estimate.steps.step_ns is not None:
        yield "brrrtop_step_seconds", "", estimate.steps.step_ns / 1e9
    for bound in ("compute", "memory", "overhead", "unknown"):
        yield "brrrtop_split_ratio", bound, getattr(estimate.split, bound)
    whole = estimate.account.duration_ns
    for bucket, ns in phrases.buckets(estimate.account):
        if whole:
            yield "brrrtop_account_ratio", bucket, ns / whole
    yield "brrrtop_regime", estimate.regime.value, 1.0
    yield "brrrtop_confidence_ratio", "", estimate.confidence
    yield "brrrtop_observed_ratio", "", estimate.observed_share


class PrometheusServer:
    """Answers scrapes with the newest samples, from a thread of its own.

    Args:
        newest: Gives the samples; called at each scrape, from other threads.

    Raises:
        BrrrtopError: The port is taken.
    """

    def __init__(self, newest: Callable[[], Iterable[Sample]], host: str, port: int) -> None:
        from prometheus_client import CollectorRegistry, make_wsgi_app
        from prometheus_client.core import GaugeMetricFamily

        registry = CollectorRegistry()
        registry.register(_Collector(newest, GaugeMetricFamily))
        try:
            self._server = _Server((host, port), _Handler)
        except OSError as fault:
            raise BrrrtopError(
                f"{host}:{port} cannot be served on: {fault.strerror}",
                "choose another: --listen HOST:PORT",
            ) from fault
        self._server.set_app(make_wsgi_app(registry))
        self.port: int = self._server.server_port
        """Where it listens; of its own choice for port 0."""
        self._thread = Thread(
            target=self._server.serve_forever, name="brrrtop-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    """Bounded in connections and in time: whoever can reach it may not know us well.

    A thread and a descriptor of the monitor stand behind each connection, and it has trainers to watch.
    """

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        self._began: dict[Any, float] = {}
        """When each open connection was accepted, on the monotonic clock."""
        super().__init__(address, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return len(self._began) < MOST_CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:
        self._began[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Hangs up on all that took too long; twice a second."""
        for request, began in list(self._began.items()):
            if time.monotonic() - began > REQUEST_LIMIT_S:
                with suppress(OSError):
                    request.shutdown(SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        self._began.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a scrape that ends early is its sender's business."""


class _Handler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing."""


class _Collector:
    """What prometheus-client asks at each scrape."""

    def __init__(self, newest: Callable[[], Iterable[Sample]], family: Any) -> None:
        self._newest, self._family = newest, family

    def collect(self) -> Iterator[Any]:
        families: dict[str, Any] = {}
        for sample in self._newest():
            keys = [*DEVICE_LABELS, *JOB_LABELS]
            if sample.name in OWN_LABELS:
                keys.append(OWN_LABELS[sample.name])
            if sample.name not in families:
                families[sample.name] = self._family(sample.name, HELP[sample.name], labels=keys)
            families[sample.name].add_metric([sample.labels[key] for key in keys], sample.value)
        yield from families.values()

    def describe(self) -> list[Any]:
        """Nothing: what is there depends on what is watched."""
        return []
