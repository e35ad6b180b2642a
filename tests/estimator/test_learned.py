"""The trees that tell a kernel's side from what was counted of others."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest

from brrrtop.ceilings import ceilings_for
from brrrtop.estimator import learned
from brrrtop.estimator.estimate import estimate
from brrrtop.estimator.families import family_of
from brrrtop.estimator.features import COLUMNS, FALLING, RISING, Seen, row_of
from brrrtop.estimator.judging import Group
from brrrtop.estimator.labels import label
from brrrtop.estimator.learned import BEYOND_SM, SIDES, Trees
from brrrtop.estimator.names import name_facts
from brrrtop.estimator.table import share_of_roof
from brrrtop.model import Regime, Side
from brrrtop.tables import Device, Links, OpSignature, Window
from tests.estimator.build import ADD, GEMM, H2D, H200, NCCL, K, window

ODD = "cutlass_75_wmma_tensorop_bf16_s161616gemm_bf16_128x128_32x2_tn_align1"
A100 = replace(H200, name="NVIDIA A100-SXM4-80GB", sm_count=108, capability=(8, 0))


def product(
    name: str,
    device: Device = H200,
    ns: int = 1_500_000,
    beside: tuple[K, ...] = (),
    every: int = 2,
) -> Window:
    """Twelve products of 8190 x 8190 x 8190 on a full grid, one each `every` times their length."""
    begun = [i * every * ns for i in range(12)]
    kernels = [K(at, at + ns, name, i + 1, blocks=4096) for i, at in enumerate(begun)]
    made = replace(window([*kernels, *beside]), device=device)
    op = OpSignature("aten::mm", ((8190, 8190), (8190, 8190)), ("c10::BFloat16",) * 2)
    links = Links(np.arange(1, 13), np.full(12, 5))
    return replace(made, ops={5: op}, links=links)


def judged(w: Window) -> Group:
    return label(w, ceilings_for(w.device)).groups[0]


def seen(name: str = ADD, **changes: object) -> Seen:
    family, facts = family_of(name), name_facts(name)
    plain = Seen(
        name, family, facts, 50_000.0, 4096, 128, 32, 0, 16, 1.94, "bf16", None, 1e8, None, 0.5,
        False, 1.5, 0.445, (), False,
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_row_has_a_number_for_each_column_and_none_for_what_nobody_knows() -> None:
    row = row_of(seen(registers=0, blocks_per_sm=None, pace=None))
    told = dict(zip(COLUMNS, row.tolist(), strict=True))
    assert told["memory_roof"] == pytest.approx(math.log(0.5)) == told["nearest_roof"]
    for column in ("registers", "blocks_per_sm", "occupancy", "pace", "issue_ratio", "inner_k"):
        assert math.isnan(told[column]), column
    assert math.isnan(told["compute_roof"]) and math.isnan(told["roof_ratio"])


def test_what_a_block_takes_and_a_thread_moves_are_columns_of_their_own() -> None:
    told = dict(zip(COLUMNS, row_of(seen()).tolist(), strict=True))
    assert told["block_ns"] == pytest.approx(math.log(50_000 / 4096))
    assert told["thread_bytes"] == pytest.approx(math.log(1e8 / (4096 * 128)))
    told = dict(zip(COLUMNS, row_of(seen(size_bytes=None)).tolist(), strict=True))
    assert math.isnan(told["thread_bytes"])


def test_fp64_products_of_an_older_kind_reach_half_the_rate_of_later_tensor_cores() -> None:
    def share(name: str, device: Device) -> float:
        w = product(name, device, ns=40_000_000)
        op = replace(w.ops[5], types=("double", "double"))
        found = judged(replace(w, ops={5: op})).compute_share_of_roof
        assert found is not None
        return found

    old = "cutlass_80_tensorop_d884gemm_64x64_16x4_tn_align1"
    new = "sm90_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize64x64x16_warpgroupsize1x1x1"
    assert share(old, H200) == pytest.approx(2 * share(new, H200), rel=0.02)
    assert share(old, A100) == pytest.approx(share(new, A100), rel=0.02)


@pytest.mark.parametrize("rule", [SIDES, BEYOND_SM])
def test_nearer_the_arithmetic_is_never_less_likely_its_side(rule: int) -> None:
    rng, trees = np.random.default_rng(0), learned.shipped()
    rows = [row_of(seen(name)) for name in (ADD, GEMM, ODD)]
    for row in rows:
        for column, way in [*((c, 1) for c in RISING), *((c, -1) for c in FALLING)]:
            for _ in range(20):
                changed = np.where(rng.random(len(row)) < 0.3, rng.normal(0, 2, len(row)), row)
                steps = np.sort(rng.normal(-1, 1.5, 5))
                odds = []
                for step in steps:
                    changed[COLUMNS.index(column)] = step
                    odds.append(trees.odds(changed, rule))
                assert (np.diff(odds) * way >= -1e-9).all(), column


def test_nobody_knowing_anything_is_an_answer_too() -> None:
    for rule in (SIDES, BEYOND_SM):
        assert math.isfinite(learned.shipped().odds(np.full(len(COLUMNS), np.nan), rule))


def test_trees_of_other_columns_are_refused_with_what_to_do() -> None:
    kept = io.BytesIO()
    np.savez(kept, columns=np.array(["waves"]))
    kept.seek(0)
    with pytest.raises(ValueError, match=r"truth\.learn"):
        learned.read(kept)


def test_a_split_sends_what_is_not_known_where_it_was_sent_when_it_was_grown() -> None:
    size = len(COLUMNS)
    for beyond, wanted in ((0, -1.0), (size, 2.0)):
        trees = Trees(
            np.array([3 + beyond, 0, 0], np.int16), np.array([0.5, 0.0, 0.0]),
            np.array([1, 2, 1, 1, 2, 2], np.int32), np.array([0.0, -1.0, 2.0]),
            np.zeros((1, 1), np.int32), np.zeros(1), 1,
        )  # fmt: skip
        row = np.zeros(size)
        assert trees.odds(row) == -1.0
        row[3] = 0.6
        assert trees.odds(row) == 2.0
        row[3] = np.nan
        assert trees.odds(row) == wanted


def test_a_product_of_odd_rows_waits_for_its_sm_and_is_compute_all_the_same() -> None:
    """As counted: memory throughput 92 %, DRAM 4 %, tensor cores 28 % of their time busy."""
    w = product(ODD, ns=4_000_000, every=1)
    group, found = judged(w), estimate(w).estimate
    assert group.compute_probability < 0.2 and group.beyond_sm is not None
    assert group.aimed.compute_probability == group.beyond_sm > 0.6
    assert found.split.memory > found.split.compute
    assert 0.75 * found.split.memory < found.on_chip <= found.split.memory
    assert found.regime is Regime.COMPUTE


def test_copies_and_collectives_are_no_part_of_what_an_sm_waits_for() -> None:
    """They have time of their own in the account, and take none of the products'."""
    ns = 4_000_000
    beside = tuple(
        K((2 * i + 1) * ns, (2 * i + 2) * ns, name, 100 + i, stream=9)
        for i, name in enumerate((H2D, NCCL, H2D, NCCL))
    )
    found = estimate(product(ODD, ns=ns, beside=beside)).estimate
    assert min(found.account.exposed_copy_ns, found.account.exposed_comm_ns) > ns
    assert 0.75 * found.split.memory < found.on_chip <= found.split.memory


