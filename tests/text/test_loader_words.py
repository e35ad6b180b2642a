"""What is said of a loader's waits agrees with itself."""

import pytest
from msgspec.structs import replace

from brrrtop.model.host_tables import LoaderRow
from brrrtop.text import loader
from tests.tui import snapshots


@pytest.mark.parametrize(
    ("total_ns", "text"),
    [
        (1_110_000_000, "median 111 ms, longest 1.94 s"),
        (2_730_000_000, "273 ms each on average, longest 1.94 s"),
    ],
)
def test_a_median_far_from_the_mean_does_not_speak_alone(total_ns, text):
    row = LoaderRow("DataLoader", 10, 10_000_000_000, total_ns, 111_000_000, 0, 1_940_000_000)
    assert loader.waits(row, brief=True) == f"for 10 batches: {text}"


def test_the_kind_is_read_off_the_name():
    names = {
        snapshots.LOADER.name: "DataLoader of Images",
        "DataLoader(num_workers=2)": "DataLoader",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": "DataLoader",
        "next_batch": "next_batch",
    }
    for name, kind in names.items():
        assert loader.kind(replace(snapshots.LOADER, name=name)) == kind
