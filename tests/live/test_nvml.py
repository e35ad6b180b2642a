"""The sampler, against a stand-in NVML in a process of its own."""

import os
import shutil
import subprocess
from dataclasses import replace

import pytest

from collectors.gpu.devices import NvmlDevice, bare_uuid, match_uuids, visible_to
from collectors.gpu.nvml import Rate

GPM = "1=100,2=96,3=14,5=93.5,10=16,20=1,60=2"


def test_every_reading_has_its_unit(ask):
    last = ask("readings", FAKE_NVML_GPM=GPM, FAKE_NVML_PIDS="1")["rounds"]
    steady = last[0]
    assert steady["SMI_UTIL"] == pytest.approx(0.37, abs=1e-3)
    assert steady["POWER_WATT"] == 512
    assert steady["POWER_LIMIT_WATT"] == 700
    assert steady["SM_CLOCK_HZ"] == steady["SM_CLOCK_MAX_HZ"] == 1.98e9
    assert steady["MEMORY_TOTAL_BYTES"] == 141 << 30
    assert steady["MEMORY_TEMPERATURE_C"] == 71
    assert steady["ECC_UNCORRECTED_COUNT"] == 0
    assert steady["CLOCK_EVENT_REASONS"] == 4
    assert last[1]["TENSOR_ACTIVE"] == pytest.approx(0.935, abs=1e-3)
    assert last[1]["SM_OCCUPANCY"] == pytest.approx(0.14, abs=1e-3)
    assert last[1]["PCIE_TX_BYTES_PER_S"] == 1 << 20
    assert last[1]["NVLINK_RX_BYTES_PER_S"] == 2 << 20


def test_an_unsupported_question_is_asked_once(ask):
    got = ask("often", FAKE_NVML_FAIL="nvmlDeviceGetTemperature=3,nvmlDeviceGetPowerUsage=3",
              FAKE_NVML_FIELD_FAIL="186=3")  # fmt: skip
    assert got["calls"]["nvmlDeviceGetTemperature"] == 1
    assert got["calls"]["nvmlDeviceGetPowerUsage"] == 1
    assert all("TEMPERATURE_C" not in one and "POWER_WATT" not in one for one in got["rounds"])
    assert sum("SMI_UTIL" in one for one in got["rounds"]) > 8


def test_power_falls_back_to_the_mean_of_a_second(ask):
    got = ask("readings", FAKE_NVML_FIELD_FAIL="186=3")
    assert [one["POWER_WATT"] for one in got["rounds"]] == [400, 400]


def test_reasons_fall_back_to_their_older_name(ask):
    got = ask("readings", FAKE_NVML_FAIL="nvmlDeviceGetCurrentClocksEventReasons=13")
    assert got["rounds"][1]["CLOCK_EVENT_REASONS"] == 0x40
    assert got["calls"]["nvmlDeviceGetCurrentClocksEventReasons"] == 1


def test_a_slow_call_is_asked_rarely(ask):
    got = ask("often", FAKE_NVML_SLOW_US="nvmlDeviceGetTemperature=5000")
    assert got["calls"]["nvmlDeviceGetTemperature"] == 2  # the first may have been cold
    assert got["calls"]["nvmlDeviceGetUtilizationRates"] > 8


def test_a_slow_field_rests_and_leaves_the_others_alone(ask):
    got = ask("often", FAKE_NVML_FIELD_SLOW_US="197=20000")
    assert sum("PCIE_TX_BYTES_PER_S" in one for one in got["rounds"]) == 0
    assert sum("PCIE_RX_BYTES_PER_S" in one for one in got["rounds"]) > 8


def test_costly_questions_are_asked_once_or_seldom(ask):
    calls = ask("often", FAKE_NVML_PIDS="1")["calls"]
    assert calls["nvmlDeviceGetComputeRunningProcesses_v3"] == 2  # one reading: size, then list
    assert calls["nvmlDeviceGetMaxClockInfo"] == 1


