"""Listening sockets: names with several addresses, IPv6, ports that the system picks."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence

from common.errors import ConfigError
from common.system_errors import cannot_listen

__all__ = ["BACKLOG", "Address", "bind_to", "url_host"]

Address = tuple[str, int]
BACKLOG = 1024
_PICK_ATTEMPTS = 20


def bind_to(host: str, port: int) -> list[socket.socket]:
    """Sockets for every address of `host`, all with one port; `::` takes IPv4 as well.

    They do not listen yet: a server that recovers first must not let anybody wait in its queue.

    Args:
        host: a name or an address; brackets around IPv6 are allowed.
        port: 0 for any that is free on all of them.

    Raises:
        AddressMissingError: this machine has no such address yet, or the name is not known.
        AddressTakenError: another process listens there.
        ConfigError: the address or the port cannot be had by this user.
    """
    host = host.strip("[]")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError):
            raise cannot_listen(f"listen.host = {host}", port, error) from error
        raise ConfigError(f"listen.host = {host}: no address and no name: {error}") from error
    addresses = list(dict.fromkeys((family, at) for family, _, _, _, at in found))
    attempts = _PICK_ATTEMPTS if port == 0 and len(addresses) > 1 else 1
    for attempt in range(attempts):
        try:
            return _bind_all(addresses)
        except OSError as error:
            if attempt == attempts - 1:
                what = f"listen.host = {host}, listen.port = {port}"
                raise cannot_listen(what, port, error) from error
    raise AssertionError("unreachable")


def _bind_all(addresses: Sequence[tuple[int, tuple[object, ...]]]) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    port = 0
    try:
        for family, at in addresses:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                both = int(at[0] != "::")
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, both)
            sock.bind((at[0], at[1] or port, *at[2:]))
            port = port or sock.getsockname()[1]
            sock.setblocking(False)
    except OSError:
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.close()
        raise
    return sockets


def url_host(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
