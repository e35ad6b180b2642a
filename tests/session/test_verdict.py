"""What a snapshot shows of a verdict: its advice answers the cause that its badge names."""

from pathlib import Path

from msgspec.structs import replace

from brrrtop.model.advice import Advisory
from brrrtop.session.analyze import analyze
from brrrtop.session.verdict import NOTHING, showing
from brrrtop.sources.registry import open_source

RECORDING = Path(__file__).parents[1] / "recordings" / "runs" / "late_loader.brrr"


def test_of_advice_that_wins_about_as_much_what_answers_the_runs_cause_comes_first() -> None:
    def one(edit: str, saves: float) -> Advisory:
        return Advisory(edit, "says", 0.9, saves, {"edit": edit}, "try", "", saves=saves)

    graphs, loader, slower = (
        one("compile-reduce-overhead", 0.53), one("loader-ready", 0.52), one("loader-ready", 0.3),
    )  # fmt: skip
    whole = analyze(open_source(RECORDING))
    assert whole.estimate is not None

    def shown(cause: str | None, *given: Advisory) -> list[Advisory]:
        at = replace(whole, estimate=replace(whole.estimate, cause=cause))
        return list(showing(at, NOTHING, given, ()).advisories)

    assert shown("input", graphs, loader) == [loader, graphs]
    assert shown("launch", graphs, loader) == shown(None, graphs, loader) == [graphs, loader]
    assert shown("input", graphs, slower) == [graphs, slower]
    quiet = showing(whole, NOTHING, (graphs, loader), {graphs.kind})
    assert (quiet.advisories, quiet.silenced) == ((loader,), (graphs,))
