"""Where measures go: a port of its own, for a monitoring system."""

from __future__ import annotations

from collections.abc import Iterator

from common.config.loaded_values import ConfigFinding

__all__ = ["check_listen", "listen_of"]


def listen_of(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``, or ``[address]:port`` of IPv6.

    Raises:
        ValueError: it is neither.
    """
    host, colon, port = text.rpartition(":")
    inner = host.removeprefix("[").removesuffix("]")
    bracketed = host != inner
    if not (colon and inner and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ValueError("expected host:port")
    if (":" in inner) is not bracketed:
        raise ValueError("expected [address]:port")
    return inner, int(port)


def check_listen(text: str | None) -> Iterator[ConfigFinding]:
    """What is wrong with the address of the port, if it is configured."""
    if text is None:
        return
    try:
        listen_of(text)
    except ValueError as error:
        yield ConfigFinding("listen", f"{error}, such as 127.0.0.1:9765 or [::1]:9765")
