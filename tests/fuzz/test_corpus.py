"""What once crashed or hung is read, and a few hundred new inputs of each kind."""

import random
import signal
from collections.abc import Iterator

import pytest

from tests.fuzz import fuzz

FILES = sorted(fuzz.CORPUS.iterdir())
LIMIT_S = 30.0
COUNTS = {
    "decoder": 3000,
    "wire": 300,
    "recording": 6,
    "session": 6,
    "kineto": 12,
    "scanner": 30,
    "nsys": 12,
    "jax": 12,
}


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, fuzz._ring)
    yield
    signal.signal(signal.SIGALRM, before)


def test_the_corpus_is_small_and_every_file_has_a_reader():
    assert FILES and sum(path.stat().st_size for path in FILES) < 200_000
    assert {path.name.split("-")[0] for path in FILES} <= set(fuzz.TARGETS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_once_failed_is_read(path):
    _, read = fuzz.TARGETS[path.name.split("-")[0]]
    assert fuzz.tried(read, path.read_bytes(), LIMIT_S) is None


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_new_inputs_are_read(name):
    inputs, read = fuzz.TARGETS[name]
    for data, _ in zip(inputs(random.Random(1)), range(COUNTS[name]), strict=False):
        assert fuzz.tried(read, data, LIMIT_S) is None, data
