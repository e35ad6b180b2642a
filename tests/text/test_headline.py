"""The headline's words for what would help."""

from __future__ import annotations

from msgspec.structs import replace

from brrrtop.advisories.registry import all_rules
from brrrtop.model.estimate import Regime
from brrrtop.text import phrases
from brrrtop.text.figures import figures
from brrrtop.text.headline import GAIN_PHRASES
from tests.tui import snapshots


def test_every_advice_that_wins_something_says_with_what() -> None:
    wins_nothing = {"warming-up", "records-lost", "misleading-util", "gpu-faults", "none-healthy"}
    assert {rule.kind for rule in all_rules()} - set(GAIN_PHRASES) == wins_nothing


def test_a_gpu_that_waits_is_never_called_healthy() -> None:
    healthy = snapshots.healthy()
    assert phrases.badge(healthy) == "HEALTHY" and healthy.estimate is not None
    waits = replace(healthy.estimate, regime=Regime.OVERHEAD, cause="compile")
    assert phrases.badge(replace(healthy, estimate=waits)) == "COMPILES"


def test_samples_a_second_stand_in_the_line_of_figures_where_shapes_tell_them() -> None:
    one = snapshots.snapshot()
    assert ("1,306", " samples/s") in figures(one)
    unknown = replace(one, run=replace(snapshots.run(), batch=None))
    assert ("40.8", " steps/s") in figures(unknown)
