"""Names of client certificates: how one is bound to what it may do, and which ones count.

They are those of `subjectAltName`: DNS names, in either case (RFC 4343), and URIs, letter by letter
(as SPIFFE has it). A wildcard stands for itself, so it matches nothing: whoever has a certificate
for `*.plant.example` is none of the machines there. The common name of the subject is not looked
at (RFC 6125, 6.4.4), addresses and e-mail addresses neither.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_certificate_name", "name_to_bind", "names_of"]

_DNS: Final = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z][a-z0-9_-]{0,62}\Z")
_LONGEST_DNS: Final = 253
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+\Z")
_LONGEST_URI: Final = 2048
_MOST: Final = 100
"""Names of a certificate that are looked at."""


def is_certificate_name(name: str) -> bool:
    """Whether a name is written as those are that certificates are known by."""
    if ":" in name:
        return len(name) <= _LONGEST_URI and _URI.match(name) is not None
    return len(name) <= _LONGEST_DNS and _DNS.match(name) is not None


def name_to_bind(text: str) -> str:
    """A name as an operator gives it, as it is kept.

    Raises:
        UsageError: no certificate is known by it.
    """
    name = text if ":" in text else text.lower()
    if not is_certificate_name(name):
        hint = "; a wildcard matches nothing: bind each name" if "*" in text else ""
        raise UsageError(
            f"{text[:100]!a} is no name of a certificate: expected a DNS name or a URI of its "
            f"subjectAltName, such as edge7.plant.example or spiffe://plant.example/edge7{hint}"
        )
    return name


def names_of(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """The names by which a certificate can be known, as they are bound.

    Args:
        certificate: as `getpeercert` of a socket tells it, verified.
    """
    found = []
    for kind, value in certificate.get("subjectAltName", ())[:_MOST]:
        if kind not in ("DNS", "URI"):
            continue
        if not value.isascii():  # some letters become ASCII ones by `lower`
            continue
        name = value.lower() if kind == "DNS" else value
        # A DNS name that is written as a URI, or the other way round, is neither.
        if (":" in name) is (kind == "URI") and is_certificate_name(name):
            found.append(name)
    return tuple(dict.fromkeys(found))
