"""Gathers of whole rows: their grid tells how many, the table's dimensions how large."""

from __future__ import annotations

import pytest

from brrrtop.estimator.row_gathers import picked_rows
from brrrtop.session.opsigns import signed
from brrrtop.tables import OpSignature

GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, bool)"


def indexed(table: tuple[int, ...], kind: str = "float") -> OpSignature:
    return OpSignature("aten::index", (table, ()), (kind, ""))


@pytest.mark.parametrize(
    ("table", "kind", "blocks", "threads", "moved"),
    [
        ((300_000, 128), "float", 4_000_000, 32, 4_000_000 * 512),
        ((250_000, 4), "float", 2_250_000, 32, 2_250_000 * 16),
        ((250_000, 4, 32), "float", 1_000, 32, 1_000 * 512),
        ((50_000, 768), "c10::BFloat16", 8_192, 96, 8_192 * 1_536),
        # 8 KiB a row: 512 vectors, two blocks.
        ((128_256, 4_096), "c10::BFloat16", 16_384, 256, 8_192 * 8_192),
    ],
)
def test_what_is_moved_is_rows_times_their_size(
    table: tuple[int, ...], kind: str, blocks: int, threads: int, moved: int
) -> None:
    work = picked_rows(GATHER, indexed(table, kind), blocks, threads)
    assert work is not None and work.size_bytes == moved and work.flop == 0


def test_a_second_index_leaves_shorter_rows() -> None:
    # 32 x 1024 floats are 2048 vectors; blocks of 32 threads move rows of 1024 bytes at most.
    work = picked_rows(GATHER, indexed((64, 32, 64)), 500, 32)
    assert work is not None and work.size_bytes == 500 * 64 * 4


def test_where_no_rows_fit_the_blocks_nothing_is_told() -> None:
    assert picked_rows(GATHER, indexed((1_000, 5_000)), 10, 96) is None
    assert picked_rows(GATHER, None, 10, 32) is None
    assert picked_rows(GATHER, OpSignature("aten::index", ((), ())), 10, 32) is None
    assert picked_rows("index_elementwise_kernel<128, 4>", indexed((10, 10)), 10, 32) is None


def test_a_live_recording_takes_the_type_that_fits_the_blocks_and_not_that_of_the_indices() -> None:
    live = signed(OpSignature("aten::index", ((50_000, 768), ())), GATHER, ())
    assert live is not None
    wide, half = (picked_rows(GATHER, live, 100, threads) for threads in (192, 96))
    assert wide is not None and wide.size_bytes == 100 * 768 * 4
    assert half is not None and half.size_bytes == 100 * 768 * 2
