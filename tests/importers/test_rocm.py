"""Kineto traces of AMD GPUs: HIP's names, numbers of HSA nodes, grids in threads, no capability."""

import json
from pathlib import Path
from typing import Any

import pytest

from brrrtop.analysis.ceilings import ceilings_for
from brrrtop.kernel_names.facts import name_facts
from brrrtop.model.tables import Device
from brrrtop.session.analyze import analyze
from brrrtop.sources.importers.kineto.source import KinetoSource
from brrrtop.sources.registry import open_source
from brrrtop.views.json_report import to_json
from brrrtop.views.text import to_text
from collectors.protocol.frames import Kind
from tests.session.handmade import Received, kernel, launch, op, text_of, written

MI300X = {
    "id": 0, "name": "AMD Instinct MI300X", "totalGlobalMem": 206141652992, "computeMajor": 9,
    "computeMinor": 4, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536, "warpSize": 64, "sharedMemPerBlock": 65536, "numSms": 304,
    "maxSharedMemoryPerMultiProcessor": 65536,
}  # fmt: skip
TENSILE = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x128x64_MI16x16x1_SN"
MM = {
    "Input Dims": [[8944, 1024], [1024, 1024]], "Input type": ["c10::BFloat16"] * 2,
    "Concrete Inputs": ["", ""],
}  # fmt: skip


def _trace(gpus: list[dict[str, Any]], node: int = 9, name: str = TENSILE) -> bytes:
    """Three steps of one product: 35 × 8 tiles, as rocBLAS launches it, in threads."""
    events = []
    for step in range(3):
        at, number = 1000.0 * step, step + 1
        events += [
            op(at, 90, "aten::mm", **MM, **{"External id": number}),
            launch(at + 10, 5, number, "hipExtModuleLaunchKernel", **{"External id": number}),
            launch(at + 100, 400, 0, "hipDeviceSynchronize"),
            kernel(at + 20, 300, number, name, device=node, grid=[71680, 1, 1], block=[256, 1, 1]),
        ]
    return text_of(events, deviceProperties=gpus, roctracer_version=4.1)


