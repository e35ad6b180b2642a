"""`--serve`: the same screen in a browser, through textual-serve. Loopback unless told otherwise.

Each tab gets a brrrtop of its own. Whoever uses it presses keys with the rights of its user, so that it
asks who that is: a random token in the address, as Jupyter has it, which the first page turns into a
cookie; on loopback, which belongs to all users of a machine, the kernel also names the user at the other end.
A page of another site has neither, whatever its name resolves to. The page loads nothing from
anywhere else: the host of a trainer may have no internet, and no font server need know who watches what.
"""

import os
import platform
import re
import secrets
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from brrrtop.cli import output
from brrrtop.cli.options import Options
from brrrtop.errors import BrrrtopError, UsageError
from collectors.process.process import is_loopback, uid_of_client

DEFAULT = ("127.0.0.1", 8765)
TOKEN = "token"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
_EVERYWHERE = ("0.0.0.0", "::", "[::]")


def serve(argv: Sequence[str], options: Options) -> int:
    """Serves until `^C`.

    Args:
        argv: The whole command line.

    Raises:
        UsageError: The verb has no screen, or the address is none.
        BrrrtopError: The port is taken.
    """
    if options.verb not in (None, "attach", "replay", "demo"):
        raise UsageError(f"`brrrtop {options.verb}` has no screen to serve")
    host, port = address_of(options.listen)
    token = secrets.token_urlsafe(24)
    # A shell starts it, and would stay between the server and the screen.
    command = "exec " + shlex.join([sys.executable, "-m", "brrrtop", *_without_serving(argv)])
    named = platform.node() if host in _EVERYWHERE else host
    output.say(
        f"brrrtop: open http://{named}:{port}/?{TOKEN}={token} in a browser (Ctrl-C to stop)"
    )
    if host not in _LOOPBACK:
        output.say(
            "brrrtop: the token crosses the network unencrypted; safer: leave out --listen, and "
            f"`ssh -L {port}:127.0.0.1:{port} {platform.node()}`"
        )
    serving = import_module("textual_serve.server")
    server = _guarded(serving, Access(token, port))(
        command, host=host.strip("[]"), port=port, title="brrrtop"
    )
    try:
        server.serve()
    except OSError as fault:
        raise BrrrtopError(
            f"{host}:{port} cannot be served on: {fault.strerror}",
            "choose another: --listen HOST:PORT",
        ) from fault
    return 0


class Access:
    """Who may use the screen.

    Args:
        token: What the address, and later the cookie, must hold.
        port: Names the cookie: browsers send cookies to all ports of a host.
    """

    def __init__(self, token: str, port: int) -> None:
        self.token = token
        self.cookie = f"brrrtop-{port}"

    def refusal(self, request: Any) -> str | None:
        """Why a request is not answered, as a sentence; None: it is.

        Args:
            request: aiohttp's.
        """
        origin = request.headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != request.host:
            return "this screen is not for pages of other sites"
        given = (request.query.get(TOKEN, ""), request.cookies.get(self.cookie, ""))
        if not any(map(self._is_token, given)):
            return f"open the address with ?{TOKEN}=… that `brrrtop --serve` wrote to its terminal"
        return _foreign_user(
            request.transport.get_extra_info("peername"),
            request.transport.get_extra_info("sockname"),
        )

    def _is_token(self, text: str) -> bool:
        """In a time that does not tell how much of it is right."""
        return secrets.compare_digest(text.encode(errors="replace"), self.token.encode())


def _foreign_user(client: Sequence[Any], server: Sequence[Any]) -> str | None:
    """Why a connection over loopback is another user's; None: it is ours, root's, or from elsewhere.

    Root behind sudo also serves the user who typed that. An unknown user is refused by root alone.
    """
    if not is_loopback(client[0]):
        return None
    own = os.geteuid()
    uid = uid_of_client((client[0], client[1]), (server[0], server[1]))
    through_sudo = os.environ.get("SUDO_UID", "") if own == 0 else ""
    if uid in (0, own) or (uid is not None and str(uid) == through_sudo):
        return None
    if uid is None and own != 0:
        return None
    asking = "an unknown user" if uid is None else f"user {uid}"
    return f"this screen is for user {own}, and {asking} asks"


def address_of(text: str | None) -> tuple[str, int]:
    """`0.0.0.0:80`, `:80` or `80` → host and port.

    Raises:
        UsageError: It is none of these.
    """
    if text is None:
        return DEFAULT
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"{text!r} is not a valid address", "write HOST:PORT, e.g. 127.0.0.1:8765")
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


def _guarded(serving: Any, access: Access) -> Any:
    """textual-serve's server, quiet, answering only who may ask, and with nothing from other sites."""
    connections = set[Any]()

    @serving.web.middleware  # type: ignore[untyped-decorator]
    async def guard(request: Any, handler: Any) -> Any:
        refusal = access.refusal(request)
        if refusal is not None:
            raise serving.web.HTTPForbidden(text=f"{refusal}\n")
        if request.path == "/" and TOKEN in request.query:
            # Out of the address, and so out of the history and of pictures of the screen.
            bare = serving.web.HTTPFound(request.rel_url.without_query_params(TOKEN))
            bare.set_cookie(access.cookie, access.token, httponly=True, samesite="Lax")
            raise bare
        connection = request.transport
        connections.add(connection)
        try:
            answer = await handler(request)
        finally:
            connections.discard(connection)
        if answer.content_type == "text/html" and isinstance(answer, serving.web.Response):
            own = f"http://{request.host}"
            answer.text = without_foreign_links(answer.text or "", own)
            answer.headers["Content-Security-Policy"] = policy(own)
            answer.headers["Referrer-Policy"] = "no-referrer"
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

        async def handle_index(self, request: Any) -> Any:
            """With addresses below the name that the browser knows us by, for which its cookie is."""
            self.public_url = f"http://{request.host}"
            return await super().handle_index(request)

        async def _make_app(self) -> Any:
            app = await super()._make_app()
            app.middlewares.append(guard)
            return app

    return Server
