"""Why a handshake with a receiver came to nothing, and the way out."""

from __future__ import annotations

import datetime
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from common.errors import ForbiddenError, TsferryError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["not_accepted", "refused_for_ours"]

_NOT_YET, _ENDED, _OTHER_NAME, _OTHER_ADDRESS = 9, 10, 62, 64
"""Codes of OpenSSL (X509_V_ERR_..., x509_vfy.h)."""
_NO_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})
_OURS: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a client certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it wants a client certificate, perhaps",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it has ended, or its authority's list there has "
    "(listen.client_crl)",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it is revoked",
    "TLSV1_ALERT_UNKNOWN_CA": "it is of none of its authorities (listen.client_ca there), or of "
    "one without a list (listen.client_crl)",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it is not made for clients (extended key usage)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it is damaged, or not valid yet",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it cannot be verified",
}
"""Alerts by which a server refuses ours, as OpenSSL calls their reasons. It has no alert of its own
for a list of revoked certificates that has ended, or is not there."""


def not_accepted(
    url: str, ca_file: Path | None, error: ssl.SSLCertVerificationError
) -> ForbiddenError:
    """The receiver's certificate does not pass.

    Args:
        url: of the receiver.
        ca_file: what it is checked against; None for the authorities of the system.
        error: of the check.
    """
    why = error.verify_message or str(error)
    out = _way_out(url, ca_file, error)
    return ForbiddenError(f"{url}: its certificate is not accepted: {why}{out}")


def _way_out(url: str, ca_file: Path | None, error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code in _NO_AUTHORITY and ca_file is None:
        return (
            '; of an authority of your own, or self-signed: ca_file = "..." in [[receiver]], a PEM '
            "file with the certificate of that authority, or with its own"
        )
    if code in _NO_AUTHORITY:
        return f"; ca_file = {ca_file} does not have the authority that signed it"
    if code in (_OTHER_NAME, _OTHER_ADDRESS):
        host = urlsplit(url).hostname
        return (
            f"; url has {host}: have it name the receiver as the certificate does, or the "
            "certificate name that as well (subjectAltName)"
        )
    if code in (_ENDED, _NOT_YET):
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return f"; here it is {now}: set this clock right, or have a new certificate made there"
    return ""


def refused_for_ours(
    url: str, cert: Path | None, errors: Sequence[BaseException]
) -> TsferryError | None:
    """The receiver does not take our certificate; None where that is not what happened.

    Args:
        url: of the receiver.
        cert: file of our certificate; None where we have none.
        errors: that were raised, with those inside them.
    """
    reasons = [str(each.reason) for each in errors if isinstance(each, ssl.SSLError)]
    why = next((_OURS[each] for each in reasons if each in _OURS), None)
    if why is None:
        return None
    if cert is None:
        return ForbiddenError(
            f"{url}: wants a client certificate: client_cert and client_key in [[receiver]]"
        )
    return ForbiddenError(f"{url}: does not take client_cert = {cert}: {why}")
