"""The screen in a browser: what a page gets, and who is refused."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from brrrtop.cli.in_browser import address_of, serve
from brrrtop.cli.options import Options
from brrrtop.errors import UsageError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("text", "address"),
    [(None, ("127.0.0.1", 8765)), ("80", ("127.0.0.1", 80)), ("0.0.0.0:81", ("0.0.0.0", 81)),
     ("[::1]:82", ("[::1]", 82))],
)  # fmt: skip
def test_addresses_are_of_this_machine_unless_one_is_named(
    text: str | None, address: tuple[str, int]
) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:0", "host:70000", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        address_of(text)


def test_a_verb_without_a_screen_is_refused() -> None:
    with pytest.raises(UsageError, match="no screen"):
        serve(["analyze"], Options(verb="analyze"))


def server() -> tuple[subprocess.Popen[str], int]:
    """A brrrtop that serves its demo, and the port."""
    pytest.importorskip("textual_serve")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    serving = subprocess.Popen(
        [sys.executable, "-m", "brrrtop", "demo", "--serve", "--listen", f"127.0.0.1:{number}"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while True:
        assert serving.poll() is None and time.monotonic() < deadline
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", number)) == 0:
                return serving, number
        time.sleep(0.1)


@pytest.fixture
def port() -> Iterator[int]:
    """Of a brrrtop that serves its demo."""
    serving, number = server()
    try:
        yield number
        serving.send_signal(signal.SIGINT)
        assert serving.wait(10) == 0
    finally:
        serving.kill()
        assert serving.stderr is not None
        serving.stderr.close()
        serving.wait()


async def first_screen(port: int) -> str:
    """What a browser's terminal is sent until the verdict is in it."""
    import aiohttp

    shown = ""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{port}/ws?width=120&height=40") as page,
    ):
        async for message in page:
            data: Any = message.data
            shown += data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)
            if "OVERHEAD" in shown:
                break
    return shown


async def page(port: int) -> tuple[str, str]:
    """The page that a browser gets, and what it may load for it."""
    import aiohttp

    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/") as answer,
    ):
        return await answer.text(), answer.headers["Content-Security-Policy"]


async def status(port: int, **headers: str) -> int:
    import aiohttp

    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/", headers=headers) as answer,
    ):
        return answer.status


@pytest.mark.timeout(120)
def test_a_browser_sees_the_screen_and_pages_of_others_are_refused(port: int) -> None:
    assert asyncio.run(status(port)) == 200
    assert asyncio.run(status(port, Origin=f"http://localhost:{port}")) == 200
    assert asyncio.run(status(port, Origin="http://evil.example")) == 403
    assert asyncio.run(status(port, Host="evil.example")) == 403
    text, allowed = asyncio.run(page(port))
    own = f"127.0.0.1:{port}"
    loaded = re.findall(
        r"""(?:src|href)=["']?(?:\w+:)?//([^/"']+)|url\(["']?\w+://([^/"')]+)""", text
    )
    assert loaded and {one or other for one, other in loaded} == {own}, "nothing from elsewhere"
    assert "textual.js" in text and f"ws://{own}/" in text
    hosts = re.findall(r"\w+://([^\s;]+)", allowed)
    assert set(hosts) == {own} and "*" not in allowed
    shown = asyncio.run(asyncio.wait_for(first_screen(port), 60))
    assert "OVERHEAD" in shown


async def end_beside_a_tab(serving: subprocess.Popen[str], port: int, number: int) -> list[Path]:
    """Ends the server by a signal while a tab is open; the screens that were there."""
    import aiohttp

    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{port}/ws?width=80&height=24") as page,
    ):
        await page.receive()
        children = Path(f"/proc/{serving.pid}/task/{serving.pid}/children").read_text().split()
        serving.send_signal(number)
        serving.wait(10)
    return [Path(f"/proc/{child}/exe") for child in children]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_screen_of_a_tab_ends_with_its_server(number: int) -> None:
    serving, port = server()
    screens = asyncio.run(end_beside_a_tab(serving, port, number))
    assert serving.stderr is not None
    serving.stderr.close()
    deadline = time.monotonic() + 10
    while any(os.path.lexists(screen) for screen in screens):
        assert time.monotonic() < deadline, "nothing of ours outlives its terminal"
        time.sleep(0.05)
    assert screens


BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


class Tab:
    """A page in a headless browser, by the DevTools protocol."""

    def __init__(self, socket: Any) -> None:
        self.socket, self.sent, self.session = socket, 0, ""
        self.shown, self.hosts, self.complaints = "", set[str](), list[str]()

    async def ask(self, method: str, **words: Any) -> dict[str, Any]:
        """The answer to a command; events that come before it are noted."""
        self.sent += 1
        request = {"id": self.sent, "method": method, "params": words}
        await self.socket.send_json(request | ({"sessionId": self.session} if self.session else {}))
        while True:
            message = await self.socket.receive_json()
            if message.get("id") == self.sent:
                assert "error" not in message, message
                return dict(message["result"])
            self.note(message)

    def note(self, event: dict[str, Any]) -> None:
        words = event.get("params", {})
        match event.get("method"):
            case "Network.webSocketFrameReceived":
                frame = words["response"]
                data = frame["payloadData"]
                raw = data.encode() if frame["opcode"] == 1 else base64.b64decode(data)
                self.shown += raw.decode("utf-8", "replace")
            case "Network.requestWillBeSent":
                self.hosts.add(urlsplit(words["request"]["url"]).netloc)
            case "Log.entryAdded" if words["entry"]["source"] in ("security", "network"):
                self.complaints.append(words["entry"]["text"])

    async def wait_for(self, text: str) -> None:
        while text not in self.shown:
            self.note(await self.socket.receive_json())


async def browse(tools: str, url: str) -> Tab:
    """Opens the page, waits for the verdict, asks for help by a key."""
    import aiohttp

    async with (
        aiohttp.ClientSession() as client,
        client.ws_connect(tools, max_msg_size=0) as socket,
    ):
        tab = Tab(socket)
        target = await tab.ask("Target.createTarget", url="about:blank", width=1400, height=900)
        attached = await tab.ask("Target.attachToTarget", flatten=True, **target)
        tab.session = attached["sessionId"]
        for domain in ("Network", "Log", "Page"):
            await tab.ask(f"{domain}.enable")
        await tab.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        await tab.ask("Page.navigate", url=url)
        await tab.wait_for("OVERHEAD")
        for kind in ("mousePressed", "mouseReleased"):
            await tab.ask(
                "Input.dispatchMouseEvent", type=kind, x=700, y=70, button="left", clickCount=1
            )
        await tab.ask("Input.dispatchKeyEvent", type="char", text="?")
        await tab.wait_for("this help")
        return tab


@pytest.mark.timeout(120)
def test_a_real_browser_shows_the_screen_takes_keys_and_asks_nobody_else(
    port: int, tmp_path: Path
) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium here")
    running = subprocess.Popen(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
         f"--user-data-dir={tmp_path}"],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert running.stderr is not None
        lines = iter(running.stderr.readline, "")
        tools = next(line.split()[-1] for line in lines if line.startswith("DevTools listening"))
        url = f"http://127.0.0.1:{port}/"
        tab = asyncio.run(asyncio.wait_for(browse(tools, url), 60))
        assert tab.hosts == {f"127.0.0.1:{port}"}
        assert not tab.complaints
    finally:
        os.killpg(running.pid, signal.SIGKILL)  # with the renderers, which would stay
        assert running.stderr is not None
        running.stderr.close()
        running.wait()
