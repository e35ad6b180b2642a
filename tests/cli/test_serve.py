"""The screen in a browser: what a page gets, and who is refused."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brrrtop.cli.options import Options
from brrrtop.cli.serve import address_of, serve
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


@pytest.fixture
def port() -> Iterator[int]:
    """Of a brrrtop that serves its demo."""
    pytest.importorskip("textual_serve")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = int(free.getsockname()[1])
    serving = subprocess.Popen(
        [sys.executable, "-m", "brrrtop", "demo", "--serve", "--listen", f"127.0.0.1:{number}"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while True:
            assert serving.poll() is None and time.monotonic() < deadline
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", number)) == 0:
                    break
            time.sleep(0.1)
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
