"""The screen in a browser: what a page gets, and who is refused."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import aiohttp
import pytest

from brrrtop.cli import in_browser
from brrrtop.cli.in_browser import address_of, serve
from brrrtop.cli.options import Options
from brrrtop.errors import UsageError
from collectors.own_files import run_as
from collectors.process.process import is_loopback, uid_of_client

ROOT = Path(__file__).parents[2]
NOBODY = 65534
PATIENCE_S = 90.0
"""Screens are drawn late where other tests have the cores."""


@pytest.mark.parametrize(
    ("text", "address"),
    [(None, ("127.0.0.1", 8765)), ("80", ("127.0.0.1", 80)), ("0.0.0.0:81", ("0.0.0.0", 81)),
     ("[::1]:82", ("[::1]", 82))],
)  # fmt: skip
def test_addresses_are_of_this_machine_unless_one_is_named(text, address):
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:0", "host:70000", "host:-1"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(UsageError, match="not a valid address"):
        address_of(text)


def test_a_verb_without_a_screen_is_refused():
    with pytest.raises(UsageError, match="no screen"):
        serve(["analyze"], Options(verb="analyze"))


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A brrrtop that serves its demo, and the address with its token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    running = subprocess.Popen(
        [sys.executable, "-m", "brrrtop", "demo", "--serve", "--listen", f"127.0.0.1:{port}"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        address = re.search(r"http://\S+", running.stderr.readline())
        deadline = time.monotonic() + PATIENCE_S
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", port)) != 0:
                assert running.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
        yield running, address[0]
    finally:
        running.kill()
        running.stderr.close()
        running.wait()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving() as (running, url):
        yield url
        running.send_signal(signal.SIGINT)
        assert running.wait(PATIENCE_S) == 0


Get = Callable[..., Awaitable["aiohttp.ClientResponse"]]


@asynccontextmanager
async def visitor(address: str, knows: bool = True) -> AsyncIterator[tuple[Get, str]]:
    """Asks for paths below the address, as a browser that has opened it or, else, never saw it."""
    bare = address.partition("?")[0]
    jar = aiohttp.CookieJar(unsafe=True)  # cookies of numeric addresses too
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        if knows:
            async with session.get(address) as answer:
                assert answer.status == 200 and str(answer.url) == bare, (
                    "the token leaves the address"
                )

        async def get(path: str, **headers: str) -> aiohttp.ClientResponse:
            async with session.get(bare + path, headers=headers) as answer:
                await answer.read()
                return answer

        yield get, bare


async def test_nobody_without_the_token_gets_anything(address):
    port = urlsplit(address).port
    wrong = "?token=" + "A" * len(urlsplit(address).query.partition("=")[2])
    async with visitor(address, knows=False) as (get, _):
        for path in (
            "",
            wrong,
            "?token=%FF",
            "ws",
            "ws" + wrong,
            "static/js/textual.js",
            "download/1",
        ):
            answer = await get(path)
            assert answer.status == 403 and not answer.cookies, path
        rebound = {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}
        assert (await get("", **rebound)).status == 403
    async with visitor(address, knows=False) as (get, _):
        answer = await get("?" + urlsplit(address).query)
        kept = answer.history[0].cookies[f"brrrtop-{port}"]
        assert kept["httponly"] and kept["samesite"] == "Lax"


async def test_whoever_has_the_token_is_served_but_not_through_pages_of_others(address):
    own = urlsplit(address).netloc
    async with visitor(address) as (get, bare):
        answer = await get("")
        text, allowed = await answer.text(), answer.headers["Content-Security-Policy"]
        assert (await get("static/js/textual.js")).status == 200
        assert (await get("", Origin=f"http://{own}")).status == 200
        for origin in (
            "http://evil.example",
            "null",
            "http://127.0.0.1:1",
            f"http://{own}.evil.example",
        ):
            assert (await get("", Origin=origin)).status == 403, origin
    loaded = re.findall(
        r"""(?:src|href)=["']?(?:\w+:)?//([^/"']+)|url\(["']?\w+://([^/"')]+)""", text
    )
    assert loaded and {one or other for one, other in loaded} == {own}, "nothing from elsewhere"
    assert f"ws://{own}/" in text and bare in text
    assert set(re.findall(r"\w+://([^\s;]+)", allowed)) == {own} and "*" not in allowed


