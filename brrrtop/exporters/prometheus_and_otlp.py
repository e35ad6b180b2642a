"""Metrics to a Prometheus that scrapes, or to an OpenTelemetry collector, by their own libraries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

from brrrtop.errors import BrrrtopError, install_command
from brrrtop.exporters.metrics import DEVICE_LABELS, HELP, JOB_LABELS, OWN_LABELS, Sample

CLOSING_MS = 3000
"""For the last metrics: a collector that does not answer holds nobody up."""
_OPENTELEMETRY = (
    "opentelemetry.metrics",
    "opentelemetry.sdk.metrics",
    "opentelemetry.sdk.metrics.export",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
)
GONE = "the collector does not take the metrics; watching goes on, and they are sent when it does"


class PrometheusServer:
    """Answers scrapes with the newest samples, from a thread of its own.

    Args:
        newest: Gives the samples; called at each scrape, from other threads.

    Raises:
        BrrrtopError: The port is taken.
    """

    def __init__(self, newest: Callable[[], Iterable[Sample]], host: str, port: int) -> None:
        client, core = import_module("prometheus_client"), import_module("prometheus_client.core")
        registry = client.CollectorRegistry()
        registry.register(_Collector(newest, core.GaugeMetricFamily))
        try:
            self._server, self._thread = client.start_http_server(port, host, registry)
        except OSError as fault:
            raise BrrrtopError(
                f"{host}:{port} cannot be served on: {fault.strerror}",
                "choose another: --listen HOST:PORT",
            ) from fault
        self.port: int = self._server.server_port
        """Where it listens; of its own choice for port 0."""

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


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


class OtlpPusher:
    """Sends the newest samples in an interval, from a thread of its own.

    Args:
        newest: Gives the samples; called from that thread.
        endpoint: None: as `OTEL_EXPORTER_OTLP_ENDPOINT` says, else localhost:4318.
        say: Hears when the collector stops to take them and when it does so again; from that thread.

    Raises:
        BrrrtopError: OpenTelemetry's SDK or its exporter is not installed.
    """

    def __init__(
        self, newest: Callable[[], Iterable[Sample]], endpoint: str | None, interval_s: float,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        try:
            api, sdk, export, http = map(import_module, _OPENTELEMETRY)
        except ImportError:
            raise BrrrtopError(
                "metrics are sent by OpenTelemetry's SDK, which is not installed",
                install_command("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
            ) from None
        where = {"endpoint": f"{endpoint.rstrip('/')}/v1/metrics"} if endpoint else {}
        logging.getLogger(http.__name__).setLevel(logging.CRITICAL)  # a line each second
        sender = http.OTLPMetricExporter(**where)
        sender.export = _reporting(sender.export, export.MetricExportResult.SUCCESS, say)
        reader = export.PeriodicExportingMetricReader(
            sender, export_interval_millis=interval_s * 1000
        )
        self._provider = sdk.MeterProvider(metric_readers=[reader])
        meter = self._provider.get_meter("brrrtop")
        for name, says in HELP.items():
            meter.create_observable_gauge(
                name, callbacks=[_observer(name, newest, api.Observation)], description=says
            )

    def close(self) -> None:
        """Sends what is new once more, and ends the thread."""
        self._provider.shutdown(timeout_millis=CLOSING_MS)


def _reporting(send: Callable[..., Any], good: Any, say: Callable[[str], None]) -> Any:
    """`send`, saying a sentence where its success changes: watching goes on meanwhile."""
    taken = True

    def export(*args: Any, **options: Any) -> Any:
        nonlocal taken
        result = send(*args, **options)
        if taken != (result is good):
            taken = not taken
            say("the collector takes metrics again" if taken else GONE)
        return result

    return export


def _observer(name: str, newest: Callable[[], Iterable[Sample]], observation: Any) -> Any:
    def observe(_options: Any) -> list[Any]:
        return [
            observation(one.value, {key: text for key, text in one.labels.items() if text})
            for one in newest()
            if one.name == name
        ]

    return observe
