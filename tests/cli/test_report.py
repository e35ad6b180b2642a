"""The report: JSON as the contract has it, text that a stranger can read."""

import json
import math
import re
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pytest
from msgspec.structs import replace

from brrrtop.cli import output
from brrrtop.cli.commands import replay
from brrrtop.cli.files import read
from brrrtop.cli.options import Options
from brrrtop.errors import BadInput
from brrrtop.model.account import Split
from brrrtop.model.advice import StepWork, Unprofiled, WhatIf
from brrrtop.model.estimate import CounterSamples, Launch, Regime, Side, Steps
from brrrtop.model.snapshot import Freshness, Settings, Snapshot, SourceInfo
from brrrtop.views import brief
from brrrtop.views.brief import to_brief
from brrrtop.views.json_report import document, to_json
from brrrtop.views.text import to_text
from collectors.vocabulary import Metric
from tests.recorded import analyzed
from tests.session.handmade import copy, kernel, text_of, written
from tests.tui import snapshots

MakeSnapshot = Callable[..., Snapshot]
SVG = "{http://www.w3.org/2000/svg}"
KEYS = {
    "schema", "source", "window", "split", "account", "busy_ns", "regime", "cause",
    "confidence", "launch", "kernels", "advisories", "whatif", "losses",
}  # fmt: skip


def test_every_edit_that_was_simulated_is_a_row(make_snapshot):
    """A saving of 0 or below is a row too, one that the text does not advise."""
    rows = (
        WhatIf(
            "compile",
            30.4e6,
            0.34,
            0.28,
            0.41,
            "fuse-pointwise",
            "model = torch.compile(model)",
            StepWork(416.0, 40e6, 20e6),
            StepWork(124.0, 28e6, 18e6),
        ),
        WhatIf("bf16", 48.3e6, -0.05, -0.08, math.nan, None, "with torch.autocast():"),
    )
    report = json.loads(to_json(replace(make_snapshot(), whatif=rows)))
    assert report["whatif"][0] == {
        "edit": "compile", "step_ms": 30.4, "saves": 0.34, "saves_low": 0.28, "saves_high": 0.41,
        "saves_of_step": 0.34, "advisory": "fuse-pointwise", "line": "model = torch.compile(model)",
        "kernels_now": 416.0, "kernels_then": 124.0, "device_ns_now": 40e6, "device_ns_then": 28e6,
        "host_ns_now": 20e6, "host_ns_then": 18e6, "saves_recorded": None, "risk": None,
    }  # fmt: skip
    assert report["whatif_after"] is None
    assert report["whatif"][1]["saves"] == -0.05
    assert report["whatif"][1]["saves_high"] is None and report["whatif"][1]["advisory"] is None
    assert report["whatif"][1]["kernels_now"] is None
    recorded = replace(rows[0], unprofiled=Unprofiled(0.2, 25e6))
    one = json.loads(to_json(replace(make_snapshot(), whatif=(recorded,))))["whatif"][0]
    assert (one["saves"], one["step_ms"], one["saves_recorded"]) == (0.2, 25.0, 0.34)
    pair = replace(rows[0], edit="compile+bf16", step_ns=29.0e6)
    report = json.loads(to_json(replace(make_snapshot(), whatif=rows, whatif_after=(pair,))))
    assert report["whatif_after"]["first"] == "compile"
    assert report["whatif_after"]["rows"][0]["edit"] == "compile+bf16"