def test_only_products_convolutions_and_attention_feed_from_their_sm() -> None:
    kernels = [K(i * 400_000, i * 400_000 + 300_000, ADD, i + 1, blocks=65536) for i in range(12)]
    w = window(kernels)
    group = judged(w)
    assert group.beyond_sm is None and group.aimed is group
    assert estimate(w).estimate.on_chip == 0.0


def test_where_nobody_counted_kernels_the_rules_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    there = judged(product(GEMM, A100))
    monkeypatch.setattr(learned, "GROWN_ON", None)
    ruled = judged(product(GEMM, A100))
    assert there.compute_probability == ruled.compute_probability and there.beyond_sm is None


def test_tensor_core_products_of_doubles_are_not_taken_for_tf32() -> None:
    name = "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize128x128x16_stage3_tensor16x8x8"
    assert name_facts(name).precision == "fp64"


def test_what_waits_for_its_sm_is_shown_beside_the_ceiling_of_its_arithmetic() -> None:
    group = judged(product(ODD, ns=4_000_000))
    shown = share_of_roof(group, Side.MEMORY)
    assert shown == group.compute_share_of_roof != group.memory_share_of_roof
    plain = replace(group, beyond_sm=None)
    assert share_of_roof(plain, Side.MEMORY) == group.memory_share_of_roof


def test_a_product_of_wide_numbers_near_its_roof_is_on_the_compute_side_whatever_trees_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Trees, "odds", lambda *_: -5.0)

    def side(kind: str, ns: int) -> float:
        w = product("sm90_xmma_gemm_f64f64_f64f64_f64_tn_n_tilesize64x64x16", ns=ns)
        return judged(
            replace(w, ops={5: replace(w.ops[5], types=(kind, kind))})
        ).compute_probability

    assert side("double", 20_000_000) == pytest.approx(0.9)
    assert side("double", 80_000_000) < 0.1
    assert judged(product(GEMM)).compute_probability < 0.1
