"""Which user of this machine is at the other end of a TCP connection, as /proc/net tells."""

from __future__ import annotations

import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

_TABLES = {4: Path("/proc/self/net/tcp"), 6: Path("/proc/self/net/tcp6")}
_ESTABLISHED = "01"
"""The kernel forgets the user of a socket that its process has closed, and writes 0 for it."""


def is_loopback(host: str) -> bool:
    """Whether an address, as the C library writes it, never leaves this machine."""
    return _plain(host).is_loopback


def uid_of_client(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user whose open socket at `client` is connected to `server`; None where none is found.

    Args:
        client: Numeric address and port; also the server's, as its end of the connection has them.
    """
    (host, port), (own, own_port) = client, server
    peer, here = _plain(host), _plain(own)
    for version, table in _TABLES.items():
        if version < peer.version:
            continue
        wanted = [_as_listed(peer, port, version), _as_listed(here, own_port, version)]
        try:
            rows = table.read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if columns[1:4] == [*wanted, _ESTABLISHED]:
                return int(columns[7])
    return None


def _plain(host: str) -> IPv4Address | IPv6Address:
    """IPv4 as itself, also where a socket of IPv6 speaks it."""
    address = ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def _as_listed(address: IPv4Address | IPv6Address, port: int, version: int) -> str:
    """As the table of that version writes an address: words of four bytes in the machine's order."""
    packed = address.packed
    if address.version < version:
        packed = bytes(10) + b"\xff\xff" + packed
    step = -1 if sys.byteorder == "little" else 1
    words = (packed[start : start + 4][::step] for start in range(0, len(packed), 4))
    return f"{b''.join(words).hex().upper()}:{port:04X}"