def test_the_text_has_a_table_of_edits_in_80_columns(make_snapshot):
    rows = (
        WhatIf("compile-reduce-overhead", 3.2e6, 0.2, -0.02, 0.41, None, "x = " + "word " * 30),
        WhatIf("tf32", 4.0e6, -0.001, -0.02, 0.02, None, "no use"),
    )
    pair = WhatIf("compile-reduce-overhead+tf32", 3.0e6, 0.25, 0.1, 0.4, None, "")
    snapshot = replace(make_snapshot(), whatif=rows, whatif_after=(pair,))
    text = to_text(snapshot)
    assert re.search(
        r"  compile-reduce-overhead +4.00 ms → 3.20 ms +1.25× 0.98–1.7×\n      x = word", text
    )
    assert re.search(r"  tf32 +4.00 ms → 4.00 ms +1.00× 0.98–1.02×\n", text)
    assert "no use" not in text, "nobody is to try it"
    assert "After compile-reduce-overhead: tf32 1.33× with both." in text
    assert text.count("word") == 30
    for shown in (text, to_text(snapshot, ascii_only=True)):
        assert max(map(len, shown.splitlines())) <= 80
    assert "What if" not in to_text(make_snapshot())


def test_advice_says_what_is_predicted_with_its_range(make_snapshot):
    snapshot = make_snapshot()
    one = replace(snapshot.advisories[0], saves=0.34, saves_low=0.28, saves_at_most=0.41)
    text = to_text(replace(snapshot, advisories=(one,)))
    assert f"1 {one.kind}: 1.5× faster (1.39–1.7×), " in text
    assert "at most" not in text


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (Steps(4, 133_000_000, "marks", 1.0), "1.00 µs judged, 4 steps, median 133 ms\n"),
        (Steps(1, 133_000_000, "marks", 1.0), "1.00 µs judged, 1 step of 133 ms\n"),
        (Steps(40, 1_940_000, "period", 1.0, warming_up=True),
         "1.00 µs judged, 40 steps, median 1.94 ms (inferred from the kernel sequence),\n"
         "  still warming up\n"),
    ],
)  # fmt: skip
def test_the_length_of_several_steps_is_called_their_median(steps, text, make_snapshot):
    """Four steps of 133 ms in 420 ms did not add up."""
    assert text in to_text(make_snapshot({"steps": steps}))


@pytest.mark.parametrize(
    ("lead_ns", "reported"),
    [(1_770, "1.77 µs after its launch (median)"),
     (-242, "242 ns before its launch call returns (median)")],
)  # fmt: skip
def test_a_kernel_that_starts_within_its_launch_call_is_said_to(lead_ns, reported, make_snapshot):
    text = to_text(make_snapshot({"launch": Launch(lead_ns, 0.7, 0.2, 40)}))
    assert f"a kernel starts {reported}" in " ".join(text.split())


def test_what_was_not_measured_is_null_everywhere(make_snapshot):
    report = document(replace(make_snapshot(), estimate=None, devices=(), advisories=()))
    assert report.keys() >= KEYS
    assert set(report["split"].values()) == {None}
    assert set(report["account"]["idle_ns"].values()) == {None}
    assert report["account"]["compute_ns"] is None
    assert report["busy_ns"] is None
    assert report["regime"] == "unknown"
    assert report["window"]["step_ms"] is None
    unknown = document(make_snapshot({"launch": Launch(), "steps": Steps()}))
    assert unknown["launch"] == {
        "lead_p50_ns": None, "share_under_10us": None, "rho": None, "count": 0,
    }  # fmt: skip
    assert unknown["window"]["steps"] is None


def test_json_is_one_line_of_plain_numbers(make_snapshot):
    snapshot = make_snapshot({"split": Split(np.float64(0.5), 0.5, 0.0, float("nan"))})  # type: ignore[arg-type]
    advice = replace(
        snapshot.advisories[0],
        evidence={"n": np.int64(3), "odd": float("inf"), "spans": (np.float32(0.5),)},
    )
    text = to_json(replace(snapshot, advisories=(advice,)))
    assert "\n" not in text
    report = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} in JSON"))
    assert report["split"]["unknown"] is None
    assert report["advisories"][0]["evidence"] == {"n": 3, "odd": None, "spans": [0.5]}