def test_without_gpm_traffic_comes_from_field_values(ask):
    got = ask("readings")
    assert got["rounds"][1]["PCIE_RX_BYTES_PER_S"] == pytest.approx(1e9, rel=0.2)
    assert got["rounds"][1]["NVLINK_TX_BYTES_PER_S"] == pytest.approx(1e9, rel=0.2)
    assert "SM_ACTIVE" not in got["rounds"][1]
    assert got["says"] == ["this GPU has no GPM counters (Hopper and newer have them)"]


def test_gpm_values_that_are_no_numbers_are_absent(ask):
    last = ask("readings", FAKE_NVML_GPM="2=96,5=nan,10=inf")["rounds"][1]
    assert last["SM_ACTIVE"] == pytest.approx(0.96, abs=1e-3)
    assert "TENSOR_ACTIVE" not in last
    assert "DRAM_ACTIVE" not in last


def test_gpm_samples_are_never_taken_too_close(ask):
    got = ask("early", FAKE_NVML_GPM=GPM)
    assert 1 <= got["calls"]["nvmlGpmSampleGet"] <= 1 + got["took_s"] / 0.1
    assert got["live_samples"] == 0


def test_gpm_refused_is_said_and_not_hammered(ask):
    got = ask("readings", FAKE_NVML_GPM=GPM, FAKE_NVML_FAIL="nvmlGpmSampleGet=4")
    assert got["calls"]["nvmlGpmSampleGet"] == 1
    assert any("Permission" in line for line in got["says"])
    assert got["live_samples"] == 0


def test_a_lost_gpu_is_said_and_left_alone(ask):
    got = ask("often", FAKE_NVML_FAIL="nvmlDeviceGetUtilizationRates=15")
    assert got["calls"]["nvmlDeviceGetUtilizationRates"] == 1
    assert "no longer answers" in got["lost"]
    assert got["rounds"][-1] == {}


def test_an_xid_is_told_when_it_happens(ask):
    rounds = ask("readings", FAKE_NVML_XID="79")["rounds"]
    assert rounds[0]["XID"] == 79
    assert "XID" not in rounds[1]


def test_the_trainer_is_not_foreign_to_itself(ask):
    me = os.getpid()  # the child's parent
    got = ask(f"own:{me}", FAKE_NVML_PIDS=f"{me},1")
    assert got["rounds"][0]["FOREIGN_PROCESS_COUNT"] == 1


def test_a_gpu_shared_through_mps_is_said(ask, tmp_path):
    server = tmp_path / "nvidia-cuda-mps-server"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", server)
    with subprocess.Popen([str(server), "20"]) as running:
        got = ask(f"own:{os.getpid()}", FAKE_NVML_PIDS=f"{running.pid}")
        running.kill()
    assert any("MPS" in line for line in got["says"])


def test_children_of_the_trainer_are_not_foreign(ask):
    me = os.getpid()
    grandparent = os.getppid()
    got = ask(f"own:{grandparent}", FAKE_NVML_PIDS=f"{grandparent},{me}")
    assert got["rounds"][0]["FOREIGN_PROCESS_COUNT"] == 0


def test_a_trainer_without_a_context_yet_sees_all_others(ask):
    got = ask(f"own:{os.getpid()}", FAKE_NVML_PIDS="1")
    assert got["rounds"][0]["FOREIGN_PROCESS_COUNT"] == 1


def test_pids_of_another_namespace_are_not_counted(ask):
    got = ask(f"own:{os.getpid()}", FAKE_NVML_PIDS="4194400,4194401")
    assert "FOREIGN_PROCESS_COUNT" not in got["rounds"][0]
    assert any("namespace" in line for line in got["says"])


def test_device_facts_speak_the_models_language(ask):
    got = ask("facts", FAKE_NVML_DEVICES="2", CUDA_VISIBLE_DEVICES="1")
    assert list(got["visible"]) == ["0"]
    one = got["visible"]["0"]
    assert one["uuid"].startswith("GPU-abcdef01")
    assert (one["device_id"], one["sm_count"], one["capability"]) == (0, 132, [9, 0])


