"""Every key of every screen does what it is for, to be seen; a new one fails here until it is listed."""

import os
import signal
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from brrrtop.errors import INTERRUPTED
from brrrtop.model.ranks import JobSnapshot, RankRow
from brrrtop.model.snapshot import Snapshot, SourceInfo
from brrrtop.model.tables import Device
from brrrtop.tui.app import BrrrtopApp
from tests.cli.terminal import LEAVES_THE_SCREEN, on_a_terminal
from tests.tui import snapshots
from tests.tui.drivers import ALL, ListDriver
from tests.tui.keys import (
    Bound,
    Effect,
    bound,
    chooses,
    grows,
    hides,
    press,
    settled,
    shows,
    shrinks,
)

PRESSED: dict[str, set[Bound]] = {}
"""By tour: what it presses, collected as the tables below are read."""


def tour(name: str, *stops: tuple[str, str, Effect]) -> tuple[tuple[str, str, Effect], ...]:
    """Keys in the order in which they are pressed: whose each is, itself, what comes of it. With
    an owner of `-` it only leads to where the next one works."""
    PRESSED[name] = {(owner, key) for owner, key, _ in stops if owner != "-"}
    return stops


class Player(ListDriver):
    """Plays one snapshot as if it were a recording: the playhead, the GPU and the rank are seen."""

    def __init__(self, snapshot: Snapshot, capabilities: frozenset[str] = ALL | {"ranks"}) -> None:
        super().__init__([snapshot], capabilities)

    def _change(self, **values: object) -> None:
        self._snapshots[-1] = replace(self._snapshots[-1], **values)  # type: ignore[arg-type]

    def _seek_by(self, share: float) -> None:
        self._change(progress=(self._snapshots[-1].progress or 0.0) + share)

    def step(self, count: int) -> None:
        self._seek_by(0.02 * count)

    def seek(self, share: float) -> None:
        self._change(progress=share)

    def faster(self) -> None:
        self._change(speed=(self._snapshots[-1].speed or 1.0) * 2)

    def slower(self) -> None:
        self._change(speed=(self._snapshots[-1].speed or 1.0) / 2)

    def select_device(self, device_id: int) -> None:
        shown = {one.device.device_id: one for one in self._snapshots[-1].devices}
        self._change(estimate=shown[device_id])

    def select_rank(self, key: str) -> None:
        last = self._snapshots[-1]
        assert last.job is not None
        source = replace(last.source, rank=int(key))
        self._change(source=source, job=replace(last.job, shown=key))


RECORDING = snapshots.snapshot(
    source=SourceInfo("recording", "run.brrr", 4711, 0, 1, "python train.py", tier="trace"),
    progress=0.5,
    speed=2.0,
    devices=(
        snapshots.estimate(),
        snapshots.estimate(device=Device(3, "NVIDIA B200")),
    ),
)
PLACE, SPEED = r"replay.* (\d+)%", r"at ([\d.]+)× speed"
SCROLLED = r"(\d+)–\d+ of \d+"
HIT = r'"kernel" (\d+) of'
CURSOR = r"at ([\d.]+) ms of the step"
ZOOMED = r"([\d.]+) ms of it"
AXIS = r"\n +([\d.]+)(?: ms)? +[\d.]+ ms"
MAIN = shows("── kernels")

