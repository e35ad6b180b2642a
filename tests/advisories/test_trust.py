"""Several GPUs, trust and hardware: scenes that call for each advice, and traps."""

from collectors.vocabulary import MarkClass, Metric

from .cases import Cases, large, looped, small
from .scenarios import GEMM, MUL, NCCL, Scene, healthy

CASES = Cases()
calls_for, silent = CASES.calls_for, CASES.silent


@silent("exposed-communication")
def collectives_behind_products(s: Scene) -> None:
    s.kernel(GEMM, 4_000.0, blocks=132)
    s.kernel(NCCL, 3_000.0, blocks=24, stream=20, beside=True)
    large(s)


@calls_for("warming-up")
def a_first_compile() -> Scene:
    return healthy(Scene().mark(MarkClass.COMPILE, 50_000, "forward")).mark(MarkClass.STEP)


@silent("warming-up")
def a_short_compile_before_many_steps() -> Scene:
    return healthy(Scene().mark(MarkClass.COMPILE, 2_000, "forward"), steps=10)


@silent("warming-up", "records-lost", "gpu-faults", "monitor-cost")
def a_steady_run() -> Scene:
    scene = healthy().gauge(Metric.STEP_COST_SHARE, 0.002).gauge(Metric.XID, 0)
    return scene.gauge(Metric.ECC_UNCORRECTED_COUNT, 0)


@calls_for("records-lost")
def many_records_lost() -> Scene:
    scene = looped(small)
    scene.lost = len(scene.rows) // 10
    return scene


@calls_for("misleading-util")
def a_full_utilisation_of_little() -> Scene:
    scene = looped(small).gauge(Metric.SMI_UTIL, 0.99, 1.0)
    return scene.gauge(Metric.DRAM_ACTIVE, 0.02).gauge(Metric.FP32_ACTIVE, 0.01)


@silent("misleading-util")
def a_full_utilisation_at_the_roof() -> Scene:
    scene = looped(lambda s: [s.kernel(MUL, 400.0) for _ in range(40)])
    return scene.gauge(Metric.SMI_UTIL, 0.99, 1.0)


@calls_for("throttled")
def a_hot_gpu() -> Scene:
    scene = healthy().gauge(Metric.CLOCK_EVENT_REASONS, 0x20, 0x20, 0)
    return scene.gauge(Metric.SM_CLOCK_HZ, 1.2e9).gauge(Metric.SM_CLOCK_MAX_HZ, 1.98e9)


@silent("throttled")
def a_gpu_at_its_power_cap() -> Scene:
    scene = healthy().gauge(Metric.CLOCK_EVENT_REASONS, 0x4, 0x4, 0x4)
    return scene.gauge(Metric.SM_CLOCK_HZ, 1.6e9).gauge(Metric.SM_CLOCK_MAX_HZ, 1.98e9)


@calls_for("idle-clocks")
def application_clocks() -> Scene:
    scene = healthy().gauge(Metric.CLOCK_EVENT_REASONS, 0x2, 0x2)
    return scene.gauge(Metric.SM_CLOCK_HZ, 1.1e9).gauge(Metric.SM_CLOCK_MAX_HZ, 1.98e9)


@calls_for("shared-gpu")
def a_neighbour_at_work() -> Scene:
    scene = looped(lambda s: (s.idle(6_000, MarkClass.INPUT), large(s)))
    return scene.gauge(Metric.SMI_UTIL, 0.98).gauge(Metric.FOREIGN_PROCESS_COUNT, 1)


@silent("shared-gpu")
def a_neighbour_that_rests() -> Scene:
    return healthy().gauge(Metric.SMI_UTIL, 0.99).gauge(Metric.FOREIGN_PROCESS_COUNT, 1)


@calls_for("monitor-cost")
def dear_watching() -> Scene:
    return healthy().gauge(Metric.STEP_COST_SHARE, 0.08).gauge(Metric.STEP_COST_ERROR_SHARE, 0.01)


calls_for("none-healthy", well_fed_products=lambda: healthy())
silent(
    "none-healthy",
    a_run_with_something_to_win=small,
    a_run_that_mostly_idles=lambda s: (s.idle(20_000, MarkClass.INPUT), large(s)),
    # Work of the host that no mark and no edit stands for.
    nothing_to_edit_beside_much_idle_time=lambda s: (large(s, 10), s.idle(900.0)),
)
calls_for(
    "exposed-communication",
    collectives_alone=lambda s: (large(s), s.kernel(NCCL, 3_000.0, blocks=24, stream=20)),
)
silent("idle-clocks", clocks_at_the_power_cap=lambda: a_gpu_at_its_power_cap())
calls_for("gpu-faults", uncorrected_errors=lambda: healthy().gauge(Metric.ECC_UNCORRECTED_COUNT, 3))


test_given_where_it_is_called_for, test_silent_where_it_only_looks_like_it = CASES.tests()
