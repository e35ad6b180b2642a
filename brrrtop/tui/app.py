"""Wires the feed to the screens and keys to requests. Draws nothing itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, TypeVar

from msgspec.structs import replace
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from brrrtop.errors import INTERRUPTED
from brrrtop.model.advice import Advisory
from brrrtop.model.estimate import KernelRow
from brrrtop.model.snapshot import PANES, ZOOMED, Event, Freshness, Settings, Snapshot, SourceInfo
from brrrtop.tui.feed import (
    CANNOT,
    Driver,
    Feed,
    FeedFailed,
    Request,
    RequestAnswered,
    SnapshotReady,
)
from brrrtop.tui.palette import THEMES, Palette
from brrrtop.tui.parts import rank_order, shapes_outcome
from brrrtop.tui.screens.main import MainView
from brrrtop.tui.screens.view import SubView, View
from brrrtop.tui.terminal import Continued, Terminal, TerminalGone
from brrrtop.tui.themed import ThemedApp, key, sign_of
from brrrtop.tui.widgets.frame import Status
from brrrtop.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from textual.notifications import SeverityLevel

T = TypeVar("T")
SAYS_S = 5.0
"""How long an answer stays on the status line."""
_NOTHING = Event(0, "", "")
HUNG_UP = 129
"""The exit code when the terminal has gone, as of a program that SIGHUP ends."""


def _opening(module: str, pane: str) -> Callable[[BrrrtopApp], None]:
    """An action that opens a screen, whose module is imported when somebody first wants it."""

    def action(app: BrrrtopApp) -> None:
        app._open(getattr(import_module(f"brrrtop.tui.screens.{module}"), pane)())

    return action


def _next(every: Sequence[T], shown: T | None, by: int) -> T:
    at = every.index(shown) if shown in every else -by
    return every[(at + by) % len(every)]


_STEP = "step a replay back and forth"
_SEEK = "jump a tenth of a replay back and forth"
_SPEED = "replay faster, slower"
_DEVICE = "the next GPU, the one before; a click on a GPU shows it"
_RANK = "the rank before and the next one"


class BrrrtopApp(ThemedApp[int]):
    """The screens over one driver, which it owns from here on.

    Args:
        interval_s: Between two snapshots.
        label: What is being opened, shown until the first snapshot is there.
        settings: What was chosen before; the theme is the palette's.
        remember: Told the settings each time somebody changes them.
        page: Makes the report of a snapshot, as HTML.

    `fault` is what ended it early, None after an ordinary quit.
    """

    CSS_PATH = "brrrtop.tcss"
    ENABLE_COMMAND_PALETTE = True
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "follow", "follow the restarted run",
            "once a trainer has ended: follow the restarted run", priority=True),
        key("question_mark,h,f1", "help", "help", "this help"),
        key("q,f10", "quit", "quit", "quit, as Ctrl-C does; the trainer goes on", priority=True),
        key("ctrl+c", "interrupt", priority=True),
        key("space", "pause", "pause",
            "pause and go on: a replay stands still, a live screen is frozen"),
        key("n", "burst", "trace", "trace a few steps now, without waiting for the pause to end"),
        key("o", "shapes", "shapes",
            "record the op shapes of one step, slower than the others: the evidence becomes L2"),
        key("p", "step_picture", "one step", "one step as a picture"),
        key("a,3", "advice", "advice", "all advice, with its evidence"),
        key("w,6", "whatif", "what if",
            "every edit that was simulated, and what it changes in a step"),
        key("C", "code", "code",
            "your file with the share of the time that each line takes, and why the GPU idles"),
        key("i", "details", "figures",
            "the run in figures: phases, what is known twice, account, steps, launches, counters"),
        key("colon,ctrl+p", "command_palette", "commands",
            "all commands by name; panes are hidden and shown there"),
        key("T", "tables", "tables",
            "ops, modules, stalls, copies, ranges and memory, as far as they were recorded"),
        key("r,2", "roofline", "roofline", "roofline: kernels under the roofs of the GPU"),
        key("L", "loader", "loader",
            "loader: how long each batch is waited for, what the workers do, where the loop stands"),
        key("l,4", "log", "log", "what changed, and when"),
        key("b,5", "compare", "before/after",
            "before and after: what a change won since the baseline"),
        key("R,7", "ranks", "",
            "all ranks of a job, the slow one first; Enter opens one, Esc goes back"),
        key("1", "main", "", "the main screen"),
        key("m", "baseline", "mark", "set a baseline; b compares with it what comes after"),
        key("c", "continuous", "",
            "trace without pauses, or in bursts again; costs the trainer more"),
        key("S", "save", "",
            "save a picture of the screen (.svg) or the report (.html)"),
        key("left,comma", "step(-1)", "", _STEP),
        key("right,full_stop", "step(1)", "", _STEP),
        key("left_square_bracket", "seek(-0.1)", "", _SEEK),
        key("right_square_bracket", "seek(0.1)", "", _SEEK),
        key("plus,equals_sign", "speed(1)", "", _SPEED),
        key("minus", "speed(-1)", "", _SPEED),
        key("d", "device(1)", "", _DEVICE),
        key("D", "device(-1)", "", _DEVICE),
        key("left_curly_bracket", "rank(-1)", "", _RANK),
        key("right_curly_bracket", "rank(1)", "", _RANK),
        key("t", "theme", "",
            "the next theme: dark, light, high-contrast, colour-blind; kept for the next time"),
        key("ctrl+l,ctrl+r,f5", "repaint", "", "draw the screen again"),
        key("ctrl+z", "suspend_process", "", "suspend; `fg` comes back"),
    ]  # fmt: skip

    def __init__(
        self,
        driver: Driver,
        *,
        interval_s: float = 0.5,
        palette: Palette | None = None,
        label: str = "",
        settings: Settings | None = None,
        remember: Callable[[Settings], None] | None = None,
        page: Callable[[Snapshot], str] | None = None,
    ) -> None:
        super().__init__(palette)
        self.settings = settings or Settings()
        self.fault: BaseException | None = None
        self._complete = self._interrupted = self._hung_up = False
        self.snapshot = Snapshot(
            SourceInfo("", label, notes=("opening",)), Freshness.WAITING, 0, None, None, None
        )
        self._capabilities = driver.capabilities
        self._feed = Feed(driver, self.post_message, interval_s)
        self._remember = remember
        self.page = page
        self._toast = ("", 0.0)
        """The last sentence over the status line, and until when it is there."""
        self._continuous = False
        self._ranks_opened = False
        self._shapes_told: Event | None = None
        """While an outcome is waited for: the one before."""

    def get_default_screen(self) -> MainView:
        return MainView(id="main", classes=f"{MainView.OPENING} {MainView.classes_of(*self.size)}")

    def on_mount(self) -> None:
        self.set_class(not self.palette.colour, "-colourless")
        self.app_resume_signal.subscribe(self, lambda _: self.action_repaint())
        self._show()
        self._feed.start()

    def on_ready(self) -> None:
        """Before this, an app that is told to end trips over its own half-made screens."""
        self._complete = True
        if self._interrupted:
            self.action_interrupt()

    def on_unmount(self) -> None:
        self._feed.stop()

    def on_snapshot_ready(self, message: SnapshotReady) -> None:
        newest = message.snapshot
        if newest.source.pid != self.snapshot.source.pid:
            self._continuous = False
        self.snapshot = newest
        self._show()
        if newest.job is not None and not self._ranks_opened:
            self._ranks_opened = True
            self.action_ranks()
        self._tell_shapes()
        self._feed.seen()

    def _show(self) -> None:
        top = self.screen_stack[-1] if self.screen_stack else None
        if isinstance(top, View):
            top.show(self.snapshot)

    def on_feed_failed(self, message: FeedFailed) -> None:
        self.fault = message.fault
        self.exit(return_code=getattr(message.fault, "exit_code", 1))

    def on_request_answered(self, message: RequestAnswered) -> None:
        self.say(message.message, message.failed)

    def say(self, message: str, failed: bool = False) -> None:
        """Shows a sentence for a while: on the status line, or over it when it is longer."""
        if len(message) > self.size.width:
            if message == self._toast[0] and monotonic() < self._toast[1]:
                return
            self._toast = (message, monotonic() + 3 * SAYS_S)
            severity: SeverityLevel = "error" if failed else "information"
            self.notify(message, severity=severity, timeout=3 * SAYS_S, markup=False)
            return
        top = self.screen_stack[-1] if self.screen_stack else None
        for status in top.query(Status) if top else ():
            status.say(message, failed, SAYS_S)

    def forget_toast(self) -> None:
        """Whoever goes on has read it, and it would cover what comes."""
        self.clear_notifications()
        self._toast = ("", 0.0)

    def ask(self, ability: str, request: Request) -> None:
        """Has the driver do something, or says why this source cannot."""
        source = self.snapshot.source
        if ability == "continuous" and source.kind == "live" and not self.snapshot.devices:
            self.say("there is nothing to trace: no GPU activity has been seen", failed=True)
        elif ability in self._capabilities:
            self._feed.ask(request)
        elif ability == "continuous" and self.snapshot.source.kind == "live":
            self.say("nothing is traced here: only the GPU's own counters are read", failed=True)
        else:
            self.say(CANNOT[ability], failed=True)

    def interrupt(self) -> None:
        """Ends the app as `^C` does, for a signal handler on its thread; as soon as it can end."""
        self._interrupted = True
        if self._complete:
            with suppress(RuntimeError):  # its loop has ended
                asyncio.get_running_loop().call_soon_threadsafe(self.action_interrupt)

    def action_interrupt(self) -> None:
        """`^C` is a key here: the terminal sends no signal."""
        self.exit(return_code=HUNG_UP if self._hung_up else INTERRUPTED)

    def on_terminal_gone(self, _message: TerminalGone) -> None:
        self._interrupted = self._hung_up = True
        if self._complete:
            self.action_interrupt()

    def on_continued(self, _message: Continued) -> None:
        if isinstance(self._driver, Terminal):
            self._driver.start_over()
            self.action_repaint()

    def action_repaint(self) -> None:
        """Draws every cell: after `fg` the terminal is bare, and others may write on it."""
        for widget in self.screen.walk_children():
            widget.refresh()

    def action_pause(self) -> None:
        paused = self.snapshot.paused
        self._feed.ask(lambda d: d.resume() if paused else d.pause())

    def action_step(self, count: int) -> None:
        self.ask("step", lambda d: d.step(count))

    def action_seek(self, by: float) -> None:
        goal = min(1.0, max(0.0, (self.snapshot.progress or 0.0) + by))
        self.ask("seek", lambda d: d.seek(goal))

    def action_speed(self, direction: int) -> None:
        self.ask("speed", lambda d: d.faster() if direction > 0 else d.slower())

    def action_device(self, by: int) -> None:
        ids = sorted(e.device.device_id for e in self.snapshot.devices)
        if len(ids) < 2 and self.snapshot.job is not None:
            self.action_rank(by)
            return
        if self.snapshot.estimate is None or len(ids) < 2:
            which = "only one" if ids else "no"
            self.say(f"{which} GPU has activity here", failed=True)
            return
        self.action_show_device(_next(ids, self.snapshot.estimate.device.device_id, by))

    def action_show_device(self, device_id: int) -> None:
        self._feed.ask(lambda d: d.select_device(device_id))

    def action_ranks(self) -> None:
        if self.snapshot.job is None:
            self.say("one rank by itself: name or attach to all ranks of the job", failed=True)
            return
        from brrrtop.tui.screens.tables import RankTable

        self._open(RankTable())

    def action_rank(self, by: int) -> None:
        job = self.snapshot.job
        if job is None:
            self.action_ranks()
            return
        keys = [row.key for row in sorted(job.ranks, key=rank_order) if row.estimate is not None]
        if keys:
            self.action_show_rank(_next(keys, job.shown, by))

    def action_show_rank(self, key: str) -> None:
        self.ask("ranks", lambda d: d.select_rank(key))

    def action_baseline(self) -> None:
        self._feed.ask(lambda d: d.mark_baseline())

    def action_continuous(self) -> None:
        self.ask("continuous", self._switch)

    def _switch(self, driver: Driver) -> str:
        """On the feed's thread. A wish that was refused changes nothing."""
        on = not self._continuous
        message = driver.continuous(on)
        self._continuous = on
        return message

    def action_burst(self) -> None:
        self.ask("continuous", lambda d: d.burst())

    def action_shapes(self) -> None:
        self._shapes_told = shapes_outcome(self.snapshot) or _NOTHING
        self.ask("continuous", lambda d: d.shapes())

    def _tell_shapes(self) -> None:
        """Once what came of the wish is in the log: over the status line too."""
        event = shapes_outcome(self.snapshot)
        if event is not None and self._shapes_told not in (None, event):
            self._shapes_told = None
            self.say(event.says, failed=event.failed)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enter goes on with a successor while one waits for a yes, but not while words are typed."""
        if action != "follow":
            return True
        return self.snapshot.successor is not None and not isinstance(self.focused, Input)

    def action_follow(self) -> None:
        self.say(f"entering pid {self.snapshot.successor} …")
        self.ask("follow", lambda d: d.follow())

    def action_save(self) -> None:
        from brrrtop.tui.screens.view import SaveDialog, save

        self.forget_toast()
        dialog = SaveDialog(self.page is not None)
        self.push_screen(dialog, lambda name: save(self, name) if name else None)

    def action_theme(self, name: str = "") -> None:
        self.take_theme(name)
        self.choose(replace(self.settings, theme=self.palette.theme))
        self.say(f"theme: {self.palette.theme}")
        for screen in self.screen_stack:
            if isinstance(screen, View):
                screen.redraw()

    def choose(self, settings: Settings) -> None:
        self.settings = settings
        if self._remember is not None:
            self._remember(settings)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        for binding in (*BrrrtopApp.BINDINGS, *MainView.BINDINGS):
            if (
                isinstance(binding, Binding)
                and binding.tooltip
                and binding.action != "command_palette"
            ):
                run = partial(self._run_command, binding.action)
                yield SystemCommand(binding.tooltip, sign_of(binding), run)
        for name in PANES:
            does = "show" if name in self.settings.hidden else "hide"
            yield SystemCommand(
                f"{does} pane {name}", "", partial(self._run_command, f"hide('{name}')")
            )
            if name in ZOOMED:
                zoom = partial(self._run_command, f"zoom_pane('{name}')")
                yield SystemCommand(f"zoom pane {name}", "z", zoom)
        for name in THEMES:
            yield SystemCommand(f"theme {name}", "t", partial(self.action_theme, name))

    def action_command_palette(self) -> None:
        self.forget_toast()
        super().action_command_palette()

    async def _run_command(self, action: str) -> None:
        if hasattr(self, f"action_{action.partition('(')[0].removeprefix('app.')}"):
            await self.run_action(action)
        else:
            self.action_main()
            await self.run_action(action, self.screen)

    def action_main(self) -> None:
        self.forget_toast()
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def _open(self, pane: Pane) -> None:
        self.action_main()
        self.push_screen(SubView(pane))

    action_help = _opening("help", "Help")
    action_roofline = _opening("kernel", "RooflinePane")
    action_advice = _opening("advice", "AllAdvice")
    action_log = _opening("details", "Log")
    action_step_picture = _opening("step", "StepPane")
    action_details = _opening("details", "Details")
    action_code = _opening("advice", "Code")
    action_tables = _opening("details", "Tables")
    action_loader = _opening("details", "Loaders")
    action_compare = _opening("tables", "BeforeAfter")
    action_whatif = _opening("tables", "EditTable")

    def open_kernel(self, kernel: KernelRow) -> None:
        from brrrtop.tui.screens.kernel import KernelPane

        self._open(KernelPane(kernel))

    def silence(self, kind: str) -> None:
        self._feed.ask(lambda d: d.silence(kind))

    def action_copy(self) -> None:
        if self.snapshot.advisories:
            self.copy(self.snapshot.advisories[0])
        else:
            self.say("there is no advice to copy", failed=True)

    def copy(self, advisory: Advisory) -> None:
        self.copy_to_clipboard(advisory.suggests)
        self.say(f"copied: {advisory.suggests}")