def test_several_devices_are_listed_and_the_top_speaks_of_one(make_snapshot):
    one = make_snapshot()
    other = replace(one.estimate, device=replace(one.estimate.device, device_id=1))
    report = document(replace(one, devices=(one.estimate, other)))
    assert [device["source"]["device_id"] for device in report["devices"]] == [0, 1]
    assert all(device.keys() == KEYS for device in report["devices"])
    assert "devices" not in document(one)


def test_an_ascii_report_has_no_other_character(make_snapshot):
    text = to_text(make_snapshot(), ascii_only=True)
    assert text.isascii()
    assert "CCCC" in text


def test_names_that_are_cut_are_as_wide_in_ascii(make_snapshot):
    estimate = make_snapshot().estimate
    row = replace(estimate.kernels[0], name="a" * 100)
    snapshot = make_snapshot(estimate={"kernels": (row,)})
    plain = to_text(snapshot, ascii_only=True).splitlines()
    usual = to_text(snapshot).splitlines()
    (at,) = (i for i, line in enumerate(usual) if "aaa" in line)
    assert len(plain[at]) == len(usual[at]) <= 80


def test_each_kernel_tells_its_share_of_the_roof_and_what_bounds_it(make_snapshot):
    snapshot = make_snapshot()
    row = replace(snapshot.estimate.kernels[0], name="one", side=Side.MEMORY, roof_share=0.814)
    rows = (row, replace(row, name="two", side=Side.COMPUTE, roof_share=None))
    text = to_text(replace(snapshot, estimate=replace(snapshot.estimate, kernels=rows)))
    message = [line.split()[-3:-1] for line in text.splitlines() if line.endswith((" one", " two"))]
    assert message == [["81%", "bandwidth"], ["–", "compute"]]


def test_an_unknown_regime_says_so_without_a_confidence(make_snapshot):
    text = to_text(make_snapshot({"regime": Regime.UNKNOWN, "confidence": 0.1}))
    assert "UNKNOWN: not enough evidence" in text
    assert "10% sure" not in text


def test_losses_and_notes_are_told(make_snapshot):
    snapshot = make_snapshot(lost_records=1234)
    source = replace(snapshot.source, notes=("the file ends in the middle of an event",))
    text = to_text(replace(snapshot, source=source))
    assert "1,234 records were lost" in text
    assert "in the middle of an event" in text


def test_the_gpus_own_counters_are_in_both_forms(make_snapshot):
    gauges = {Metric.SM_ACTIVE: 0.14, Metric.SMI_UTIL: 1.0, Metric.POWER_WATT: 410.0,
              Metric.MONITOR_CPU_SHARE: 0.5}  # fmt: skip
    snapshot = make_snapshot(gauges={int(metric): value for metric, value in gauges.items()})
    report = document(snapshot)["gauges"]
    assert (report["sm_active"], report["smi_util"], report["power_watt"]) == (0.14, 1.0, 410.0)
    assert report["dram_active"] is None, "nobody measured it"
    assert "monitor_cpu_share" not in report
    text = to_text(snapshot)
    assert "SM active 14%, nvidia-smi says 100%, 410 W" in text
    assert "DRAM" not in text
    assert "counters" not in to_text(make_snapshot())


def test_counter_samples_say_how_many_and_what_they_are_good_for(make_snapshot):
    plain = make_snapshot()
    assert plain.estimate is not None
    assert document(plain)["counter_samples"] is None
    counter_samples = CounterSamples(1250, 200_000, 1200, 4_100.0)
    seen = replace(
        plain.estimate, sampled=counter_samples, evidence_shares={"L3": 0.97, "L1": 0.03}
    )
    snapshot = replace(plain, estimate=seen)
    assert document(snapshot)["counter_samples"] == {
        "count": 1250, "interval_ns": 200_000, "placed": 1200, "error_ns": 4_100.0,
        "kernel_share": 0.97,
    }  # fmt: skip
    flat = " ".join(to_text(snapshot).split())
    assert "1,250 hardware counter samples of 200 µs, placed within 4.10 µs of the kernels" in flat
    assert "judge 97% of the kernel time (L3)" in flat
    lost = replace(seen, sampled=replace(counter_samples, placed=0, error_ns=None))
    flat = " ".join(to_text(replace(plain, estimate=lost)).split())
    assert "could not be matched with the kernels" in flat


