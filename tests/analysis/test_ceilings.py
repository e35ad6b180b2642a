"""Ceilings move with what was measured: clocks, and what a calibration reached."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.analysis import ceilings
from brrrtop.analysis.ceilings import Calibration, calibration_of, ceilings_for, keep
from brrrtop.analysis.estimate import estimate
from brrrtop.cli.commands import doctor as verb
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError
from brrrtop.model.estimate import Side
from brrrtop.model.tables import Device, Gauges, Links, OpSignature, Window
from collectors.errors import CollectorError, NoTorch
from collectors.gpu.calibrate import calibrate
from collectors.vocabulary import Metric
from tests.analysis.build import H200, K, window

US = 1_000
MADE = Calibration(
    "NVIDIA H200", "GPU-22aa", 4.3e12, {"bf16": 7.9e14}, date="2026-11-21", torch="2.11.0"
)


@pytest.fixture(autouse=True)
def no_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    forget()
    yield
    forget()


def forget() -> None:
    ceilings._kept.cache_clear()
    ceilings_for.cache_clear()


def at_clock(w: Window, clock_hz: float) -> Window:
    rows = np.array([w.span.t0_ns + 1], np.int64)
    clock = np.array([Metric.SM_CLOCK_HZ], np.int32)
    return replace(w, gauges=Gauges(rows, np.zeros(1, np.int32), clock, np.array([clock_hz])))


def test_a_throttled_clock_moves_the_decision_and_not_what_is_shown() -> None:
    op = OpSignature("aten::mm", ((8192, 128), (128, 8192)), ("c10::BFloat16",) * 2)
    w = window([K(i * 51 * US, (i * 51 + 50) * US, corr=i + 1, blocks=4000) for i in range(20)])
    w = replace(w, ops={1: op}, links=Links(np.arange(1, 21), np.ones(20, np.int64)))
    fast, slow = (estimate(at_clock(w, hz)).facts.labels.groups[0] for hz in (1.83e9, 0.9e9))
    assert slow.compute_share_of_roof == fast.compute_share_of_roof
    assert (fast.side, slow.side) == (Side.MEMORY, Side.COMPUTE)  # 124 FLOP per byte


def test_a_clock_read_while_idle_is_no_denominator() -> None:
    ceilings = ceilings_for(H200)
    assert ceilings.clock_ratio(210e6) == 0.3
    assert ceilings.clock_ratio(None) == 1.0


def test_a_calibration_is_found_by_uuid_and_by_name_where_there_is_none() -> None:
    keep(MADE)
    assert calibration_of(replace(H200, uuid="22AA")) == MADE
    assert calibration_of(replace(H200, uuid="GPU-33bb")) is None
    assert calibration_of(Device(0, "NVIDIA H200")) == MADE
    assert calibration_of(Device(0, "NVIDIA H100")) is None


def test_a_newer_calibration_replaces_the_older_of_the_same_gpu() -> None:
    keep(MADE)
    keep(replace(MADE, uuid="GPU-33bb"))
    where = keep(replace(MADE, bytes_per_s=4.4e12))
    assert len(json.loads(where.read_text())["gpus"]) == 2
    assert calibration_of(replace(H200, uuid="GPU-22aa")) == replace(MADE, bytes_per_s=4.4e12)


def test_a_calibration_says_what_is_attainable_and_leaves_the_datasheet() -> None:
    plain = ceilings_for(H200)
    keep(MADE)
    forget()
    ceilings = ceilings_for(H200)
    assert ceilings.flop_per_s == plain.flop_per_s
    assert ceilings.attainable_compute == pytest.approx(7.9e14 / plain.flop_per_s["bf16"])
    assert ceilings.attainable_memory == pytest.approx(4.3 / 4.8, rel=0.01)
    assert "measured" in ceilings.source


def test_an_implausible_calibration_changes_nothing() -> None:
    keep(replace(MADE, bytes_per_s=1e11, flop_per_s={"bf16": 1e12}))
    forget()
    ceilings = ceilings_for(H200)
    assert ceilings is not None and (ceilings.attainable_memory, ceilings.compute_attained) == (
        0.9,
        None,
    )


def test_a_part_nobody_knows_gets_its_ceilings_from_its_calibration() -> None:
    keep(replace(MADE, name="Mystery 9000", uuid=None))
    forget()
    ceilings = ceilings_for(Device(0, "Mystery 9000"))
    assert ceilings is not None and "measured" in ceilings.source
    assert ceilings.bytes_per_s == pytest.approx(4.3e12 / 0.9)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "brrrtop.calibration/1", "gpus": [{}]}'])
def test_a_file_that_makes_no_sense_counts_as_none(text: str) -> None:
    ceilings.path().parent.mkdir(parents=True, exist_ok=True)
    ceilings.path().write_text(text)
    assert calibration_of(H200) is None


def test_a_folder_that_cannot_be_written_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/proc/nowhere")
    with pytest.raises(BrrrtopError, match="cannot be written"):
        keep(MADE)


def interpreter(folder: Path, says: str) -> str:
    """A program in place of a Python that has torch and a GPU."""
    path = folder / "python-with-torch"
    path.write_text(f"#!{sys.executable}\nprint({says!r})\n")
    path.chmod(0o755)
    return str(path)


def test_the_verb_measures_keeps_and_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {
        "name": "NVIDIA H200", "uuid": "GPU-22aa", "torch": "2.11.0",
        "bytes_per_s": 4.3e12, "flop_per_s": {"bf16": 7.9e14},
    }  # fmt: skip
    monkeypatch.setattr(verb, "check_idle", lambda gpu: "GPU-22aa")
    python = interpreter(tmp_path, json.dumps(document))
    assert verb.calibrate(Options(python=python)) == 0
    text = capsys.readouterr().out
    assert "4.30 TB/s" in text and "of the datasheet" in text
    assert calibration_of(H200) is not None


@pytest.mark.parametrize(
    ("says", "hint"),
    [
        ('{"error": "torch", "python": "/usr/bin/python3"}', "--python"),
        ('{"error": "cuda", "python": "/usr/bin/python3"}', "nvidia-smi"),
        ('{"error": "memory"}', "idle"),
        ("Segmentation fault", "try"),
    ],
)
def test_what_goes_wrong_is_a_sentence_with_an_action(tmp_path: Path, says: str, hint: str) -> None:
    with pytest.raises(CollectorError) as caught:
        calibrate("GPU-22aa", interpreter(tmp_path, says))
    assert hint in caught.value.action


def test_the_program_says_so_without_torch_or_gpu(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with pytest.raises(NoTorch):
        calibrate("GPU-22aa", str(python))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "GeForce RTX 4090 Laptop"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3050 Ti Laptop GPU", None),
        ("NVIDIA GeForce RTX 2070 with Max-Q Design", None),
        ("NVIDIA RTX A2000 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3070 Ti", "GeForce RTX 3070 Ti"),
    ],
)
def test_a_laptop_part_has_a_row_of_its_own_or_none(name: str, part: str | None) -> None:
    found = ceilings_for(Device(0, name=name))
    assert (found.part if found else None) == part
