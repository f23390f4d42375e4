"""Signatures of webhooks, as Standard Webhooks 1.0.0 has them (standardwebhooks.com).

`webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over `<id>.<timestamp>.<body>`, where
`webhook-id` and `webhook-timestamp` (seconds, of this try) are headers of the same request. A
secret is written as `whsec_` and base64, and has 24 to 64 bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

__all__ = ["signature_headers", "signing_key"]

_PREFIX = "whsec_"
_SHORTEST, _LONGEST = 24, 64


def signing_key(secret: str) -> bytes:
    """The bytes of a secret as it is written, with its prefix or without.

    Raises:
        ValueError: it is none; the text of the error does not have it.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"expected {_PREFIX} and base64") from None
    if not _SHORTEST <= len(key) <= _LONGEST:
        raise ValueError(
            f"expected {_PREFIX} and {_SHORTEST} to {_LONGEST} bytes in base64, not {len(key)}: "
            "`openssl rand -base64 32` makes one"
        )
    return key


def signature_headers(key: bytes, ident: str, now: float, body: bytes) -> dict[str, str]:
    """The three headers of a request.

    Args:
        key: as `signing_key` gives it.
        ident: of the event, without a full stop.
        now: of this try, in seconds since the epoch.
        body: exactly as it is sent.
    """
    timestamp = str(int(now))
    signed = b".".join((ident.encode(), timestamp.encode(), body))
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return {
        "webhook-id": ident,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
