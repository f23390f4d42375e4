"""Who reaches a receiver, and as whom: `[listen]`, `[auth]`, `[page]`, `[metrics]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from common.config import AllowList, ConfigFinding, Duration, Size, is_loopback
from common.config.metrics_rules import check_listen

__all__ = ["AuthConfig", "ListenConfig", "MetricsConfig", "PageConfig"]


_LOOPBACK = AllowList.parse(["127.0.0.0/8", "::1/128"])


class ListenConfig(Struct, frozen=True, kw_only=True):
    """``[listen]``: who can reach the server.

    Attributes:
        host: address to listen on; 0.0.0.0 or :: for all.
        port: TCP port; 0 for any that is free.
        tls_cert: file with the certificate (PEM), and with those between it and the root; with
            `tls_key`.
        tls_key: file with the private key (PEM).
        client_ca: PEM file with the authorities whose client certificates are taken in the place
            of tokens, once `token create --certificate` has bound their names; none for none.
        client_auth: ``optional``: who shows a certificate is known by it, others come with tokens;
            ``required``: a connection without one ends in the handshake. From this machine it
            does not, for the commands of the operator here, and nothing else is let in so.
        client_crl: PEM file with the lists of what these authorities have revoked, one of each of
            them; none where a revoked name is not bound any more.
        insecure: allow plain HTTP on an address that other machines can reach.
        allow: networks and hosts that may connect; the address of the connection counts, never a
            header.
        hosts: Host headers that are answered, such as "centre.example.org"; empty for any.
        threads: requests that are worked on at a time.
        connection_limit: open connections; further ones wait. Half of them at most are at work for
            one token, or without any for one address.
        channel_timeout: time without a byte, until a connection is closed.
        max_request_bytes: most bytes of the body of one request.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8765
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    client_auth: Literal["optional", "required"] = "optional"
    client_crl: Path | None = None
    insecure: bool = False
    allow: AllowList = _LOOPBACK
    hosts: tuple[str, ...] = ()
    threads: Annotated[int, Meta(ge=1, le=1024)] = 16
    connection_limit: Annotated[int, Meta(ge=1)] = 500
    channel_timeout: Annotated[Duration, Meta(ge=1)] = 60.0
    max_request_bytes: Annotated[Size, Meta(ge=4096)] = 64 * 2**20

    @property
    def tls(self) -> bool:
        """Whether the server speaks HTTPS."""
        return self.tls_cert is not None and self.tls_key is not None

    @property
    def wants_certificates(self) -> bool:
        """Whether nobody is let in without a certificate, but the commands on this machine."""
        return self.client_ca is not None and self.client_auth == "required"

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        if self.tls_cert is None and self.tls_key is not None:
            yield ConfigFinding("tls_cert", "missing: expected with tls_key")
        if self.tls_key is None and self.tls_cert is not None:
            yield ConfigFinding("tls_key", "missing: expected with tls_cert")
        yield from self._check_clients()
        if self.on_loopback:
            return
        if not self.tls and not self.insecure:
            text = "expected a loopback address, or tls_cert and tls_key, or insecure = true"
            yield ConfigFinding("host", text)
        elif not self.tls:
            yield ConfigFinding("insecure", "data and tokens can be read on the way", fatal=False)
        if self.allow.only_loopback:
            text = "only this machine may connect, though others can reach the address"
            yield ConfigFinding("allow", text, fatal=False)

    def _check_clients(self) -> Iterator[ConfigFinding]:
        if self.client_ca is not None and not self.tls:
            yield ConfigFinding("client_ca", "expected with tls_cert and tls_key")
        if self.client_ca is None and self.client_crl is not None:
            yield ConfigFinding("client_crl", "expected with client_ca")
        if self.client_ca is None and self.client_auth == "required":
            yield ConfigFinding("client_auth", "expected with client_ca")


class AuthConfig(Struct, frozen=True, kw_only=True):
    """``[auth]``: who is asked for a token.

    Attributes:
        require: ``always``, or ``auto``: once a token of the role was made, and from other
            machines unless ``listen.insecure``. Operator commands need a token in any case.
        reveal_owner: tell a sender whose device it has a conflict about.
    """

    require: Literal["auto", "always"] = "auto"
    reveal_owner: bool = False


class PageConfig(Struct, frozen=True, kw_only=True):
    """``[page]``: the web page at ``/ui/``, for people.

    Attributes:
        enabled: whether there is a page at all.
        insecure: take people in over plain HTTP from other machines; what they type can be read on
            the way.
        session: time until somebody has to log in again.
        idle: time without a look at the page, until somebody has to log in again.
        report: directory that `tsferry-verify --report` writes; the page shows what it says.
    """

    enabled: bool = True
    insecure: bool = False
    session: Annotated[Duration, Meta(ge=60, le=604_800)] = 43200.0
    idle: Annotated[Duration, Meta(ge=60, le=604_800)] = 1800.0
    report: Path | None = None


class MetricsConfig(Struct, frozen=True, kw_only=True):
    """``[metrics]``: what a monitoring system scrapes; `/metrics` of the server has it as well.

    Attributes:
        listen: host:port of a port of its own, without TLS and token; none for no such port.
        edges: edges that have measures of their own, those that came first; the rest counts in
            the sums.
    """

    listen: str | None = None
    edges: Annotated[int, Meta(ge=0, le=1_000_000)] = 1000

    def check(self) -> Iterator[ConfigFinding]:
        """What no single key can tell."""
        yield from check_listen(self.listen)
