"""`--serve`: the same screen in a browser, through textual-serve. Loopback unless told otherwise.

Each tab gets a brrrtop of its own. Whoever reaches the address can press keys in it, so that pages of
other sites are refused: a browser names the page that opens a connection, and a name that was made
to point here is not the one that was asked for. The page loads nothing from anywhere else: the host of
a trainer may have no internet, and no font server need know who watches what.
"""

from __future__ import annotations

import platform
import re
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from brrrtop.cli import output
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError, UsageError

DEFAULT = ("127.0.0.1", 8765)
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")

_EVERYWHERE = ("0.0.0.0", "::", "[::]")


def serve(argv: Sequence[str], options: Options) -> int:
    """Serves until `^C`.

    Args:
        argv: The whole command line.

    Raises:
        UsageError: The verb has no screen, or the address is none.
        BrrrtopError: textual-serve is not installed, or the port is taken.
    """
    if options.verb not in (None, "attach", "replay", "demo"):
        raise UsageError(f"`brrrtop {options.verb}` has no screen to serve")
    host, port = address_of(options.listen)
    try:
        serving = import_module("textual_serve.server")
    except ImportError:
        raise BrrrtopError(
            "the screen is served by textual-serve, which is not installed",
            "`pip install 'brrrtop[serve]'`",
        ) from None
    # A shell starts it, and would stay between the server and the screen.
    command = "exec " + shlex.join([sys.executable, "-m", "brrrtop", *_without_serving(argv)])
    output.say(f"brrrtop: the screen is on http://{host}:{port}, until ^C")
    if host not in _LOOPBACK:
        output.say("brrrtop: whoever reaches that address can use this screen; it asks no password")
    named = platform.node() if host in _EVERYWHERE else host
    url = f"http://{named}:{port}"
    server = _guard(serving, host, port, url)(
        command, host=host.strip("[]"), port=port, title="brrrtop", public_url=url
    )
    try:
        server.serve()
    except OSError as fault:
        raise BrrrtopError(
            f"{host}:{port} cannot be served on: {fault.strerror}",
            "choose another: --listen HOST:PORT",
        ) from fault
    return 0


def address_of(text: str | None) -> tuple[str, int]:
    """`0.0.0.0:80`, `:80` or `80` → host and port.

    Raises:
        UsageError: It is none of these.
    """
    if text is None:
        return DEFAULT
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{text!r} is no address", "write HOST:PORT, e.g. 127.0.0.1:8765")
    return host or DEFAULT[0], int(port)


def _without_serving(argv: Sequence[str]) -> list[str]:
    """The command line of the screen itself."""
    left, words = [], iter(argv)
    for word in words:
        if word == "--listen":
            next(words, None)
        elif word != "--serve" and not word.startswith("--listen="):
            left.append(word)
    return left


_LINK = re.compile(r"""<link\b[^>]*?\bhref\s*=\s*["']?((?:https?:)?//[^"'\s>]+)[^>]*>""")


def without_foreign_links(page: str, own: str) -> str:
    """The page without style sheets and fonts from other hosts than `own`, a URL."""
    return _LINK.sub(lambda link: link[0] if link[1].startswith(f"{own}/") else "", page)


def policy(own: str) -> str:
    """What a browser may load for the page: what comes from here, where `own` is this host's URL."""
    socket = "ws" + own.removeprefix("http")
    return (
        f"default-src 'self' {own} 'unsafe-inline' 'unsafe-eval' data: blob:; "
        f"connect-src 'self' {own} {socket}"
    )


def _guard(serving: Any, host: str, port: int, url: str) -> Any:
    """textual-serve's server, quiet, deaf to pages of other sites, and with nothing from them."""
    names = {host, *(_LOOPBACK if host in _LOOPBACK else ())}
    allowed = {f"{name}:{port}" for name in names}
    open_to_all = host in _EVERYWHERE
    connections = set[Any]()

    @serving.web.middleware  # type: ignore[untyped-decorator]
    async def guard(request: Any, handler: Any) -> Any:
        origin = request.headers.get("Origin")
        asked = request.headers.get("Host", "")
        page = asked if origin is None else origin.partition("://")[2]
        foreign = page != asked and page not in allowed
        if foreign or not (open_to_all or asked in allowed):
            raise serving.web.HTTPForbidden(text="this screen is not for pages of other sites\n")
        connection = request.transport
        connections.add(connection)
        try:
            answer = await handler(request)
        finally:
            connections.discard(connection)
        if answer.content_type == "text/html" and isinstance(answer, serving.web.Response):
            answer.text = without_foreign_links(answer.text or "", url)
            answer.headers["Content-Security-Policy"] = policy(url)
        return answer

    class Server(serving.Server):  # type: ignore[misc]
        def initialize_logging(self) -> None:
            """Nothing is logged: each key that is pressed would be."""

        async def on_startup(self, app: Any) -> None:
            """The address was said already."""

        async def on_shutdown(self, app: Any) -> None:
            """Hangs up on every tab, whose screen then ends: else `^C` waits for the next heartbeat."""
            for connection in connections - {None}:
                connection.close()

        async def _make_app(self) -> Any:
            app = await super()._make_app()
            app.middlewares.append(guard)
            return app

    return Server