async def test_the_page_works_under_the_name_that_it_was_opened_by(address):
    async with visitor(address.replace("127.0.0.1", "localhost")) as (get, bare):
        assert f"ws{bare.removeprefix('http')}" in await (await get("")).text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_the_machine_is_refused_with_the_token_too(address):
    def ask() -> tuple[int, str]:
        parts = urlsplit(address)
        client = HTTPConnection(parts.netloc)
        client.request("GET", f"/?{parts.query}")
        answer = client.getresponse()
        return answer.status, answer.read().decode()

    assert ask()[0] == 302
    assert run_as(NOBODY, NOBODY, ask) == (
        403,
        f"this screen is for user 0, and user {NOBODY} asks\n",
    )


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_user_behind_a_connection_is_known_while_it_is_open(family):
    with socket.socket(socket.AF_INET6) as server:
        server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        server.bind(("::", 0))
        server.listen()
        port = server.getsockname()[1]
        client = socket.socket(family)
        client.connect(("127.0.0.1" if family == socket.AF_INET else "::1", port))
        there, peer = server.accept()
        with there:
            own = there.getsockname()
            assert is_loopback(peer[0])
            assert uid_of_client(peer[:2], own[:2]) == os.geteuid()
            assert uid_of_client((peer[0], peer[1] ^ 1), own[:2]) is None
            client.close()
            assert uid_of_client(peer[:2], own[:2]) is None, (
                "the kernel says root of a closed socket"
            )


def a_request(client: str = "127.0.0.1") -> SimpleNamespace:
    """As much of aiohttp's as is asked."""
    ends = {"peername": (client, 40000), "sockname": (client, 8765)}
    return SimpleNamespace(
        host="127.0.0.1:8765", headers={}, cookies={}, query={"token": "T"},
        transport=SimpleNamespace(get_extra_info=ends.get),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("own", "sudo", "asking", "served"),
    [(1000, None, 1000, True), (1000, None, 0, True), (1000, None, 1001, False), (1000, None, None, True),
     (0, None, 1000, False), (0, "1000", 1000, True), (0, "1000", 1001, False), (0, None, None, False),
     (1000, "1001", 1001, False)],
)  # fmt: skip
def test_who_is_served_over_loopback(monkeypatch, own, sudo, asking, served):
    monkeypatch.setattr(in_browser, "uid_of_client", lambda *_: asking)
    monkeypatch.setattr(os, "geteuid", lambda: own)
    monkeypatch.delenv("SUDO_UID", raising=False)
    if sudo is not None:
        monkeypatch.setenv("SUDO_UID", sudo)
    assert (in_browser.Access("T", 8765).refusal(a_request()) is None) is served
    assert in_browser.Access("T", 8765).refusal(a_request("192.0.2.1")) is None
    assert in_browser.Access("U", 8765).refusal(a_request("192.0.2.1")) is not None


class Tab:
    """The terminal of a page, without a browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket, self.shown = socket, ""

    async def until(self, text: str) -> None:
        """Reads what is sent, until the text is in it."""
        while text not in self.shown:
            data = (await self.socket.receive()).data
            self.shown += data.decode("utf-8", "replace") if isinstance(data, bytes) else str(data)

    async def press(self, keys: str) -> None:
        await self.socket.send_json(["stdin", keys])

    async def write(self, words: str) -> None:
        """Writes over what a dialog proposes: once it takes keys, as those before go to the screen below it, where
        `~` does nothing; and after a pause, as Textual takes letters before a shortcut that came first."""
        for keys, seen in (("~", "~"), (words, words)):
            self.shown = ""
            while seen not in self.shown:
                self.shown = ""
                await self.press("\x15")
                await asyncio.sleep(0.5)
                await self.press(keys)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.until(seen), 5)


@pytest.mark.timeout(360)
async def test_a_tab_sees_the_screen_and_saves_by_download_alone(address):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # short enough to be seen whole
    aim = folder / "pwn.html"
    bare = address.partition("?")[0]
    query = urlsplit(address).query
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        aiohttp.ClientSession(cookie_jar=jar) as session,
        session.ws_connect(f"{bare}ws?width=120&height=40&{query}", max_msg_size=0) as page,
    ):
        tab = Tab(page)
        await asyncio.wait_for(tab.until("DataLoader"), PATIENCE_S)
        await asyncio.sleep(1.0)
        await tab.press("S")
        await asyncio.wait_for(tab.until("Save what is seen"), PATIENCE_S)
        await tab.write(str(aim))
        await tab.press("\r")
        await asyncio.wait_for(tab.until("deliver_file_start"), PATIENCE_S)
        announced = re.search(r'"deliver_file_start", "([^"]+)"', tab.shown)
        async with session.get(f"{bare}download/{announced[1]}?{query}") as answer:
            assert "filename=pwn.html" in answer.headers["Content-Disposition"]
            content = b""
            reading = asyncio.ensure_future(answer.read())
            while not reading.done():  # the tab goes on to be drawn
                await asyncio.wait({reading}, timeout=0.05)
            content = await reading
    assert b"<html" in content and b"DataLoader" in content
    folder.rmdir()  # empty


@pytest.mark.timeout(360)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_the_screen_of_a_tab_ends_with_its_server(number):
    with serving() as (running, address):
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address.replace("?", "ws?width=80&height=24&")) as page,
        ):
            await page.receive()
            children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
            running.send_signal(number)
            running.wait(PATIENCE_S)
    screens = [Path(f"/proc/{child}/exe") for child in children]
    deadline = time.monotonic() + PATIENCE_S
    while any(os.path.lexists(screen) for screen in screens):
        assert time.monotonic() < deadline, "nothing of ours outlives its terminal"
        await asyncio.sleep(0.05)
    assert screens