def test_no_library_is_a_sentence_with_an_action(ask):
    message, action = ask("unavailable", FAKE_NVML_FAIL="nvmlInitWithFlags=9")
    assert "driver is not loaded" in message
    assert "modprobe" in action
    message, _ = ask("unavailable", FAKE_NVML_FAIL="nvmlInitWithFlags=18")
    assert "different versions" in message
    (text,) = ask("thread:0", FAKE_NVML_FAIL="nvmlInitWithFlags=18")["says"]
    assert "different versions" in text
    assert "reload the driver" in text


def test_the_thread_brings_facts_and_gauges_at_its_pace(ask):
    got = ask("thread", FAKE_NVML_GPM=GPM)
    assert [one["name"] for one in got["devices"]] == ["NVIDIA Fake"]
    assert {"SM_ACTIVE", "SMI_UTIL", "POWER_WATT", "FOREIGN_PROCESS_COUNT"} <= set(got["metrics"])
    assert got["sm"] <= 2 + 5 * got["took_s"]
    assert 1 <= got["util"] <= 2 + 3 * got["took_s"]
    assert got["late_s"] < 60, "on the host's clock"
    assert got["ended"]


def test_a_driver_that_hangs_does_not_hold_the_monitor(ask):
    got = ask("hangs", FAKE_NVML_SLOW_US="nvmlDeviceGetUtilizationRates=20000000")
    assert got["ended"] is False
    assert got["waited_s"] < 15


def board(index: int, name: str = "H200") -> NvmlDevice:
    return NvmlDevice(index, None, f"GPU-{index}{index}aa-bb", name)


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("1,-1,0", [1]),
        ("", []),
        ("1,9,0", [1]),
        ("GPU-22aa", [2]),
        ("GPU-zz", []),
    ],
)
def test_devices_are_numbered_as_cuda_does(visible, indices):
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    result, caveat = visible_to([board(0), board(1), board(2)], environment)
    assert [one.index for one in result.values()] == indices
    assert list(result) == list(range(len(indices)))
    assert (caveat is None) == bool(indices)


@pytest.mark.parametrize("visible", [None, "0", "MIG-2ffff-1"])
def test_of_a_mig_device_there_are_no_counters(visible):
    devices = [replace(board(0), sliced=True), board(1)]
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert visible_to(devices, environment) == ({}, "a MIG device: no counters of it")
    assert visible_to(devices, {"CUDA_VISIBLE_DEVICES": "1"}) == ({0: board(1)}, None)


def test_mixed_gpus_carry_a_caveat_until_the_order_is_certain():
    mixed = [board(0, "T4"), board(1, "H200")]
    assert visible_to(mixed, {})[1] is not None
    assert visible_to(mixed, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})[1] is None


def test_uuids_of_torch_match_those_of_nvml():
    assert bare_uuid("GPU-22AA-bb") == "22aa-bb"
    result = match_uuids([board(0), board(1)], {0: "11aa-bb", 1: "unknown"})
    assert {number: one.index for number, one in result.items()} == {0: 1}


def test_a_counter_that_starts_over_gives_no_rate():
    rate = Rate()
    assert rate.per_s(0, 100) is None
    assert rate.per_s(500_000_000, 200) == 200
    assert rate.per_s(1_000_000_000, 50) is None
    assert rate.per_s(2_000_000_000, 60) == 10


def test_doctor_reads_the_counters_before_it_promises_them(ask):
    status, says, fix, _ = ask("doctor", FAKE_NVML_GPM=GPM)
    assert (status, fix) == ("fine", "")
    assert "NVIDIA" in says and "with GPM" in says
    status, says, fix, blocks = ask("doctor", FAKE_NVML_FAIL="nvmlInitWithFlags=18")
    assert (status, blocks) == ("bad", "counters")
    assert "different versions" in says
    assert "reboot" in fix
    assert ask("doctor", FAKE_NVML_DEVICES="0")[0] == "bad"


def test_a_trainer_that_names_an_unknown_gpu_gets_a_sentence_in_place_of_counters():
    board = NvmlDevice(0, None, "GPU-1", "NVIDIA Fake")
    chosen, caveat = visible_to([board], {"CUDA_VISIBLE_DEVICES": "GPU-abc"})
    assert chosen == {}
    assert caveat is not None and "'GPU-abc'" in caveat
    assert visible_to([], {}) == ({}, None)
