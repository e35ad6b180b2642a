"""Judges what `promises.py record` found: promised beside measured, and what the fix left."""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HEAD = "| advice | before | after | won | promised at most | won of that | after the fix |"


@dataclass(frozen=True)
class Outcome:
    """One pair. Shares are of the step before; None: not known."""

    kind: str
    before_ms: float
    after_ms: float
    won: float
    won_low: float
    """From the fastest round before and the slowest after; `won_high` the other way round."""
    won_high: float
    promised: float | None
    """None: the advice was not given."""
    confidence: float | None
    place: int | None
    """Among the advice given, 1 is the first."""
    left: float | None
    """What the advice still promises after the fix; None: it is gone."""
    others: tuple[str, ...]
    after: tuple[str, ...]
    """Advice given after the fix."""
    compared: str
    """What brrrtop's own comparison of the two traces says."""

    @property
    def held(self) -> bool:
        """Given, under the bound, above half of it, and gone after the fix."""
        if not self.promised or self.left is not None:
            return False
        return 0.5 <= self.won / self.promised <= 1


def judge(found: Path, to_json: Path | None = None, readme: Path | None = None) -> int:
    """Prints the table of a folder or a tar; writes it where it is asked to."""
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as scratch:
        folder = unpacked(found, Path(scratch))
        notes = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        outcomes = [one for note in notes if (one := _judged(folder, note)) is not None]
    for line in table(outcomes):
        print(line)
    print()
    for one in outcomes:
        for line in details(one):
            print(line)
    held = [one.kind for one in outcomes if one.held]
    print(f"\n{len(held)} of {len(notes)} promises held, and their advice is gone after the fix.")
    if to_json is not None:
        rows = [{key: _short_of(v) for key, v in asdict(one).items()} for one in outcomes]
        for row, one in zip(rows, outcomes, strict=True):
            row["held"] = one.held
        told = {key: notes[0].get(key) for key in ("date", "device", "driver", "torch", "cuda")}
        to_json.write_text(json.dumps(told | {"pairs": rows}, indent=1) + "\n")
    if readme is not None:
        replace_table(readme, table(outcomes))
    return 0


def unpacked(found: Path, scratch: Path) -> Path:
    """The folder with loose files: `found` itself, or its tars unpacked."""
    tars = [found] if found.is_file() else sorted(found.glob("promises*.tar"))
    for path in tars:
        with tarfile.open(path) as tar:
            for member in tar.getmembers():
                source = tar.extractfile(member)
                if source is not None and Path(member.name).name == member.name:
                    (scratch / member.name).write_bytes(source.read())
    return scratch if tars else found


def _judged(folder: Path, note: dict[str, Any]) -> Outcome | None:
    from brrrtop.errors import BrrrtopError

    try:
        if "failed" not in note:
            return outcome(folder, note)
        print(f"{note['kind']}: {note['failed']}")
    except BrrrtopError as error:
        print(f"{note['kind']}: {error}")
    return None


def _snapshot(path: Path) -> Any:
    """Whole steps alone, as `brrrtop compare` takes them: a file of four lacks the first wait."""
    from brrrtop.session.whole import analyze
    from brrrtop.sources.registry import open_source

    source = open_source(path)
    try:
        return analyze(source, trimmed=True)
    finally:
        source.close()


def outcome(folder: Path, note: dict[str, Any]) -> Outcome:
    """What brrrtop says of both traces, beside the times."""
    from brrrtop.advisories.compare import compare
    from brrrtop.views import comparison

    kind = note["kind"]
    paths = [folder / f"{kind}{tail}.trace.json.gz" for tail in ("", ".after")]
    before, after = (_snapshot(path) for path in paths)
    found = compare(before.estimate, after.estimate, before.advisories)
    kept = [comparison.promise(one) for one in found.promises if one.kind == kind]
    kinds = [one.kind for one in before.advisories]
    given = next((one for one in before.advisories if one.kind == kind), None)
    still = next((one for one in after.advisories if one.kind == kind), None)
    old, new = note["times_ms"]
    return Outcome(
        kind=kind,
        before_ms=note["before_ms"],
        after_ms=note["after_ms"],
        won=1 - note["after_ms"] / note["before_ms"],
        won_low=1 - max(new) / min(old),
        won_high=1 - min(new) / max(old),
        promised=given.saves_at_most if given else None,
        confidence=given.confidence if given else None,
        place=kinds.index(kind) + 1 if given else None,
        left=(still.saves_at_most or 0.0) if still else None,
        others=tuple(_short(one) for one in before.advisories if one.kind != kind),
        after=tuple(_short(one) for one in after.advisories),
        compared="; ".join([found.says, *kept, *(f"changed {what}" for what in found.changes)]),
    )


def _short(one: Any) -> str:
    return one.kind if one.saves_at_most is None else f"{one.kind} {one.saves_at_most:.0%}"


def _short_of(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def table(outcomes: list[Outcome]) -> list[str]:
    """Markdown."""
    lines = [HEAD, "|---|--:|--:|--:|--:|--:|---|"]
    for one in outcomes:
        promised, part = "not advised", "–"
        if one.promised:
            kept = one.won / one.promised
            # A bound that was passed does not read as kept, however little it was passed by.
            part = f"{max(kept, 1.01) if kept > 1 else kept:.2f}"
            promised = f"{100 * one.promised:.1f} %"
        left = "gone" if one.left is None else f"still {100 * one.left:.0f} %"
        times = f"{one.before_ms:.2f} ms | {one.after_ms:.2f} ms | {100 * one.won:.1f} %"
        lines.append(f"| `{one.kind}` | {times} | {promised} | {part} | {left} |")
    return lines


def replace_table(path: Path, lines: list[str]) -> None:
    """Puts the table in the place of the one with the same head."""
    old = path.read_text().splitlines()
    first = after = old.index(HEAD)
    while after < len(old) and old[after].startswith("|"):
        after += 1
    path.write_text("\n".join([*old[:first], *lines, *old[after:]]) + "\n")


def details(one: Outcome) -> list[str]:
    """What the table has no room for."""
    lines = [f"{one.kind}: won {one.won_low:.1%} to {one.won_high:.1%} by rounds; {one.compared}"]
    if one.place != 1:
        lines.append(f"    before, beside it: {', '.join(one.others) or 'nothing'}")
    lines.append(f"    after: {', '.join(one.after) or 'nothing'}")
    return lines
