"""Attaches to a process and shows it on the real screen, without a terminal: prints what it read.

Argument: the PID. One line of JSON a screen on stdout: `main` with a verdict on it, `log`, `ended`
after a line has come on stdin, `offered` once a successor runs, and `compared` after Enter.
"""

import asyncio
import json
import sys
import time

from textual.pilot import Pilot

from brrrtop.cli.commands import attach as verb
from brrrtop.cli.live import open_live, plain
from brrrtop.cli.options import Options
from brrrtop.session.restart import Succession
from brrrtop.tui.app import BrrrtopApp
from collectors.attach.attach import attach
from collectors.process.process import read

PATIENCE_S = 25.0
verb.IMPORTS_S = 2.0  # nothing here ever has a GPU context


def text(app: BrrrtopApp) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


async def shown(
    app: BrrrtopApp, pilot: Pilot[int], name: str, *words: str, without: str = "\0"
) -> None:
    """Prints the screen as soon as it has all `words` and not `without`, or as it is when patience ends."""
    deadline, screen = time.monotonic() + PATIENCE_S, text(app)
    while without in screen or not all(word in screen for word in words):
        if time.monotonic() > deadline:
            break
        await pilot.pause(0.1)
        screen = text(app)
    print(json.dumps({name: screen}), flush=True)


async def watch(pid: int) -> None:
    attached = attach(pid, verb.agent_files())
    try:
        # torch never touches the stand-in GPU, so it cannot rule graphs out.
        options = Options(interval=0.25, trace_graphs=True)
        heirs = verb.RestartedProcesses(read(pid), options, agent=True)
        controller = open_live(attached.client, pid, options, "train.py")
        app = BrrrtopApp(plain(controller, options, Succession(heirs)), interval_s=0.25)
        async with app.run_test(size=(120, 40)) as pilot:
            await shown(
                app, pilot, "main", "WAITS FOR DATA", "waits for data", "DataLoader(", "one step, ",
                without="warming up",  # figures of that are no baseline
            )  # fmt: skip
            await pilot.press("l")
            await shown(app, pilot, "log", "kernel tracing is ready")
            await pilot.press("escape")
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            await shown(app, pilot, "ended", "ended", "looking for the same command")
            await shown(app, pilot, "offered", "Enter to watch it")
            await pilot.press("5", "enter")
            await shown(
                app, pilot, "compared", "● live", "before  WAITS FOR DATA", "after  WAITS FOR DATA"
            )
            heirs.close()
    finally:
        attached.leave()


asyncio.run(watch(int(sys.argv[1])))
