"""The catalogue holds every rule there is, and the page is what it generates."""

from importlib import import_module
from pathlib import Path

import pytest

from brrrtop.advisories import registry
from brrrtop.advisories.registry import GROUPS, OVERHEAD, rule
from brrrtop.whatif.price import EDITS

RULES = registry.all_rules()
ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
PUBLISHED = """
allocation-churn allocator-retries bigger-batch cast-churn channels-last
checkpoint-stall cuda-graphs cudnn-benchmark dataloader-stall double-precision embedding-sort
enable-tf32-or-amp evaluation-share exposed-communication few-blocks flash-attention
fuse-pointwise fused-optimizer fusion-ceiling gc-pause generation-share gpu-faults graph-breaks
host-stall idle-clocks launch-bound-compile logging-stall misleading-util
monitor-cost needless-copies none-healthy other-share overlap-copies pin-memory python-overhead
readback-traffic recompilation records-lost remove-checkpointing rollout-share shared-gpu
skinny-products straggler sync-point tensor-core-alignment throttled underfilled-kernels
unified-memory unknown-kernel use-bf16 warming-up zero-grad-fill
"""
TOPICS = [
    import_module(f".{path.stem}", __package__)
    for path in sorted(HERE.glob("test_*.py"))
    if "\nCASES = Cases()" in path.read_text()
]


def test_every_rule_is_given_in_a_scene_and_silent_in_another():
    """No id is published that nothing can give."""
    kinds = {one.kind for one in RULES if not one.of_job}
    assert {kind for topic in TOPICS for kind, _ in topic.CASES.calling} == kinds
    assert {kind for topic in TOPICS for kind, _ in topic.CASES.quiet} == kinds


def test_an_id_once_published_stays():
    """Scripts silence and gate by it."""
    assert set(PUBLISHED.split()) <= {one.kind for one in RULES}


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.__name__)
def test_the_scenes_of_a_file_are_played(topic):
    """Scenes that nobody asks `tests()` for are listed, and never run."""
    tests = (one for name, one in vars(topic).items() if name.startswith("test_"))
    played = {one.__qualname__.removeprefix("Cases.tests.<locals>.") for one in tests}
    assert {"given", "silent"} <= played


def test_every_edit_is_priced_and_worded():
    documented = {edit for one in RULES for edit in one.edits}
    assert documented | {"quiet-host"} == EDITS.keys()


def test_rules_are_documented_and_cover_rules_there_are():
    for one in RULES:
        assert one.title and one.when and one.unless and one.group in GROUPS
        assert set(one.covers) <= {one.kind for one in RULES}


def test_two_rules_cannot_have_one_id(monkeypatch):
    monkeypatch.setattr(registry, "RULES", dict(registry.RULES))
    with pytest.raises(ValueError, match="pin-memory"):
        rule("pin-memory", OVERHEAD, "Again", when="-", unless="-")(lambda context: None)


def test_the_page_tells_the_limits_that_apply():
    assert registry.WORTH == "wins 2 % and 0.3 ms a step or more"


def test_the_page_is_current():
    page = (ROOT / registry.PAGE).read_text(encoding="utf-8")
    assert page == registry.page(RULES), "run: python -m brrrtop.advisories.registry"
