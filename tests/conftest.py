"""What every test gets: no environment of the machine's, and nothing left behind."""

import gc
import locale
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import shared

_REMOVED = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "LANG", "LC_ALL", "TERM", "PYTHONPATH")
_LEAK_PATIENCE_S = 3.0
_LONGEST = """
    trials/test_try probes/test_steps advisories/test_advise_all live/test_whole_path attach/test_harmless
    attach/test_ptrace attach/test_native live/test_live_job cli/test_demos live/test_governor
    agent/test_sanitized tui/test_views sources/test_file_bombs probes/test_signal_handlers
    tui/test_every_key analysis/test_thresholds whatif/test_replay cli/test_terminal_gone
    agent/test_fault_page attach/test_soak tui/test_screen attach/test_attach_files attach/test_attach
    tui/test_panes live/test_nvml hygiene/test_docs trials/test_predictions live/test_odd_agents
    live/test_recorded_log cli/test_on_a_terminal api/test_public_names session/test_events
    stacks/test_stacks importers/test_scanner session/test_replay analysis/test_account
    live/test_shapes_whole_path live/test_with_agent agent/test_lifecycle cli/test_in_a_browser
    cli/test_pipes_and_signals cli/test_report session/test_baseline cli/test_live_verbs
""".split()
"""Of the files, by the CPU time that they cost: first, so that no worker is left alone with one at the end."""

_OF_THE_NURSERY = frozenset(
    f"tests/probes/test_{name}.py"
    for name in "steps pauses shapes signal_handlers fault_guard torch_profiler loader".split()
)
"""Torch is imported for them once: four seconds of a core."""


def pytest_configure(config: pytest.Config) -> None:
    """Cuts the machine out before any module reads its environment."""
    for name in _REMOVED:
        os.environ.pop(name, None)
    for name in [name for name in os.environ if name.startswith("BRRRTOP_")]:
        if name != "BRRRTOP_TRACES":
            del os.environ[name]
    gc.disable()  # until all is collected
    # Started in the background, a shell has these ignored, and every child would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ["LC_ALL"] = "C.UTF-8"
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    _bound_examples()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """A file a worker, but one worker for all files that fork their trainers off one with torch."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "the nursery" if file in _OF_THE_NURSERY else file

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, all others as they were."""
    tests = Path(__file__).parent
    place = {tests / f"{name}.py": number for number, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


def pytest_collection_finish() -> None:
    """What was collected stays: nothing for the collector to look through in each test, a fifth of their time."""
    gc.enable()
    gc.set_threshold(10_000)
    gc.freeze()


def _bound_examples() -> None:
    """Enough examples for each push, the same ones in CI; nothing is made smaller there."""
    try:
        from hypothesis import Phase, settings
    except ImportError:  # where only the tests on a GPU run
        return
    settings.register_profile("here", deadline=None, max_examples=50)
    without = [phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)]
    settings.register_profile(
        "ci", settings.get_profile("here"), derandomize=True, database=None, phases=without
    )
    settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture
def traces() -> Path:
    """The folder of recorded traces of known workloads, where this machine has it."""
    named = os.environ.get("BRRRTOP_TRACES")
    if not named or not Path(named).is_dir():
        pytest.skip("BRRRTOP_TRACES names no folder of recorded traces")
    return Path(named)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory, monkeypatch) -> None:
    """Configuration and state folders of our own; a cache that the run's workers share."""
    home = tmp_path_factory.getbasetemp() / "home"
    home.mkdir(exist_ok=True)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(home / name.lower()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared.place(tmp_path_factory)))


def _threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.is_alive()}


def _sockets() -> set[str]:
    """Open sockets of this process, as the kernel names them."""
    sockets = set()
    for entry in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").is_dir() else ():
        try:
            name = str(entry.readlink())
        except OSError:
            continue
        if name.startswith("socket:"):
            sockets.add(name)
    return sockets


@pytest.fixture(autouse=True)
def nothing_leaks(request) -> Iterator[None]:
    """Fails a test that leaves threads or sockets behind; `leaves_threads` excuses one."""
    if request.node.get_closest_marker("leaves_threads"):
        yield
        return
    threads, sockets = _threads(), _sockets()
    yield
    deadline = time.monotonic() + _LEAK_PATIENCE_S
    while (left := (_threads() - threads, _sockets() - sockets)) != (set(), set()):
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: {sorted(map(str, left[0]))} {sorted(left[1])}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        time.sleep(0.02)
