"""Shapes of one step on a GPU: most of the kernel time gets them, and nothing of it lasts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPT = """
import torch
torch.manual_seed(0)
layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, 0.0, batch_first=True) for _ in range(4)]
inner = torch.nn.Sequential(*layers).cuda().bfloat16()
ran_eager = []
def forward(x):
    if not torch.compiler.is_compiling():
        ran_eager.append(1)
    return inner(x)
compiles = %r
model = torch.compile(forward) if compiles else forward
optimizer = torch.optim.AdamW(inner.parameters(), fused=True)
x = torch.randn(8, 512, 512, device="cuda", dtype=torch.bfloat16)
while True:
    optimizer.zero_grad()
    loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    assert not (compiles and ran_eager), "compiled code was left"
"""


def measured(script: Path, out: Path) -> dict[str, Any]:
    """What the benchmark found; all that it and its trainer said is shown where a test fails."""
    command = [sys.executable, str(BENCHMARKS / "live_shapes.py"), "--out", str(out)]
    done = subprocess.run(
        [*command, "--script", str(script)],
        timeout=300, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    print(done.stdout)
    measured = out / "live_shapes.json"
    assert measured.exists(), f"exit code {done.returncode}: {done.stdout[-2000:]}"
    result: dict[str, Any] = json.loads(measured.read_text())[0]
    print(json.dumps(result, indent=1))
    assert "error" not in result, result
    return result


def holds(result: dict[str, Any], least: float) -> None:
    """Most kernels have shapes, torch's backward thread among them, and the steps are as before."""
    assert result["trainer_alive"], result["trainer_tail"]
    assert result["says"].startswith("shapes of one step recorded"), result["says"]
    assert "L2" not in result["before"]["evidence"]
    assert result["after"]["evidence"]["L2"] >= least, result["after"]
    assert result["threads"] >= 2
    assert result["step_after_ns"] == pytest.approx(result["step_before_ns"], rel=0.03)
    assert result["afterwards_rate"] == pytest.approx(result["alone_rate"], rel=0.05)


@pytest.mark.parametrize(("compiles", "least"), [(False, 0.6), (True, 0.25)])
def test_a_language_model_gets_shapes_and_keeps_its_pace_and_its_compiled_code(
    tmp_path, compiles, least
):
    """Inductor's kernels of several ops have no single op's shape: 0.348 on an H200."""
    script = tmp_path / "transformer.py"
    script.write_text(SCRIPT % compiles)
    holds(measured(script, tmp_path / "out"), least)
