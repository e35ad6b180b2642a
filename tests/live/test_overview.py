"""All GPUs of a host through a stand-in NVML: what each reads, and who is on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
READ = """
import json, sys
from collectors.vocabulary import Metric
from collectors.gpu.sampler_thread import GpuOverview
overview = GpuOverview()
overview.start()
assert overview.ready.wait(20)
while overview.gpus and Metric.SM_ACTIVE not in overview.gpus[0].gauges:
    pass
print(json.dumps({
    "gpus": [[one.index, one.gauges.get(Metric.SMI_UTIL), one.gauges.get(Metric.SM_ACTIVE),
              sorted(one.memory_by_pid)] for one in overview.gpus],
    "notes": overview.notes,
}))
overview.close()
"""


def read(**scripted: str) -> dict[str, list[object]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | scripted
    done = subprocess.run(
        [sys.executable, "-c", READ], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_every_gpu_has_its_figures_and_its_processes(fake_nvml: Path) -> None:
    host = read(
        LD_LIBRARY_PATH=str(fake_nvml), FAKE_NVML_DEVICES="2", FAKE_NVML_GPM="2=31",
        FAKE_NVML_UTIL="98", FAKE_NVML_PIDS="100,200",
    )  # fmt: skip
    assert host == {"gpus": [[i, 1004 / 1024, 317 / 1024, [100, 200]] for i in (0, 1)], "notes": []}


def test_without_a_driver_it_says_why(tmp_path: Path) -> None:
    host = read(LD_LIBRARY_PATH=str(tmp_path))
    assert host["gpus"] or host["notes"]