def _report(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(to_json(analyze(open_source(path))))
    return report


def _device(received: Received) -> dict[str, Any]:
    frame = received.of(Kind.DEVICE)[0]
    facts: dict[str, Any] = frame.body
    return facts


def test_grids_in_threads_become_blocks(tmp_path):
    received = Received(KinetoSource(written(tmp_path, _trace([MI300X]))))
    assert received.kernels["grid"].tolist() == [[280, 1, 1]] * 3
    plain = _trace([MI300X]).replace(b"hipExtModuleLaunchKernel", b"hipModuleLaunchKernel")
    received = Received(KinetoSource(written(tmp_path, plain, "plain.json")))
    assert received.kernels["grid"].tolist() == [[71680, 1, 1]] * 3


def test_the_number_of_a_node_is_not_that_of_the_properties(tmp_path):
    alone = _device(Received(KinetoSource(written(tmp_path, _trace([MI300X])))))
    assert (alone["device_id"], alone["name"], alone["sm_count"]) == (9, "AMD Instinct MI300X", 304)
    assert "capability" not in alone
    mixed = [MI300X, {**MI300X, "id": 1, "name": "AMD Instinct MI210"}]
    unknown = _device(Received(KinetoSource(written(tmp_path, _trace(mixed), "mixed.json"))))
    assert unknown["name"].startswith("AMD") and "MI" not in unknown["name"]
    assert "sm_count" not in unknown


def test_a_known_part_gives_sides_and_its_share_of_the_roof(tmp_path):
    report = _report(written(tmp_path, _trace([MI300X])))
    row = report["kernels"][0]
    flop_per_s = 2 * 8944 * 1024 * 1024 / 300e-6
    assert (row["family"], row["side"], row["evidence"]) == ("gemm", "compute", "L2")
    assert row["flop_per_s"] == pytest.approx(flop_per_s, rel=0.01)
    assert row["roof_share"] == pytest.approx(flop_per_s / 1307.4e12, rel=0.01)
    idle = report["account"]["idle_ns"]
    assert idle["sync"] > 0 and sum(idle.values()) == 2 * 700_000
    assert report["source"]["capability"] is None


def test_products_of_a_part_without_ceilings_have_a_side_by_shapes_alone(tmp_path):
    unknown = [{**MI300X, "name": "AMD Radeon Graphics"}]
    path = written(tmp_path, _trace(unknown))
    assert _report(path)["kernels"][0]["side"] == "compute"
    text = " ".join(to_text(analyze(open_source(path))).split())
    assert "No ceilings are known of AMD Radeon Graphics" in text
    bare = _trace(unknown).replace(b"Input Dims", b"Input Dins")
    report = _report(written(tmp_path, bare, "bare.json"))
    assert report["kernels"][0]["side"] == "unknown"
    assert report["regime"] != "compute"


def test_types_of_what_rocblas_multiplies():
    types = {"BBS_BH": "bf16", "B_BS_BH": "bf16", "HHS_BH": "fp16", "SB": "fp32", "DB": "fp64", "F8BS_BH": "fp8"}  # fmt: skip
    for text, precision in types.items():
        facts = name_facts(f"Cijk_Ailk_Bjlk_{text}_Bias_MT64x16x32_MI16x16x1")
        assert (facts.precision, facts.tile) == (precision, (64, 16)), text


@pytest.mark.parametrize(
    "name", ["AMD Instinct MI300X VF", "AMD Instinct MI250X", "AMD Instinct MI210"]
)
def test_amd_parts_have_ceilings_and_no_compute_capability(name):
    ceilings = ceilings_for(Device(0, name))
    assert ceilings is not None and ceilings.capability is None
    assert ceilings.rate("bf16") and ceilings.bytes_per_s


def test_a_real_trace_of_an_mi250(traces):
    path = traces / "peers" / "hta-amd-mi250.json.gz"
    if not path.exists():
        pytest.skip("hta-amd-mi250 is not there")
    report = _report(path)
    assert report["cause"] == "launch" and report["split"]["overhead"] > 0.9
    assert report["regime"] == "unknown", "a program's first step"
    families = {row["family"] for row in report["kernels"]}
    assert {"gemm", "elementwise", "reduction", "copy", "optimizer"} <= families
    assert report["launch"]["lead_p50_ns"] > 0


def test_an_empty_name_is_told_by_compute_units_and_memory(tmp_path):
    report = _report(written(tmp_path, _trace([MI300X | {"name": ""}])))
    assert report["source"]["device"] == "AMD Instinct MI300X"
    other = _report(written(tmp_path, _trace([MI300X | {"name": "", "numSms": 120}]), "o.json"))
    assert other["source"]["device"] == "AMD GPU of unknown model"


def test_external_ids_join_where_nobody_wrote_correlations_and_an_unknown_part_gets_rates(tmp_path):
    events = []
    for step in range(9):
        at, number = 1000.0 * step, 80 + step
        square = {**MM, "Input Dims": [[4097, 4097], [4097, 4097]]}
        made = launch(at + 10, 5, 0, "hipExtModuleLaunchKernel")
        ran = kernel(at + 20, 367, 0, TENSILE)
        for one in (made, ran):
            one["args"] = {"External id": number}
        events += [op(at, 90, "aten::mm", **square, **{"External id": 1537 + step}), made, ran]
    report = _report(written(tmp_path, text_of(events, deviceProperties=[])))
    assert report["source"]["device"] == "AMD GPU of unknown model"
    [row] = report["kernels"]
    assert (row["side"], row["evidence"]) == ("compute", "L2")
    assert row["flop_per_s"] == pytest.approx(2 * 4097**3 / 367e-6, rel=0.001)
    assert row["roof_share"] is None
