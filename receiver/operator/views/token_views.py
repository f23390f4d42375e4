"""What operators are told of tokens and owners, and of what of them ends soon."""

from __future__ import annotations

import msgspec

from common.wire import Struct
from common.wire.base import CommitTs

__all__ = [
    "EdgeCertificateEnding",
    "OwnerView",
    "OwnersPage",
    "TokenEnding",
    "TokenMade",
    "TokenView",
]


class OwnerView(Struct, frozen=True, kw_only=True):
    """A device, who owns it, and since which commit, and when that was."""

    device: str
    sender: str
    label: str = ""
    since: CommitTs = 0
    """Commit since which it does."""
    since_at: float | None = None
    """When that was, seconds since the epoch."""


class OwnersPage(Struct, frozen=True, kw_only=True):
    """Owners in order of the devices' names; `next` is the cursor of the page after."""

    owners: list[OwnerView]
    """Those of this page."""
    next: str | None = None


class TokenView(Struct, frozen=True, kw_only=True):
    """A token without its secret, or the name of a certificate that is bound like one."""

    id: str
    role: str
    sender: str | None = None
    scope: list[str] = msgspec.field(default_factory=list)
    note: str = ""
    expires: float | None = None
    allow_deletes: bool = True
    """Whether what is deleted by it takes files out of sight; of a writer, whether it may
    overwrite."""
    owners: list[str] = msgspec.field(default_factory=list)
    """Of a writer, uuids of those whose devices it may load; `*` for all."""
    certificate: str | None = None
    """The name in the client certificate that stands in for the token; null for a token."""
    created: CommitTs = 0
    created_at: float | None = None


class TokenEnding(Struct, frozen=True, kw_only=True):
    """A token that ends soon, or has ended: its id, role and note, of which sender, and when."""

    id: str
    role: str
    note: str = ""
    sender: str | None = None
    expires: float


class EdgeCertificateEnding(Struct, frozen=True, kw_only=True):
    """A client certificate of an edge that ends soon, or has ended.

    Attributes:
        sender: uuid of the edge.
        label: of it.
        expires: when it ends, as the edge said last; seconds since the epoch.
    """

    sender: str
    label: str = ""
    expires: float


class TokenMade(Struct, frozen=True, kw_only=True):
    """A new token, and the only time that its text is shown; empty where a certificate is bound."""

    id: str
    token: str = ""
    """The token itself; it is told this once."""
    role: str
    sender: str | None = None
    scope: list[str] = msgspec.field(default_factory=list)
    note: str = ""
    expires: float | None = None
    allow_deletes: bool = True
    """Whether what is deleted by it takes files out of sight; of a writer, whether it may
    overwrite."""
    owners: list[str] = msgspec.field(default_factory=list)
    """Of a writer, uuids of those whose devices it may load; `*` for all."""
    certificate: str | None = None
    """The name in the client certificate that stands in for the token; null for a token."""
