"""When a certificate ends, or a list of revoked ones, read from PEM without another library.

Of X.509 (RFC 5280, 4.1) only the way to that field is known here: Certificate is a sequence of
TBSCertificate and more; that is [0] version (in newer ones), serial number, algorithm, issuer, and
validity, a sequence of two times, each UTCTime (`YYMMDDhhmmssZ`) or GeneralizedTime
(`YYYYMMDDhhmmssZ`). A list of revoked certificates (5.1) begins with a version that is no [0], its
algorithm, its issuer, and the times of this one and, mostly, of the next.
"""

from __future__ import annotations

import base64
import datetime
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

__all__ = ["CertificateFile", "crl_end", "end_of", "is_exchanged", "note_in_use"]

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_CRL: Final = "-----BEGIN X509 CRL-----", "-----END X509 CRL-----"
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_INTEGER: Final = 0x02
_LIMIT = 1 << 24
_in_use: Final[dict[Path, bytes]] = {}
"""What a server of this process shows or judges by, under the path that it was read from."""


def note_in_use(contents: Mapping[Path, bytes]) -> None:
    """Have these count for what their files have, until they are read again.

    What lies there by then may be another certificate, which nobody is shown before that: the end
    of the one that is shown is what clients come upon.
    """
    _in_use.update(contents)


def is_exchanged(path: Path | None) -> bool:
    """Whether a file is not what is in use of it any more, or cannot be read."""
    known = None if path is None else _in_use.get(path)
    if path is None or known is None:
        return False
    try:
        return path.read_bytes() != known
    except OSError:
        return True


def crl_end(pem: bytes) -> float:
    """When the first of the lists of revoked certificates in a PEM text ends that will.

    Raises:
        ValueError: there is none that ends, or it is damaged.
    """
    begin, end = _CRL
    ends = []
    for each in pem.decode("ascii", "replace").split(begin)[1:]:
        rest = _content(memoryview(base64.b64decode(each.partition(end)[0])), _SEQUENCE)[0]
        rest = _content(rest, _SEQUENCE)[0]
        if rest[:1] == bytes([_INTEGER]):
            rest = _content(rest, _INTEGER)[1]
        for _ in range(3):  # algorithm, issuer, the time of this one
            rest = _content(rest, None)[1]
        if rest[:1] in (bytes([_UTC_TIME]), bytes([_GENERALIZED_TIME])):
            ends.append(_seconds(rest))
    if not ends:
        raise ValueError("there is no list that ends")
    return min(ends)


class CertificateFile:
    """A PEM file with a certificate, and perhaps those between it and the root; it may change.

    Args:
        path: of it; None for none, which never ends.
        reads: what of its content ends.
    """

    def __init__(self, path: Path | None, reads: Callable[[bytes], float] | None = None) -> None:
        self._path = path
        self._reads = reads or end_of
        self._lock = threading.Lock()
        self._known: tuple[tuple[int, int, int], float | None] | None = None

    def until(self) -> float | None:
        """When the first of its certificates ends that will; None if that cannot be read.

        Of what is in use of this file in this process, where something is.
        """
        if self._path is None:
            return None
        try:
            if (used := _in_use.get(self._path)) is not None:
                return self._reads(used)
            found = self._path.stat()
            which = (found.st_ino, found.st_mtime_ns, found.st_size)
            with self._lock:
                if self._known is None or self._known[0] != which:
                    self._known = which, self._reads(self._path.read_bytes()[:_LIMIT])
                return self._known[1]
        except (OSError, ValueError):
            return None


def end_of(pem: bytes) -> float:
    """When the first of the certificates in a PEM text ends that will, seconds since the epoch.

    Raises:
        ValueError: there is none, or it is damaged.
    """
    pieces = pem.decode("ascii", "replace").split(_BEGIN)[1:]
    ends = [
        _not_after(ssl.PEM_cert_to_DER_cert(f"{_BEGIN}{each.partition(_END)[0]}{_END}\n"))
        for each in pieces
    ]
    if not ends:
        raise ValueError("there is no certificate")
    return min(ends)


def _not_after(der: bytes) -> float:
    certificate = _content(memoryview(der), _SEQUENCE)[0]
    rest = _content(certificate, _SEQUENCE)[0]
    if rest[:1] == bytes([_VERSION]):
        rest = _content(rest, _VERSION)[1]
    for _ in range(3):  # serial number, algorithm, issuer
        rest = _content(rest, None)[1]
    behind_begin = _content(_content(rest, _SEQUENCE)[0], None)[1]
    return _seconds(behind_begin)


def _content(data: memoryview, tag: int | None) -> tuple[memoryview, memoryview]:
    """The content of the first element, and what is behind it."""
    if len(data) < 2 or (tag is not None and data[0] != tag):
        raise ValueError("this is no certificate")
    length, at = data[1], 2
    if length & 0x80:
        at += length & 0x7F
        length = int.from_bytes(data[2:at], "big")
    if at > 6 or at + length > len(data):
        raise ValueError("the certificate is cut off")
    return data[at : at + length], data[at + length :]


def _seconds(data: memoryview) -> float:
    kind = data[0] if len(data) else 0
    text = bytes(_content(data, None)[0]).decode("ascii", "replace")
    if kind == _UTC_TIME and text[:2].isdecimal():
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    elif kind != _GENERALIZED_TIME:
        raise ValueError("the certificate has no end")
    at = datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.UTC)
    return at.timestamp()