def test_counters_alone_are_shown_and_called_so(make_snapshot):
    notes = ("no libcupti is mapped in the trainer: counters only",)
    source = SourceInfo("live", "pid 7", tier="nvml", notes=notes)
    alone = replace(
        make_snapshot(), source=source, estimate=None, devices=(), freshness=Freshness.LIVE
    )
    text = to_text(replace(alone, gauges={int(Metric.TEMPERATURE_C): 55.0}))
    assert "No verdict: only the GPU's own counters are read, no kernels" in text
    assert "55 °C" in text
    assert "no libcupti is mapped" in text
    waits = replace(alone, source=replace(source, tier="bursts"))
    ended = replace(waits, freshness=Freshness.ENDED)
    assert "No verdict: it ended before any kernel was seen." in to_text(ended)
    assert "Nothing to judge yet" in to_text(waits)


def test_how_much_of_the_hosts_lateness_is_explained_is_a_figure(make_snapshot):
    known = make_snapshot({"account": snapshots.account(compute=0.5, input=0.4715, host=0.0285)})
    assert document(known)["host_cause_known"] == 0.943
    assert "the host was late for, 94% has a known cause" in to_text(known)
    busy = make_snapshot({"account": snapshots.account(compute=1.0)})
    assert document(busy)["host_cause_known"] is None
    assert "known cause" not in to_text(busy)


def test_an_unknown_gpu_gets_the_architecture_its_kernels_tell_and_says_so(tmp_path):
    events = [
        kernel(i * 20, 10, 0, "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn") for i in range(9)
    ]
    path = written(tmp_path, text_of(events, deviceProperties=[]))
    result = analyzed(path)
    assert "by its kernels' names of compute capability 8.0 or later" in " ".join(
        to_text(result).split()
    )
    source = document(result)["source"]
    assert (source["device"], source["capability"]) == (None, [8, 0])
    assert source["capability_by_kernel_names"] is True
    known = document(analyzed(written(tmp_path, text_of(events))))["source"]
    assert (known["capability"], known["capability_by_kernel_names"]) == ([9, 0], False)


def test_copies_within_the_device_are_memory_work(tmp_path):
    ways = {"DtoD (Device -> Device)": "memory", "HtoD (Pageable -> Device)": "copy"}
    for way, side in ways.items():
        path = written(
            tmp_path, text_of([copy(i * 60, 50, 0, f"Memcpy {way}", 1 << 24) for i in range(9)])
        )
        report = document(analyzed(path))
        assert [row["side"] for row in report["kernels"]] == [side]
        booked = {"memory": "memory_ns", "copy": "exposed_copy_ns"}[side]
        assert report["account"][booked] == 9 * 50_000


def test_advice_stands_before_the_tables_and_what_is_of_no_use_stands_once():
    shown = analyzed(replay.scenarios()["launch-bound"])
    assert len(shown.advisories) > 1
    twice = tuple(replace(one, waste="a faster GPU") for one in shown.advisories)
    text = to_text(replace(shown, advisories=twice))
    assert text.splitlines().index("What to try") < 25
    assert text.index("What to try") < text.index("Where the time went") < text.index("Kernels by")
    assert text.count("a faster GPU") == 1
    assert not re.search(r"(underfilled|unknown|copy|comm)-bound", to_brief(shown))