ANYWHERE = tour(
    "anywhere",
    ("BrrrtopApp", "question_mark", shows("── help")),
    ("BrrrtopApp", "1", MAIN),
    *(
        step
        for key, words in (
            ("h", "── help"), ("f1", "── help"), ("2", "── roofline"), ("r", "── roofline"),
            ("3", "most worth taking first"), ("a", "most worth taking first"),
            ("4", "newest first"), ("l", "newest first"), ("5", "── before and after"),
            ("b", "── before and after"), ("6", "each edit simulated"), ("w", "each edit simulated"),
            ("p", "0 all of it"), ("C", "your code: share of"),
            ("T", "── ops, modules and memory"), ("L", "Where the loop makes the batches"),
        )
        for step in (("BrrrtopApp", key, shows(words)), ("-", "1", MAIN))
    ),
    ("BrrrtopApp", "space", shows("PAUSED")),
    ("-", "space", hides("PAUSED")),
    *((("BrrrtopApp", key, grows(PLACE))) for key in ("right", "full_stop", "right_square_bracket")),
    *((("BrrrtopApp", key, shrinks(PLACE))) for key in ("left", "comma", "left_square_bracket")),
    ("BrrrtopApp", "plus", grows(SPEED)),
    ("BrrrtopApp", "equals_sign", grows(SPEED)),
    ("BrrrtopApp", "minus", shrinks(SPEED)),
    ("BrrrtopApp", "d", shows("GPU 3 NVIDIA B200")),
    ("BrrrtopApp", "D", shows("GPU 0 NVIDIA H200")),
    ("BrrrtopApp", "m", shows("baseline marked")),
    ("BrrrtopApp", "c", shows("tracing without pauses")),
    ("BrrrtopApp", "n", shows("tracing the next steps")),
    ("BrrrtopApp", "o", shows("812 ops")),
    ("BrrrtopApp", "t", shows("theme: light")),
    ("BrrrtopApp", "S", shows("Save what is seen")),
    ("Dialog", "escape", hides("Save what is seen")),
    ("BrrrtopApp", "colon", shows("Search for commands")),
    ("-", "escape", hides("Search for commands")),
    ("BrrrtopApp", "ctrl+p", shows("Search for commands")),
    ("-", "escape", hides("Search for commands")),
)  # fmt: skip
MAIN_SCREEN = tour(
    "the main screen",
    ("Chooser", "down", chooses("CUDAFunctor_add")),
    ("Chooser", "j", chooses("flash_fwd")),
    ("Chooser", "up", chooses("CUDAFunctor_add")),
    ("Chooser", "k", chooses("nvjet")),
    ("Chooser", "end", chooses("my_custom_kernel")),
    ("Chooser", "home", chooses("nvjet")),
    ("Chooser", "G", chooses("my_custom_kernel")),
    ("Chooser", "g", chooses("nvjet")),
    ("KernelTable", "pagedown", chooses("my_custom_kernel")),
    ("KernelTable", "pageup", chooses("nvjet")),
    ("KernelTable", "enter", shows("── kernel ──")),
    ("SubView", "escape", MAIN),
    ("-", "l", shows("newest first")),
    ("SubView", "backspace", MAIN),
    ("MainView", "slash", shows("words in a kernel's name")),
    ("MainView", "escape", hides("words in a kernel's name")),
    ("MainView", "f3", shows("words in a kernel's name")),
    ("-", "escape", hides("words in a kernel's name")),
    ("MainView", "s", shows("by mean")),
    ("MainView", "greater_than_sign", shows("by calls")),
    ("MainView", "f6", shows("by roof")),
    ("MainView", "less_than_sign", shows("by calls")),
    ("MainView", "I", shows("calls▲")),
    ("MainView", "y", shows("copied: ")),
    ("MainView", "z", hides("── what to do")),
    ("-", "z", shows("── what to do")),
    ("MainView", "Z", MAIN),
    ("-", "tab", shows("chosen, enter: all 4")),
    ("Advice", "enter", shows("most worth taking first")),
    ("-", "1", MAIN),
    ("-", "tab", hides("chosen, enter")),
)  # fmt: skip
VIEWS = tour(
    "the other screens",
    ("-", "a", shows("most worth taking first")),
    ("-", "down", chooses("Pointwise")),
    ("-", "j", chooses("The host waits")),
    ("-", "up", chooses("Pointwise")),
    ("-", "k", chooses("next batch in 42%")),
    ("AllAdvice", "y", shows("copied: ")),
    ("AllAdvice", "x", shows("Silenced: 1")),
    ("-", "C", shows("your code: share of")),
    ("Code", "e", shows("edit 1 of")),
    ("Code", "y", shows("there is no patch to copy")),
    ("-", "question_mark", shows("── help")),
    *(("Scrolled", key, grows(SCROLLED)) for key in ("down", "j", "enter", "pagedown", "end")),
    *(("Scrolled", key, shrinks(SCROLLED)) for key in ("up", "k", "pageup", "home")),
    ("Scrolled", "G", grows(SCROLLED)),
    ("Scrolled", "g", shrinks(SCROLLED)),
    ("SubView", "slash", shows("Enter keeps them")),
    *(("-", letter, shows(f'"{"kernel"[:place]}"')) for place, letter in enumerate("kernel", 1)),
    ("-", "enter", hides("search kernel")),
    ("Scrolled", "N", grows(HIT)),
    ("Scrolled", "P", shrinks(HIT)),
    ("-", "escape", hides('"kernel"')),
    ("SubView", "f3", shows("Enter keeps them")),
    ("-", "escape", hides("Enter keeps them")),
    ("BrrrtopApp", "i", shows("── the run in figures")),
    ("-", "r", shows("── roofline")),
    ("-", "down", chooses("elementwise")),
    ("-", "j", chooses("flash_fwd")),
    ("-", "up", chooses("elementwise")),
    ("-", "k", chooses("nvjet")),
    ("-", "end", chooses("flash_fwd")),
    ("-", "home", chooses("nvjet")),
    ("-", "G", chooses("flash_fwd")),
    ("-", "g", chooses("nvjet")),
    ("RooflinePane", "enter", shows("── kernel ──")),
    ("-", "w", shows("each edit simulated")),
    ("-", "down", chooses("loader-ready")),
    ("-", "j", chooses("tf32")),
    ("-", "up", chooses("loader-ready")),
    ("-", "k", chooses("compile ")),
    ("-", "end", chooses("bf16")),
    ("-", "home", chooses("compile ")),
    ("-", "G", chooses("bf16")),
    ("-", "g", chooses("compile ")),
)  # fmt: skip
STEP = tour(
    "one step",
    ("-", "p", shows("0 all of it")),
    ("-", "right", shows(" of the step")),
    ("StepPane", "right", grows(CURSOR)),
    ("StepPane", "left", shrinks(CURSOR)),
    ("-", "plus", shows(" ms of it")),
    ("StepPane", "plus", shrinks(ZOOMED)),
    ("StepPane", "minus", grows(ZOOMED)),
    ("StepPane", "equals_sign", shrinks(ZOOMED)),
    ("StepPane", "down", grows(ZOOMED)),
    ("StepPane", "up", shrinks(ZOOMED)),
    ("StepPane", "j", grows(ZOOMED)),
    ("StepPane", "k", shrinks(ZOOMED)),
    ("StepPane", "shift+right", grows(AXIS)),
    ("StepPane", "shift+left", shrinks(AXIS)),
    ("StepPane", "0", hides(" of it")),
    ("-", "plus", shows(" ms of it")),
    ("StepPane", "home", hides(" of it")),
    ("StepPane", "g", shows("at 5.10 ms of the step")),
    ("-", "g", hides("at 5.10 ms of the step")),
    ("StepPane", "G", shows("at 5.10 ms of the step")),
    ("StepPane", "f", hides("stands still")),
)  # fmt: skip
RANKS = tour(
    "ranks",
    ("-", "down", chooses("▸    1 ")),
    ("-", "j", chooses("▸    2 ")),
    ("-", "up", chooses("▸    1 ")),
    ("-", "k", chooses("▸    0 ")),
    ("RankTable", "pagedown", chooses("▸   10 ")),
    ("RankTable", "pageup", chooses("▸    0 ")),
    ("-", "end", chooses("▸   11 ")),
    ("-", "home", chooses("▸    0 ")),
    ("-", "G", chooses("▸   11 ")),
    ("-", "g", chooses("▸    0 ")),
    ("-", "down", chooses("▸    1 ")),
    ("RankTable", "enter", shows("rank 1 of 12")),
    ("BrrrtopApp", "right_curly_bracket", shows("rank 2 of 12")),
    ("BrrrtopApp", "left_curly_bracket", shows("rank 1 of 12")),
    ("BrrrtopApp", "7", shows("ranks of the job")),
    ("-", "1", MAIN),
    ("BrrrtopApp", "R", shows("ranks of the job")),
)  # fmt: skip
FOLLOWED = tour("a successor", ("BrrrtopApp", "enter", shows("watching pid 4712")))
PRESSED["another way"] = {
    *(("BrrrtopApp", key) for key in ("q", "f10", "ctrl+c", "ctrl+z", "ctrl+l", "ctrl+r", "f5")),
}
"""By tests of their own below: they end the app, stop it, or change nothing but what is on the terminal."""


