"""Where measures go: a port of its own, for a monitoring system."""

from __future__ import annotations

from collections.abc import Iterator

from common.config.loaded_values import ConfigFinding
from common.text_numbers import whole_number

__all__ = ["check_listen", "listen_of"]


def listen_of(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``, or ``[address]:port`` of IPv6.

    Raises:
        ValueError: it is neither.
    """
    host, colon, port = text.rpartition(":")
    inner = host.removeprefix("[").removesuffix("]")
    bracketed = host != inner
    number = whole_number(port)
    if not (colon and inner) or number is None or number >= 1 << 16:
        raise ValueError("expected host:port")
    if (":" in inner) is not bracketed:
        raise ValueError("expected [address]:port")
    return inner, number


def check_listen(text: str | None) -> Iterator[ConfigFinding]:
    """What is wrong with the address of the port, if it is configured."""
    if text is None:
        return
    try:
        listen_of(text)
    except ValueError as error:
        yield ConfigFinding("listen", f"{error}, such as 127.0.0.1:9765 or [::1]:9765")
