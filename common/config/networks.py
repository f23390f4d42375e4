"""Who may connect, and what counts as the own machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["AllowList", "is_loopback", "parse_network"]

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _address(text: str) -> _Address:
    """An address; an IPv4 one inside IPv6 (``::ffff:10.0.0.1``) is the IPv4 one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine.

    Of the names only ``localhost`` and those below it count (RFC 6761): what another name
    resolves to may change while we run.
    """
    host = host.strip("[]").rstrip(".").lower()
    try:
        return _address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def parse_network(text: object) -> Network:
    """A CIDR network; an entry without ``/`` is one host.

    Raises:
        ValueError: not a network, or bits of a host are set behind the prefix.
    """
    if not isinstance(text, str):
        raise ValueError("not a network")
    try:
        return ipaddress.ip_network(text.strip())
    except ValueError:
        network = ipaddress.ip_network(text.strip(), strict=False)
        raise ValueError(f"bits of a host are set: write {network}, or the host alone") from None


@dataclass(frozen=True)
class AllowList:
    """The addresses that may connect: ``"10.1.2.3" in allow_list``."""

    networks: tuple[Network, ...]

    @classmethod
    def parse(cls, entries: Iterable[object]) -> AllowList:
        """From texts such as ``10.0.0.0/8``, ``::1/128``, ``10.1.2.3``.

        Raises:
            ValueError: names the entry that is no network.
        """
        networks = []
        for entry in entries:
            try:
                networks.append(parse_network(entry))
            except ValueError as error:
                raise ValueError(f"{entry!r}: {error}") from None
        return cls(tuple(networks))

    def __contains__(self, address: object) -> bool:
        """Whether this peer address may connect; what is no address may not."""
        try:
            peer = _address(str(address))
        except ValueError:
            return False
        return any(peer in network for network in self.networks)

    @property
    def only_loopback(self) -> bool:
        """Whether nobody from another machine may connect."""
        return all(network.is_loopback for network in self.networks)

    def to_plain(self) -> list[str]:
        """What `parse` reads back."""
        return [str(network) for network in self.networks]
