"""Every row of `docs/faults.md` is lived through, and the page says what the rows say."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.agent.fault_rig import Outcome, live_through
from tests.agent.faults import FAULTS, PAGE, page

AT_ONCE = 10
"""They mostly wait."""


@pytest.fixture(scope="module")
def lives(built: dict[str, Path], tmp_path_factory) -> dict[str, Future[Outcome]]:
    """Each fault's outcome, by its script."""
    folder = tmp_path_factory.mktemp("faults")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return {
            fault.script: pool.submit(live_through, fault, built, folder / str(number))
            for number, fault in enumerate(FAULTS)
        }


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.script for fault in FAULTS])
def test_the_user_is_told_and_the_trainer_goes_on(lives, fault):

    outcome = lives[fault.script].result()
    assert outcome.broken(fault) == [], outcome


def test_the_page_says_what_was_lived_through():
    assert PAGE.read_text() == page(), "python -m tests.agent.faults"
