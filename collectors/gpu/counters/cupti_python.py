"""Works around limits of cupti-python: which libcupti it loads, its memory, calls that CUPTI wants paired.

A Python that has torch as well has torch's libcupti too, often an older one, and cupti-python takes
whichever it finds first: CUPTI 13.0 then answers calls of a 13.4 binding with INVALID_PARAMETER.
A library that is loaded already is taken before any other, so the right one is loaded first.

The rest patches version 13.4; a version that is built otherwise is left as it is.
"""

import ctypes
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

BINDING, LIBRARY = "cupti-python", "nvidia-cuda-cupti"
_FILE = re.compile(r"libcupti\.so(?:\.\d+)*$")
_NUMBER = re.compile(r"\d+")


_KEPT_IMAGES = 256
"""Some KiB each, one a configuration."""


def sampling_module() -> Any:
    """`cupti.pm_sampling`, with the library that belongs to it."""
    load_cupti()
    return import_module("cupti.pm_sampling")


def load_cupti(search: Sequence[str] | None = None) -> Path | None:
    """Loads the best libcupti of the installed packages, for all to see.

    Args:
        search: Folders as in `sys.path`; None: `sys.path`.

    Returns:
        The file that was loaded; None where there is none that loads, and cupti-python looks for
        one by its own rules.
    """
    try:
        files = candidates(search)
    except Exception:  # noqa: BLE001 - broken metadata of any package must not cost the counters
        return None
    for file in files:
        try:
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL | os.RTLD_NOW)
        except OSError:
            continue
        return file
    return None


def loaded_cupti() -> list[str]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in lines if "/libcupti.so" in line}
    return sorted(paths)


def candidates(search: Sequence[str] | None = None) -> list[Path]:
    """Files of installed libcupti packages: first those that fit the binding, then the others; among
    equals by `search`.

    Another major version has another soname and would be loaded beside the binding's.
    """
    binding = _installed_packages(BINDING, search)
    wanted = _version(binding[0].version)[:2] if binding else ()
    files: dict[Path, bool] = {}
    for package in _installed_packages(LIBRARY, search):
        version = _version(package.version)
        fits = version[:1] == wanted[:1] and version[:2] >= wanted
        for file in _files(package):
            files.setdefault(file, fits)
    return sorted(files, key=lambda file: not files[file])


def _installed_packages(name: str, search: Sequence[str] | None) -> list[metadata.Distribution]:
    if search is None:
        return list(metadata.distributions(name=name))
    return list(metadata.distributions(name=name, path=list(search)))


def _files(distribution: metadata.Distribution) -> list[Path]:
    paths = [file for file in distribution.files or () if _FILE.fullmatch(file.name)]
    located = [Path(str(distribution.locate_file(file))).absolute() for file in paths]
    return [path for path in located if path.is_file()]


def _version(text: str | None) -> tuple[int, ...]:
    """Leading numbers of a version; empty where there is none."""
    return tuple(int(part) for part in _NUMBER.findall(text or ""))


def prepare(sampling: Any) -> None:
    """Mends the module `cupti.pm_sampling`, once."""
    _with_one_evaluator(sampling)
    _with_kept_images(sampling)
    _with_one_end(sampling)


def fits_one_pass(sampling: Any, collector: Any) -> Callable[[list[str]], bool] | None:
    """Tells which metrics fit into one pass, without the device; None: this version cannot say.

    As NVIDIA and PyTorch do before they configure: a configuration that the device refuses is then
    never tried on it.

    Args:
        collector: Enabled already, which is when it knows its chip.
    """
    hosts = _hosts(sampling)
    chip = getattr(collector, "_chip_name", None)
    passes = getattr(hosts, "get_num_of_passes", None)
    if passes is None or not chip:
        return None

    def fits(metrics: list[str]) -> bool:
        host = hosts.ProfilerHost(chip, hosts.ProfilerType.PM_SAMPLING)
        try:
            host.initialize()
            return int(passes(host.create_config_image(metrics))) == 1
        except Exception:  # noqa: BLE001 - a metric that this chip lacks; if all fail, the device says why
            return False
        finally:
            host.deinitialize()

    return fits


def _hosts(sampling: Any) -> Any:
    """The module `cupti.profiler_host`; None where there is none."""
    return getattr(getattr(sampling, "cupti", None), "profiler_host", None)


