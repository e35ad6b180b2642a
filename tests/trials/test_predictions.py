"""`brrrtop try` watches one run of the program for its predictions. Only NVIDIA's libraries are stand-ins."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from brrrtop.cli.options import Options
from brrrtop.model.trials import Facts, Header
from brrrtop.trials.program import Program, guarded_folder
from collectors.attach import launch
from collectors.trial import guardian
from tests.agent.conftest import built
from tests.attach.conftest import tracing

__all__ = ["built", "tracing"]
HEADER = Header(1, "/", (), "step", 0, Facts({}, {}), gpu="H100")
TRAINER = Path(__file__).parents[1] / "live" / "shaped_training.py"


def test_the_watched_run_gives_what_if_rows_and_ends(tracing, built, monkeypatch):
    pytest.importorskip("torch")
    verb = import_module("brrrtop.cli.commands.try")
    environment = launch.environment
    monkeypatch.setattr(  # torch never touches the stand-in GPU
        launch, "environment",
        lambda folder, files, options, _, base: environment(folder, files, options, "torch", base),
    )  # fmt: skip
    command = (sys.executable, str(TRAINER), str(built["cuda"]), str(built["cupti"]))
    options = Options(command=command, trace_graphs=True, interval=0.25)
    with guarded_folder() as folder:
        rows = verb._predict(Program(command, folder, 1), HEADER, options)
        assert not guardian.processes(str(folder), set())
    assert rows["double-batch"].saves > -1
