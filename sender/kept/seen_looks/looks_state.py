"""What is remembered of looks, as it stands in `looks.state`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from common.decoders import from_json
from common.names import FilePath
from sender.kept.seen_looks.deletions_sight import DeletionsSight
from sender.kept.seen_looks.sights import Sight, Sights

__all__ = ["LOOKS_VERSION", "LooksState"]

LOOKS_VERSION = 1


class _Remembered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is remembered of looks, but for what was seen of each file that is not on the list.

    Attributes:
        version: of this format.
        last: number of the last look; 0 before the first.
        earlier: directories of TsFiles -> the last look that listed them, where not all were listed
            by the last one; "" stands for those that nothing was known of.
        torn: those that it did not see at rest -> the last look that did; likewise.
        missing: path of a listed file that it did not see, or of one that lives on as a link only
            -> the last look that had it.
        deletions: path of a TsFile -> form -> its deletion file.
        unread: path of a TsFile whose deletion file could not be read -> the last look before that
            could have seen what it did not see.
        places: data directory -> directory of TsFiles on another mount than it -> that mount, as
            it was when files in it were listed.
    """

    version: int = LOOKS_VERSION
    last: int = 0
    earlier: dict[str, int] = {}
    torn: dict[str, int] = {}
    missing: dict[str, int] = {}
    deletions: dict[str, dict[str, DeletionsSight]] = {}
    unread: dict[str, int] = {}
    places: dict[str, dict[str, str]] = {}


class _OnDisk(_Remembered, frozen=True, kw_only=True):
    """The same as it is read."""

    sights: dict[str, Sight] = {}


_NOTHING: Final = Sights()


class LooksState(_Remembered, frozen=True, kw_only=True):
    """What is remembered of looks: beside the rest `sights` of files that are not on the list."""

    sights: Sights = _NOTHING

    @classmethod
    def read(cls, content: bytes) -> LooksState:
        """What `pieces` wrote, or an earlier version.

        Raises:
            msgspec.MsgspecError, UnicodeDecodeError: it is something else.
        """
        found = from_json(content, _OnDisk)
        rest = {name: getattr(found, name) for name in _Remembered.__struct_fields__}
        return cls(**rest, sights=Sights(found.sights.items()))

    def pieces(self) -> Iterator[bytes]:
        """JSON, piece by piece: of a first look the sights alone are a hundred megabytes."""
        rest = msgspec.json.encode(replace(self, sights=_NOTHING))
        if not self.sights:
            yield rest
            return
        yield rest[:-1] + (b'"sights":' if rest == b"{}" else b',"sights":')
        yield from self.sights.pieces()
        yield b"}"

    def last_of(self, directory: str) -> int:
        """The last look that listed a directory."""
        return self.earlier.get(directory, self.earlier.get("", self.last))

    def floor_of_deletions(self, path: FilePath) -> int:
        """The last look that could have seen what it did not see of a deletion file."""
        return self.unread.get(path.text, self.floor_of(path.directory))

    def floor_of(self, directory: str) -> int:
        """The last look that saw a directory at rest: what it did not see there came later."""
        return self.torn.get(directory, self.torn.get("", self.last_of(directory)))