def _with_one_evaluator(sampling: Any) -> None:
    """Has cupti-python evaluate all batches with one host object, as CUPTI's own samples do.

    Version 13.4 makes one for each batch, about 70 ms of one core (H200 host, ten batches a
    second).
    """
    data = getattr(sampling, "CounterData", None)
    made = getattr(data, "_initialize_host", None)
    if data is None or made is None or getattr(made, "is_shared", False):
        return
    hosts: dict[str, Any] = {}

    def shared(self: Any) -> None:
        chip = str(self._chip_name)
        if chip not in hosts:
            made(self)
            if getattr(self, "_host_finalizer", None) is None:
                return
            self._host_finalizer.detach()
            hosts[chip] = self._host
        self._host = hosts[chip]

    shared.is_shared = True  # type: ignore[attr-defined]
    data._initialize_host = shared


def _with_kept_images(sampling: Any) -> None:
    """Has the configurations outlive the calls that they are made for.

    CUPTI keeps the pointer that it is configured with: freed or written over, sampling hangs or
    crashes (PyTorch's Kineto, pull request 1532). cupti-python keeps the last one only, and none
    that was refused.
    """
    host = getattr(_hosts(sampling), "ProfilerHost", None)
    made = getattr(host, "create_config_image", None)
    if host is None or made is None or getattr(made, "is_kept", False):
        return
    images: deque[Any] = deque(maxlen=_KEPT_IMAGES)

    def kept(self: Any, metrics: Any) -> Any:
        image = made(self, metrics)
        images.append(image)
        return image

    kept.is_kept = True  # type: ignore[attr-defined]
    host.create_config_image = kept


def _with_one_end(sampling: Any) -> None:
    """Ends CUPTI's profiler with the last collector only.

    CUPTI does not count who began it: the second end crashes, and the first takes the profiler
    from collectors of other devices (PyTorch, pull request 188849).
    """
    collector = getattr(sampling, "Collector", None)
    begin, end = (getattr(collector, n, None) for n in ("enable", "_profiler_deinitialize"))
    if collector is None or begin is None or end is None or getattr(begin, "is_counted", False):
        return
    live = 0

    def enable(self: Any) -> None:
        nonlocal live
        before, live = live, live + 1
        try:
            begin(self)
        except BaseException:
            live = before  # it has ended what it had begun, by `deinitialize`
            raise

    def deinitialize() -> None:
        nonlocal live
        live -= 1
        if live <= 0:
            live = 0
            end()

    enable.is_counted = True  # type: ignore[attr-defined]
    collector.enable = enable
    collector._profiler_deinitialize = staticmethod(deinitialize)


_ADMIN = (
    "hardware counters are for administrators on this machine: run brrrtop as root, or load the "
    "driver with NVreg_RestrictProfilingToAdminUsers=0"
)
_TAKEN = (
    "another tool samples this GPU's hardware counters (DCGM, nsys, ncu or a second brrrtop): "
    "stop it and start brrrtop again"
)

# Parts of CUPTI result names and of cupti-python's sentences → ours.
_KNOWN: tuple[tuple[str, str], ...] = (
    ("INSUFFICIENT_PRIVILEGES", _ADMIN),
    ("already enabled", _TAKEN),
    ("HARDWARE_BUSY", _TAKEN),
    ("MULTIPLE_SUBSCRIBERS", _TAKEN),
    ("VIRTUALIZED", "hardware counters are not to be had inside this virtual GPU"),
    ("MIG", "hardware counters cannot be sampled on a MIG device"),
    ("CONFIDENTIAL", "hardware counters are off in confidential computing mode"),
    ("nvperf", "CUPTI's libnvperf libraries are missing: reinstall nvidia-cuda-cupti"),
    ("libcuda.so.1", "hardware counters need the NVIDIA driver, which is not here"),
    (
        "INVALID_PARAMETER",
        "the CUPTI library that was loaded is older than cupti-python expects: "
        "`pip install --upgrade cupti-python nvidia-cuda-cupti` where brrrtop is installed",
    ),
    (
        "not supported",
        "this GPU has no counters that can be sampled by time (Ampere GA10x and newer)",
    ),
    (
        "NOT_SUPPORTED",
        "this GPU has no counters that can be sampled by time (Ampere GA10x and newer)",
    ),
)


def sentence(fault: BaseException) -> str:
    """One sentence for whatever stopped the counters."""
    if isinstance(fault, ImportError):
        return "hardware counters need the package cupti-python: `pip install cupti-python`"
    if isinstance(fault, PermissionError):
        return _ADMIN
    text = str(fault)
    for part, sentence in _KNOWN:
        if part in text:
            return sentence + (_loaded_libraries() if part == "INVALID_PARAMETER" else "")
    return f"hardware counters stopped: {type(fault).__name__}: {text}"


def _loaded_libraries() -> str:
    libraries = loaded_cupti()
    return f" (loaded is {', '.join(libraries)})" if libraries else ""
