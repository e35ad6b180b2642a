"""Metrics for an OpenTelemetry collector, through OpenTelemetry's own SDK (OTLP over HTTP)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from brrrtop.errors import BrrrtopError
from brrrtop.exporters.metrics import HELP, Sample

CLOSING_MS = 3000
"""For the last metrics: a collector that does not answer holds nobody up."""
GONE = "the collector does not take the metrics; watching goes on, and they are sent when it does"


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
            api: Any = import_module("opentelemetry.metrics")
            sdk: Any = import_module("opentelemetry.sdk.metrics")
            export: Any = import_module("opentelemetry.sdk.metrics.export")
            http: Any = import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
        except ImportError:
            raise BrrrtopError(
                "metrics are sent by OpenTelemetry's SDK, which is not installed",
                "`pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http`",
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
