"""From the command line to op shapes on kernels, in a real torch training.

Only NVIDIA's libraries are stand-ins: every product launches a kernel of theirs.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from brrrtop.model.tables import Span
from tests.agent.conftest import built
from tests.attach.children import child
from tests.attach.conftest import tracing
from tests.recorded import timeline_of

__all__ = ["built", "tracing"]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.timeout(240)
def test_shapes_reach_the_kernels_of_other_steps_and_the_recorder_is_off_again(
    tracing, built, fake_nvml, tmp_path
):
    pytest.importorskip("torch")
    script = [str(HERE / "shaped_training.py"), str(built["cuda"]), str(built["cupti"])]
    with child([sys.executable, *script]) as trainer:
        assert trainer.hears(b"step 3", 40), trainer.output.decode()
        trainer.output = b""
        file = tmp_path / "run.brrr"
        options = ["--once", "--json", "--shapes", "--trace-graphs", "--record", str(file)]
        done = subprocess.run(
            [sys.executable, "-m", "brrrtop", "attach", str(trainer.pid), *options],
            capture_output=True, text=True, timeout=90, check=False,
            env=os.environ | {"LD_LIBRARY_PATH": str(fake_nvml), "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "shapes of one step recorded:" in done.stderr
        assert json.loads(done.stdout)["schema"] == "brrrtop.report/2"
        trainer.hears(b"never said", 1)
        flags = [line.split()[2] for line in trainer.output.splitlines() if len(line.split()) == 3]
        assert 1 <= flags.count(b"True") <= 2, "one step, and no other"
        assert flags[-20:] == [b"False"] * 20
    timeline = timeline_of(file)
    window = timeline.window(Span(timeline.first_ns or 0, timeline.last_ns or 0), 0)
    ops = dict(zip(window.links.correlations.tolist(), window.links.op_ids.tolist(), strict=True))
    result = Counter(
        window.ops[ops[c]].dims if c in ops else None
        for c in window.activities.correlations.tolist()
    )
    products = {
        ((16, 64), (64, 32)), ((16, 32), (32, 8)), ((8, 16), (16, 32)), ((16, 8), (8, 32)),
        ((32, 16), (16, 64)),
    }  # fmt: skip
    assert products <= set(result), result
    assert result[None] <= 5, "at most the kernels of a step that was cut"
    assert all(window.ops[i].types[0] == "c10::BFloat16" for i in ops.values())
    [cut] = timeline.shapes.cuts
    inside = (window.activities.starts_ns >= cut.t0_ns) & (window.activities.starts_ns < cut.t1_ns)
    assert not inside.any()