@pytest.fixture(autouse=True)
def all_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen is known by its colour."""
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_every_key_is_pressed_somewhere() -> None:
    pressed = set().union(*PRESSED.values())
    assert set(bound()) - pressed == set(), "list these with what they do"
    assert pressed - set(bound()) == set(), "nobody binds these any more"


async def walk(app: BrrrtopApp, stops: Sequence[tuple[str, str, Effect]], ready: str) -> None:
    async with app.run_test(size=(120, 60)) as pilot:
        while ready not in (await settled(pilot)).text:
            await pilot.pause(0.01)
        for owner, key, effect in stops:
            await press(pilot, owner, key, effect)


@pytest.mark.parametrize("stops", [ANYWHERE, MAIN_SCREEN, VIEWS, STEP], ids=list(PRESSED)[:4])
async def test_keys_do_what_they_are_for(stops: Sequence[tuple[str, str, Effect]]) -> None:
    await walk(BrrrtopApp(Player(RECORDING), interval_s=5.0), stops, "── kernels")


async def test_keys_on_the_screen_of_ranks_do_what_they_are_for() -> None:
    rows = tuple(
        RankRow(n, f"rank{n}.brrr", str(n), estimate=snapshots.estimate()) for n in range(12)
    )
    source = replace(RECORDING.source, world=12)
    job = JobSnapshot(rows, 12, shown="0", together_ns=1)
    snapshot = replace(RECORDING, source=source, job=job)
    await walk(BrrrtopApp(Player(snapshot), interval_s=5.0), RANKS, "ranks of the job")


async def test_enter_follows_a_successor() -> None:
    snapshot = replace(RECORDING, successor=4712)
    await walk(BrrrtopApp(Player(snapshot), interval_s=5.0), FOLLOWED, "── kernels")


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("f10", 0), ("ctrl+c", INTERRUPTED)])
async def test_keys_that_end_it(key: str, code: int) -> None:
    app = BrrrtopApp(Player(RECORDING), interval_s=5.0)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
    assert not app.is_running and (app.return_code or 0) == code


def test_keys_of_a_terminal_draw_it_anew_stop_it_and_go_on() -> None:
    with on_a_terminal("demo", "healthy", job=True) as screen:
        screen.read_until(b"healthy.brrr")
        screen.answer(b" ", b"PAUSED")
        for key in (b"\x0c", b"\x12", b"\x1b[15~"):
            screen.answer(key, b"healthy.brrr")
        screen.answer(b"\x1a", LEAVES_THE_SCREEN)
        stopped = os.waitid(os.P_PID, screen.pid, os.WSTOPPED | os.WNOWAIT)
        assert stopped is not None and stopped.si_status in (signal.SIGSTOP, signal.SIGTSTP)
        screen.seen = b""
        os.kill(screen.pid, signal.SIGCONT)
        screen.read_until(b"healthy.brrr")
        screen.type(b"q")
        assert screen.ended() == 0
