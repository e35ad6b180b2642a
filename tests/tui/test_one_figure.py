"""A figure has one value: all screens of a demo and its report are read, in the middle of it and at its end,
and numbers of one name are compared, whatever sentence they stand in."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import count

import pytest

from brrrtop.cli.commands.replay import scenarios
from brrrtop.cli.files import FromFirstActivity, open_job
from brrrtop.cli.options import Options
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.replay import Replay
from brrrtop.session.session import Session
from brrrtop.sources.registry import open_source
from brrrtop.text.headline import of_loops
from brrrtop.views.text import to_text
from tests.tui.shown import shown

SCREENS = ("1", "C", "w", "a", "L", "i", "r", "T", "R")
TIME, CLOCK = r"([\d.,]+ [mµn]?s)", r"([\d.:]+(?: m?s)?)"
A_STEP, THE_RUN = (rf"^ +edit +{what} +gain.*\n ▸ \S+ +" for what in ("a step", "the run"))
NAMES = {
    "run": [r"^run +(\S+(?: s)?) +\S+ ?\D+?(\d+%)"],
    "its length": [rf"^run +{CLOCK} +[a-zC]", rf" of {CLOCK} recoverable", rf"{THE_RUN}{CLOCK} → "],
    "waits for data": [
        r"^run .* waits for data (\d+%)", r"(\d+%) of the time the GPU waits for the next batch",
        r"^ +waits for data +[━─]+ +(\d+%)", r"waits  (\d+%) of the time",
    ],
    "waits for launches": [
        r"^run .* waits for launches (\d+%)", r"waits (\d+%) of the time for the host to launch",
        r"^ +waits for launches +[━─]+ +(\d+%)",
    ],
    "copies": [
        r"^run .* copies (\d+%)", r"copies from and to the host (\d+%)", r"(\d+%) of the time with no kernel",
        r"^ +copies +[━─]+ +(\d+%)",
    ],
    "idle": [r"GPU idle (\d+%)"],
    "active": [r"· GPU active ([<>]?\d+%)", r"GPU active  .*, ([<>]?\d+%) by traced"],
    "evaluation": [r"^ +evaluation .*?(\d+%)  ", r"takes (\d+%) of the run"],
    "time a step": [
        rf"^(?:.* · )?{TIME}/step ·", rf"^ +you .* {TIME}/step", rf"batch ready: a step {TIME} → ",
        rf"{A_STEP}{TIME} → ", rf"^ +a (?:training )?step  +{TIME}",
    ],
    "with the first edit": [
        rf"^ +ghost .* {TIME}/step", rf"^ghost .* {TIME} (?:with|if|per)", rf"{A_STEP}\S+ \S+ → {TIME}",
        rf"^ +a (?:training )?step  +\S+ \S+ +{TIME}",
        rf"{TIME} a step if no rank",
    ],
    "with the next batch ready": [
        rf"batch ready: .* → {TIME}$", rf"^ [▸ ] loader-ready +\S+ \S+ → {TIME}",
    ],
    "gain of the first edit": [
        r"^ +(?:about|up to) ([\d.]+×) faster", r"^ ▸ \S+ +\S+ \S+ → \S+ \S+ +([\d.]+×)", r"a step, ([\d.]+×) faster",
    ],
    "how sure": [r"^ [A-Z][A-Z -]+  .* (\d+%) sure$"],
    "ghost": [r"the ghost is ([\d,]+) steps? ahead"],
    "recoverable": [rf"{CLOCK} of {CLOCK} recoverable"],
}  # fmt: skip
ALWAYS = {"run", "its length", "active", "time a step", "how sure"}


def played(name: str) -> Iterator[Snapshot]:
    """What a replay shows in the middle and at the end."""
    ticks, path = count(), scenarios()[name]
    if path.is_dir():
        files = sorted(map(str, path.iterdir()))
        replay: Replay = open_job(files, Options(), clock=lambda: float(next(ticks)))
    else:
        session = Session(FromFirstActivity(open_source(path)), keep_ns=None)
        replay = Replay(session, clock=lambda: float(next(ticks)))
    shot = replay.advance()
    for part in (0.4, 1.0):
        while (shot.progress or 0.0) < part:
            shot = replay.advance()
        yield shot
    replay.close()


async def read(snapshot: Snapshot) -> dict[str, set[str]]:
    """The values of each name, of all screens and the report."""
    texts = [to_text(snapshot)]
    for size, keys in (((80, 24), ("1",)), ((120, 40), SCREENS)):
        async with shown(snapshot, size=size) as screen:
            texts += [await screen.press("1", key) for key in keys]
    seen: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        lines = "\n".join(line.rstrip() for line in text.replace("│", " ").splitlines())
        for what, patterns in NAMES.items():
            for pattern in patterns:
                hits = re.findall(pattern, lines, re.MULTILINE)
                seen[what] |= {" of ".join(h) if isinstance(h, tuple) else h for h in hits}
    return seen


@pytest.mark.parametrize("name", scenarios())
async def test_numbers_of_one_name_are_the_same_on_every_screen(name: str) -> None:
    for snapshot in played(name):
        seen = await read(snapshot)
        assert {what: values for what, values in seen.items() if len(values) > 1} == {}
        always = ALWAYS - ({"how sure"} if of_loops(snapshot) else set())
        assert {what for what, values in seen.items() if values} >= always
        if name == "input-bound" and snapshot.run and snapshot.picture:
            drawn_ns = snapshot.picture.span.duration_ns
            assert drawn_ns == pytest.approx(snapshot.run.step_ns, rel=0.05), (
                "the mean step is drawn"
            )
        if name == "imagenet":
            assert all(seen[what] for what in NAMES if what not in ("waits for launches", "copies"))
        gains = {one.kind: one.saves for one in snapshot.advisories if one.saves is not None}
        rows = reversed(snapshot.whatif)  # of several edits of one piece of advice the best
        priced = {row.advisory: row.saves for row in rows if row.advisory in gains}
        assert priced == pytest.approx({kind: gains[kind] for kind in priced}, abs=0.005)
