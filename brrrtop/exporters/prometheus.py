"""Metrics for a Prometheus that scrapes, through prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

from brrrtop.errors import BrrrtopError
from brrrtop.exporters.metrics import DEVICE_LABELS, HELP, JOB_LABELS, OWN_LABELS, Sample


class PrometheusServer:
    """Answers scrapes with the newest samples, from a thread of its own.

    Args:
        newest: Gives the samples; called at each scrape, from other threads.

    Raises:
        BrrrtopError: prometheus-client is not installed, or the port is taken.
    """

    def __init__(self, newest: Callable[[], Iterable[Sample]], host: str, port: int) -> None:
        try:
            client: Any = import_module("prometheus_client")
            core: Any = import_module("prometheus_client.core")
        except ImportError:
            raise BrrrtopError(
                "metrics are served by prometheus-client, which is not installed",
                "`pip install 'brrrtop[export]'`",
            ) from None
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
