"""What is asked of etcd and what it answers, in the JSON of its gateway.

Keys and values are base64, 64-bit numbers are texts of digits, and what is zero or empty is left
out.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "MAX_OPERATIONS",
    "PART_SIZE",
    "Compare",
    "Delete",
    "Get",
    "KeyValue",
    "Operation",
    "Put",
    "Range",
    "TransactionResult",
    "prefix_end",
    "range_of",
]

MAX_OPERATIONS = 128
"""Of one transaction, as a server allows them by default (`--max-txn-ops`)."""
PART_SIZE = 1 << 20
"""Bytes of a part of what is too large for one request: with its key well below what one may hold
(1.5 MiB)."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key as of the revision it was read at.

    Attributes:
        created: revision at which it came, the last time.
        changed: revision of its newest change.
        version: changes since it came, counting from 1.
        lease: that it goes with, 0 for none.
    """

    key: bytes
    value: bytes
    created: int
    changed: int
    version: int
    lease: int


@dataclass(frozen=True, slots=True)
class Range:
    """What was found.

    Attributes:
        keys: in the order of their bytes.
        more: whether `limit` cut some off.
        revision: of the store when it answered.
    """

    keys: tuple[KeyValue, ...]
    more: bool
    revision: int


@dataclass(frozen=True, slots=True)
class Get:
    """Read a key, or from a key up to (without) `end`.

    Attributes:
        revision: to read at, 0 for the newest.
        limit: most keys, 0 for all.
        descending: begin with the last key.
        keys_only: leave the values out.
    """

    key: bytes
    end: bytes = b""
    revision: int = 0
    limit: int = 0
    descending: bool = False
    keys_only: bool = False

    def to_request(self) -> dict[str, Any]:
        """As a request of its own."""
        request = _key_range(self.key, self.end)
        if self.revision:
            request["revision"] = str(self.revision)
        if self.limit:
            request["limit"] = str(self.limit)
        if self.descending:
            request |= {"sort_order": "DESCEND", "sort_target": "KEY"}
        if self.keys_only:
            request["keys_only"] = True
        return request

    def to_operation(self) -> dict[str, Any]:
        """As a part of a transaction."""
        return {"request_range": self.to_request()}


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key; it goes with the lease, where one is named."""

    key: bytes
    value: bytes
    lease: int = 0

    def to_operation(self) -> dict[str, Any]:
        """As a part of a transaction."""
        request: dict[str, Any] = {"key": _text(self.key), "value": _text(self.value)}
        if self.lease:
            request["lease"] = str(self.lease)
        return {"request_put": request}


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a key, or all from a key up to (without) `end`."""

    key: bytes
    end: bytes = b""

    def to_operation(self) -> dict[str, Any]:
        """As a part of a transaction."""
        return {"request_delete_range": _key_range(self.key, self.end)}


Operation = Get | Put | Delete


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition of a transaction: when a key came, or was changed last; 0 for no key."""

    key: bytes
    created: int | None = None
    changed: int | None = None

    def to_request(self) -> dict[str, Any]:
        """As a part of a transaction."""
        request: dict[str, Any] = {"key": _text(self.key), "result": "EQUAL"}
        if self.created is not None:
            return request | {"target": "CREATE", "create_revision": str(self.created)}
        return request | {"target": "MOD", "mod_revision": str(self.changed)}


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """Whether the conditions held, and what the `Get`s of the branch taken found, in order."""

    succeeded: bool
    revision: int
    found: tuple[Range, ...] = field(default=())


def prefix_end(prefix: bytes) -> bytes:
    """The end of the range of all keys with a prefix; a zero byte, "all", for an empty one."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b"\0"


def _text(raw: bytes) -> str:
    return b64encode(raw).decode("ascii")


def _key_range(key: bytes, end: bytes) -> dict[str, Any]:
    # An empty key is refused by etcd; the first key that there can be is a zero byte.
    request: dict[str, Any] = {"key": _text(key or b"\0")}
    if end:
        request["range_end"] = _text(end)
    return request


def range_of(answer: Mapping[str, Any]) -> Range:
    """What the answer to a `Get` says."""
    keys = tuple(
        KeyValue(
            b64decode(each["key"]),
            b64decode(each.get("value", "")),
            int(each["create_revision"]),
            int(each["mod_revision"]),
            int(each["version"]),
            int(each.get("lease", 0)),
        )
        for each in answer.get("kvs", ())
    )
    return Range(keys, bool(answer.get("more")), int(answer["header"]["revision"]))
