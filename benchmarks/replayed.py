"""How near the replay of an unedited step is to the measured one, on every recording of this repository.

    python -m benchmarks.replayed

What-if prices an edit by replaying a step with it made; without an edit the replay has to take the time that
was measured. Prints the recordings off by more than 3 %, and how many are within. Ranks of one job and what
has no whole step are left out.
"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from brrrtop.analysis.estimate import estimate
from brrrtop.model.tables import Span
from brrrtop.sources.registry import open_source
from brrrtop.timeline.timeline import Timeline
from brrrtop.whatif.simulate import period_ns
from brrrtop.whatif.step import step_of

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("benchmarks/gains/measured", "brrrtop/data/demos", "tests/recordings")
CLOSE = 0.03


def error_of(path: Path) -> float | None:
    """Replayed over measured time of the recording's step, less 1; None: it has no step."""
    source, timeline = open_source(path), Timeline()
    for frame in source.frames():
        timeline.add(frame)
    source.close()
    span = Span(timeline.first_ns or 0, timeline.last_ns or 0)
    devices = timeline.active_devices(span)
    step = step_of(estimate(timeline.window(span, devices[0]))) if devices else None
    return None if step is None else period_ns(step) / step.measured_ns - 1


def main() -> None:
    ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter).parse_args()
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))]
    paths = [one for one in paths if one.name.endswith((".brrr", ".json.gz"))]
    errors = {path: error_of(path) for path in paths if path.parent.name != "straggler"}
    known = {path: error for path, error in errors.items() if error is not None}
    for path, error in known.items():
        if abs(error) > CLOSE:
            print(f"{path.relative_to(ROOT)}  {error:+.1%}")
    close = sum(abs(error) <= CLOSE for error in known.values())
    print(f"within {CLOSE:.0%}: {close} of {len(known)}; {len(errors) - len(known)} have no step")


if __name__ == "__main__":
    main()
