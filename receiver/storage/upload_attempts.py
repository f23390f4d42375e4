"""The attempts at large objects, remembered on the disk before their first byte goes.

Who was cut off goes on with its own attempt, and drops no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.digests import md5

if TYPE_CHECKING:
    from common.durable import Tree

__all__ = ["UploadAttempts"]

_FOLDER = "storage/attempts"


class _Attempt(msgspec.Struct, frozen=True):
    key: str
    ident: str


class UploadAttempts:
    """One file for each, in the schema directory."""

    def __init__(self, home: Tree) -> None:
        self._home = home

    def of(self, key: str) -> str | None:
        """The store's name of the attempt at an object; None without one."""
        try:
            found = from_json(self._home.read(_file(key)), _Attempt)
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return found.ident if found.key == key else None

    def note(self, key: str, ident: str) -> None:
        """Remember an attempt; it is on the disk when this returns."""
        self._home.make_dirs(_FOLDER)
        self._home.write_atomic(_file(key), msgspec.json.encode(_Attempt(key, ident)))

    def forget(self, *keys: str) -> None:
        """These objects have come."""
        for key in keys:
            self._home.unlink(_file(key), sync=False)


def _file(key: str) -> str:
    return f"{_FOLDER}/{md5(key.encode()).hexdigest()}.json"
