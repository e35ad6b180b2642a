"""What a snapshot shows of a verdict: its advice answers the cause that its badge names."""

from pathlib import Path

from msgspec.structs import replace

from brrrtop.model.advice import Advisory
from brrrtop.session.analyze import analyze
from brrrtop.session.verdict import NOTHING, showing
from brrrtop.sources.registry import open_source

RECORDING = Path(__file__).parents[1] / "recordings" / "runs" / "late_loader.brrr"


def test_what_answers_the_cause_leads_and_what_may_fail_does_not_where_something_else_wins_as_much() -> (
    None
):
    def one(edit: str, saves: float, low: float = 0.2) -> Advisory:
        return Advisory(edit, "says", 0.9, saves, {"edit": edit}, "try", "", saves, low)

    graphs, tf32, loader = (
        one("compile-reduce-overhead", 0.53), one("tf32", 0.52), one("loader-ready", 0.5),
    )  # fmt: skip
    whole = analyze(open_source(RECORDING))
    assert whole.estimate is not None

    def shown(cause: str | None, *given: Advisory) -> list[Advisory]:
        at = replace(whole, estimate=replace(whole.estimate, cause=cause))
        return list(showing(at, NOTHING, given, ()).advisories)

    assert shown("input", tf32, loader) == [loader, tf32]
    assert shown(None, tf32, loader) == [tf32, loader]
    assert shown("launch", graphs, loader) == [loader, graphs]
    for less in (one("tf32", 0.3), one("tf32", 0.5, 0.1), one("tf32", 0.5, -0.1)):
        assert shown("launch", graphs, less) == [graphs, less]
    quiet = showing(whole, NOTHING, (graphs, loader), {graphs.kind})
    assert (quiet.advisories, quiet.silenced) == ((loader,), (graphs,))
