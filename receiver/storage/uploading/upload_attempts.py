"""The attempts at large objects, remembered on the disk before their first byte goes.

Who was cut off goes on with its own attempt, and drops no other. Which ones there are is read once:
most objects are small, and none of these has to look at the disk.
"""

from __future__ import annotations

import threading
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
    """One file for each, in the schema directory, where nobody else writes; any thread may call."""

    def __init__(self, home: Tree) -> None:
        self._home = home
        self._looking = threading.Lock()
        self._there: set[str] | None = None

    def _files(self) -> set[str]:
        """The files that there are, or may be."""
        if self._there is None:
            with self._looking:
                if self._there is None:
                    self._there = {rel for rel, _ in self._home.files(_FOLDER)}
        return self._there

    def of(self, key: str) -> str | None:
        """The store's name of the attempt at an object; None without one."""
        files = self._files()
        if not files or _file(key) not in files:
            return None
        try:
            found = from_json(self._home.read(_file(key)), _Attempt)
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return found.ident if found.key == key else None

    def note(self, key: str, ident: str) -> None:
        """Remember an attempt; it is on the disk when this returns."""
        self._files().add(_file(key))
        self._home.make_dirs(_FOLDER)
        self._home.write_atomic(_file(key), msgspec.json.encode(_Attempt(key, ident)))

    def forget(self, *keys: str) -> None:
        """These objects have come."""
        files = self._files()
        for rel in map(_file, keys) if files else ():
            if rel in files:
                self._home.unlink(rel, sync=False)
                files.discard(rel)


def _file(key: str) -> str:
    return f"{_FOLDER}/{md5(key.encode()).hexdigest()}.json"
