"""The headers of tus 1.0, read strictly: numbers that fit, base64 that is base64, no key twice.

Sources: the tus resumable upload protocol 1.0.0, and RFC 9530 for `Repr-Digest`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING

from common.digests import md5, xxh3_128
from common.errors import ProtocolError
from common.text_numbers import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import ReadableBuffer

__all__ = [
    "ALGORITHMS",
    "checksum",
    "expires",
    "format_metadata",
    "metadata",
    "number",
    "repr_md5",
]

ALGORITHMS: dict[str, Callable[[ReadableBuffer], bytes]] = {
    "sha1": lambda data: hashlib.sha1(data, usedforsecurity=False).digest(),
    "md5": lambda data: md5(data).digest(),
    "xxh3_128": xxh3_128,
}
"""Checksums of `Upload-Checksum`, and how their digests are made."""
_DIGEST_BYTES = {name: len(digest_of(b"")) for name, digest_of in ALGORITHMS.items()}
MAX_KEYS = 32
_KEY = re.compile(r"[!-+\--~]+\Z")  # visible ASCII but the comma
_DIGESTS = re.compile(r"\s*(?P<name>[a-z*][a-z0-9_.*-]*)=:(?P<value>[A-Za-z0-9+/=]*):\s*\Z")


def number(text: str | None, name: str) -> int:
    """A count of bytes.

    Raises:
        ProtocolError: it is missing, negative, no number, or beyond 10^18.
    """
    if text is None:
        raise ProtocolError(f"the header {name} is missing")
    found = whole_number(text, 18)
    if found is None:
        raise ProtocolError(f"{name}: expected a number of bytes")
    return found


def metadata(text: str | None) -> dict[str, str]:
    """`Upload-Metadata`: pairs of a key and a base64 value (or none), between commas.

    Raises:
        ProtocolError: a pair is not of that form, a key comes twice, a value is no UTF-8.
    """
    found: dict[str, str] = {}
    if text is None or not text.strip():
        return found
    for pair in text.split(","):
        key, _, value = pair.strip().partition(" ")
        if not _KEY.match(key):
            raise ProtocolError("Upload-Metadata: expected a key before each value")
        if key in found:
            raise ProtocolError(f"Upload-Metadata: {key} comes twice")
        found[key] = _text(_decoded(value.strip(), f"Upload-Metadata: {key}"), key)
    if len(found) > MAX_KEYS:
        raise ProtocolError(f"Upload-Metadata: more than {MAX_KEYS} keys")
    return found


def format_metadata(values: Mapping[str, str | None]) -> str:
    """`Upload-Metadata` as an answer carries it; keys without a value are left out."""
    return ",".join(
        f"{key} {base64.b64encode(value.encode()).decode('ascii')}"
        for key, value in values.items()
        if value is not None
    )


def checksum(text: str | None) -> tuple[str, bytes] | None:
    """`Upload-Checksum`: algorithm and digest; None if there is none.

    Raises:
        ProtocolError: the algorithm is not known, or the digest is none of its.
    """
    if text is None:
        return None
    name, _, value = text.strip().partition(" ")
    size = _DIGEST_BYTES.get(name)
    if size is None:
        raise ProtocolError(f"Upload-Checksum: expected one of {', '.join(ALGORITHMS)}")
    digest = _decoded(value.strip(), "Upload-Checksum")
    if len(digest) != size:
        raise ProtocolError(f"Upload-Checksum: a {name} digest has {size} bytes, got {len(digest)}")
    return name, digest


def repr_md5(text: str | None) -> str | None:
    """The MD5 of `Repr-Digest`, in hex; digests of other kinds are passed over.

    Raises:
        ProtocolError: it is not in the form of RFC 9530.
    """
    if text is None:
        return None
    found = None
    for member in text.split(","):
        match = _DIGESTS.match(member)
        if match is None:
            raise ProtocolError("Repr-Digest: expected md5=:<base64>:")
        if match["name"] == "md5":
            digest = _decoded(match["value"], "Repr-Digest")
            if len(digest) != _DIGEST_BYTES["md5"]:
                raise ProtocolError("Repr-Digest: an md5 digest has 16 bytes")
            found = digest.hex()
    return found


def expires(at: float) -> str:
    """A time for `Upload-Expires`."""
    return formatdate(at, usegmt=True)


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError) as error:
        raise ProtocolError(f"{what}: the value is no base64") from error


def _text(value: bytes, key: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"Upload-Metadata: {key}: the value is no UTF-8") from error