def test_causes_add_up_to_the_time_and_the_gain_names_its_line(brrrtop):
    done = brrrtop("receipt", str(replay.scenarios()["sync-bound"]))
    rows = done.stdout.splitlines()
    assert max(map(len, rows)) <= brief.WIDTH and done.returncode == 0
    shares = [int(one) for one in re.findall(r"^  .*?(\d+)%", done.stdout, re.MULTILINE)]
    assert 95 <= sum(shares) <= 105
    assert "could be won" in done.stdout and re.search(r"\.py:\d+", done.stdout)
    whole = json.loads(brrrtop("receipt", str(replay.scenarios()["sync-bound"]), "--json").stdout)
    assert whole == {"schema": "brrrtop.receipt/1", "lines": rows}
    picture = brrrtop("receipt", str(replay.scenarios()["sync-bound"]), "--svg").stdout
    page = brrrtop("receipt", str(replay.scenarios()["sync-bound"]), "--html").stdout
    drawn = ["".join(one.itertext()) for one in ElementTree.fromstring(picture).iter(f"{SVG}text")]
    assert [one.replace("─", "-") for one in drawn][-len(rows) :] == rows
    assert drawn[0] == "waits for launches 37%" and picture.strip() in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_all_gpus_count_and_what_nobody_judged_has_no_figures():
    one = snapshots.snapshot()
    assert one.estimate is not None
    single, _ = brief.totals(brief.estimates(one))
    both = replace(one, devices=(one.estimate, one.estimate))
    assert brief.totals(brief.estimates(both))[0] == 2 * single
    assert "2 × NVIDIA H200" in "\n".join(brief.lines(both, Settings()))
    priced = Settings(gpu_hour=2.0, currency="€")
    amounts = [line for line in brief.lines(both, priced) if line.endswith(" €")]
    assert "GPU time" in amounts[0] and max(map(len, amounts)) == brief.WIDTH
    assert not any("%" in line for line in brief.lines(snapshots.waiting(), Settings()))
    healthy = "\n".join(brief.lines(snapshots.healthy(), Settings()))
    assert "nothing known here wins 5%" in healthy


NO_GPU_WORK = {"hta-cpu-only"}


def test_every_trace_adds_up_and_fits(traces):
    files = sorted(traces.rglob("*.json.gz"))
    assert files
    for path in files:
        if path.name.removesuffix(".json.gz") in NO_GPU_WORK:
            with pytest.raises(BadInput):
                read(str(path), Options())
            continue
        snapshot = read(str(path), Options())
        report = json.loads(to_json(snapshot))
        for one in (report, *report.get("devices", [])):
            account = one["account"]
            booked = sum(value for key, value in account.items() if key != "idle_ns")
            booked += sum(account["idle_ns"].values())
            assert booked == one["window"]["duration_ns"], path.name
            assert sum(one["split"].values()) == pytest.approx(1, abs=1e-9), path.name
            assert 0 <= one["busy_ns"] <= one["window"]["duration_ns"]
            assert sum(row["total_ns"] for row in one["kernels"]) > 0
        text = to_text(snapshot)
        assert max(map(len, text.splitlines())) <= 80, path.name


def test_kernel_names_cannot_write_to_the_terminal(make_snapshot):
    snapshot = make_snapshot()
    evil = replace(snapshot.estimate.kernels[0], name="\x1b[2Jboo\nrow\udcff")
    text = to_text(replace(snapshot, estimate=replace(snapshot.estimate, kernels=(evil,))))
    assert "\x1b" not in text
    text.encode()
    to_json(replace(snapshot, estimate=replace(snapshot.estimate, kernels=(evil,)))).encode()


@pytest.mark.parametrize(("variable", "bold"), [("", True), ("NO_COLOR", False)])
def test_headings_are_bold_on_a_terminal(make_snapshot, monkeypatch, capsys, variable, bold):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    if variable:
        monkeypatch.setenv(variable, "1")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.report(make_snapshot(), Options())
    shown = capsys.readouterr().out
    assert ("\x1b[1mWhat to try\x1b[m\n" in shown) is bold
    assert "\n  1 " in shown, "what is indented is not"
