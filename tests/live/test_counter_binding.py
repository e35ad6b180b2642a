"""cupti-python is mended where CUPTI minds: memory that it keeps, ends that it does not count."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collectors.gpu.counters.cupti_python import prepare
from collectors.gpu.counters.device import COUNTERS, DeviceCounters


class Image(np.ndarray):  # type: ignore[type-arg]
    """An array that can be watched going away."""


def binding(fits: int, texts: list[str], broken: bool = False) -> Any:
    """Built as cupti-python 13.4: the device keeps no configuration image of its own."""
    images: list[Any] = []

    class ProfilerHost:
        def __init__(self, chip: str, kind: str) -> None:
            texts.append(f"host {chip} {kind}")

        def initialize(self) -> None: ...

        def deinitialize(self) -> None: ...

        def create_config_image(self, metrics: list[str]) -> Any:
            image = np.full(64, len(metrics), np.uint8).view(Image)
            images.append(weakref.ref(image))
            return image

    class Collector:
        def __init__(self, device_index: int) -> None:
            self._chip_name = "GH100"

        def enable(self) -> None:
            texts.append("begin")
            if broken and texts.count("begin") > 1:
                Collector._profiler_deinitialize()
                raise PermissionError("refused")

        def configure(self, *, metrics: list[str], **_: Any) -> None:
            image = hosts.ProfilerHost("GH100", "pm").create_config_image(metrics=metrics)
            texts.append(f"set {len(metrics)}")
            if image[0] > fits:
                raise ValueError("Requested PM sampling configuration is not supported.")

        def start(self) -> None: ...

        def stop(self) -> None: ...

        def disable(self) -> None:
            Collector._profiler_deinitialize()

        @staticmethod
        def _profiler_deinitialize() -> None:
            texts.append("end")

    hosts = SimpleNamespace(
        ProfilerHost=ProfilerHost,
        ProfilerType=SimpleNamespace(PM_SAMPLING="pm"),
        get_num_of_passes=lambda image: 1 + int(image[0] > fits),
    )
    cupti = SimpleNamespace(profiler_host=hosts)
    return SimpleNamespace(cupti=cupti, Collector=Collector, images=images)


@pytest.mark.parametrize("fits", [5, 3, 1])
def test_the_device_is_configured_once_and_never_refuses(fits):
    texts: list[str] = []
    counters = DeviceCounters(binding(fits, texts), 0)
    assert [line for line in texts if line.startswith("set")] == [f"set {fits}"]
    assert counters.columns == [*COUNTERS][:fits]


def test_where_the_host_side_errs_what_the_device_takes_is_tried():
    texts: list[str] = []
    made = binding(3, texts)
    made.cupti.profiler_host.get_num_of_passes = lambda image: 1
    assert DeviceCounters(made, 0).columns == list(COUNTERS)[:3]


def test_a_metric_at_which_the_host_side_fails_costs_itself_alone():
    made = binding(5, [])
    host = made.cupti.profiler_host.ProfilerHost
    create = host.create_config_image

    def failing(self: Any, metrics: list[str]) -> Any:
        if "warps" in metrics[-1]:
            raise RuntimeError("ERROR_UNKNOWN (999)")
        return create(self, metrics)

    host.create_config_image = failing
    assert DeviceCounters(made, 0).columns == list(COUNTERS)[:-1]


def test_what_cupti_was_configured_with_stays_where_it_is():
    """Freed, sampling hung or crashed."""
    made = binding(7, [])
    counters = DeviceCounters(made, 0)
    gc.collect()
    assert len(made.images) >= 2 and all(image() is not None for image in made.images)
    counters.close()


def test_the_profiler_ends_with_the_last_device_and_once():
    texts: list[str] = []
    made = binding(7, texts)
    one, two = DeviceCounters(made, 0), DeviceCounters(made, 1)
    one.close()
    assert "end" not in texts
    two.close()
    assert texts.count("end") == 1
    DeviceCounters(made, 0).close()
    assert texts.count("end") == 2


def test_a_device_that_refuses_takes_the_profiler_from_no_other():
    texts: list[str] = []
    made = binding(7, texts, broken=True)
    one = DeviceCounters(made, 0)
    with pytest.raises(PermissionError):
        DeviceCounters(made, 1)
    assert "end" not in texts
    one.close()
    assert texts.count("end") == 1


def test_a_binding_that_is_built_otherwise_is_left_as_it_is():
    made = SimpleNamespace(Collector=object())
    prepare(made)
    assert vars(made) == {"Collector": made.Collector}
