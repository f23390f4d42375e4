"""The schema of a running database, told to one receiver: what differs from what was told before.

A digest of each thing that was told is kept beside the other memory of the receiver. The position
there counts how often something was told, and its mark names the digests that it went with; where
these are lost, or of something else, all is told once more.

Deletions are told only of series that were told before, that two whole lists did not have, the time
between two readings apart by the clock of one boot, and that the database says once more it does
not have. A server that was started anew may show a part of its regions only, and for long: of a
database without any series nothing is told to be gone, and databases themselves never are.

Format, version 1: `schema_told` and `schema_told_next`, JSON (`_Told`), packed by zlib; the second
is there from the first block until the receiver has it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from common.boot import boot_id, boot_seconds
from common.decoders import from_json
from common.digests import xxh3_64, xxh3_128
from common.formats.schemaitems import Dropped, Group, encode_items
from sender.schema.notes import ServerAsked
from sender.schema.server_schema import ServerSchema, has_series, read_schema, stored_path
from sender.schema.upstream_changes import ChangesPlan

if TYPE_CHECKING:
    from common.wire import SchemaPosition, SchemaStaged
    from sender.schema.database_server import DatabaseServer
    from sender.schema.notes import SchemaNotes

__all__ = ["ServerLog"]

_TOLD: Final = "schema_told"
_NEXT: Final = "schema_told_next"
_VERSION: Final = 1
_MAX_TOLD: Final = 1 << 30
_CONFIRMED: Final = 500
"""Series of which it is asked whether they are gone, in one round."""
_MANY: Final = 10
"""So many that are gone, and more than half of all, look like another server."""


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What was told: a digest by path; that of a series begins with its type."""

    version: int = _VERSION
    groups: dict[str, str] = {}
    series: dict[str, str] = {}


class ServerLog:
    """What is new in the schema of a database."""

    def __init__(
        self,
        server: DatabaseServer,
        notes: SchemaNotes,
        every: float,
        clock: Callable[[], float] = time.time,
        since_boot: Callable[[], float] = boot_seconds,
    ) -> None:
        """Nothing is asked yet.

        Args:
            server: the database.
            notes: of the receiver.
            every: seconds between two readings of the whole schema.
            clock: seconds since the epoch.
            since_boot: seconds since this machine was booted.
        """
        self._server = server
        self._notes = notes
        self._every = every
        self._clock = clock
        self._since_boot = since_boot
        self._held: list[str] = []
        self._next = b""
        self._mark = ""

    def plan(
        self, applied: SchemaPosition | None, notes: SchemaNotes, *, whole: bool
    ) -> ChangesPlan | None:
        """What is to be told, None for nothing.

        Args:
            applied: what the receiver says.
            notes: of the receiver.
            whole: the operator wants all to be told again.

        Raises:
            TsferryError: the database does not answer as it should.
        """
        asked, now = notes.now.asked, self._clock()
        there = "" if applied is None else applied.mark
        recent = asked is not None and asked.mark == there and 0 <= now - asked.at < self._every
        if recent and not whole:
            return None
        told = None if applied is None else self._told(applied.mark)
        found = read_schema(self._server)
        items, following = self._changes(told or _Told(), found, whole=whole)
        notes.update(unread=[*_unread(found), *self._held])
        self._next = zlib.compress(msgspec.json.encode(following), 1)
        self._mark = f"server {_VERSION} {xxh3_128(self._next).hex()}"
        goes_on = told is not None and applied is not None and not whole
        if goes_on and not items:
            notes.update(asked=ServerAsked(at=now, mark=there))
            return None
        notes.update(asked=ServerAsked(at=now, mark=self._mark))
        data = b"".join(items)
        if not goes_on:
            reason = "as the operator wants it" if whole else "what was told before is not known"
            reason = "nothing of it is there yet" if applied is None else reason
            before = "" if applied is None else f"{applied.identity} {applied.offset}"
            identity = f"server-{xxh3_128(f'{self._mark} {before}'.encode()).hex()}"
            return ChangesPlan(identity, 0, data, 1, reason)
        assert applied is not None
        return ChangesPlan(applied.identity, applied.offset, data, applied.offset + 1)

    def goes_on(
        self, plan: ChangesPlan, staged: SchemaStaged, notes: SchemaNotes
    ) -> ChangesPlan | None:
        """Never: what changed meanwhile stands in the midst."""
        return None

    def mark(self, plan: ChangesPlan) -> str:
        """By what it is known what was told."""
        return self._mark

    def blocks(
        self, plan: ChangesPlan, begin: int, budget: int
    ) -> Iterator[tuple[int, bytes, dict[int, bytes]]]:
        """Pieces of the changes, as those of a text log; what is told with them is noted first."""
        tree = self._notes.tree
        tree.make_dirs(self._notes.folder)
        tree.write_atomic(f"{self._notes.folder}/{_NEXT}", self._next)
        for at in range(begin, plan.size, budget):
            yield at, plan.data[at : at + budget], {}

    # -- what was told -----------------------------------------------------------------------

    def _told(self, mark: str) -> _Told | None:
        """What went with a mark; None if that is not known."""
        tree, folder = self._notes.tree, self._notes.folder
        for name in (_TOLD, _NEXT):
            with suppress(FileNotFoundError, zlib.error, msgspec.MsgspecError, UnicodeDecodeError):
                packed = tree.read(f"{folder}/{name}", limit=_MAX_TOLD)
                if mark != f"server {_VERSION} {xxh3_128(packed).hex()}":
                    continue
                told = from_json(zlib.decompress(packed), _Told)
                if name == _NEXT and self._notes.keeps:
                    tree.rename(f"{folder}/{_NEXT}", f"{folder}/{_TOLD}")
                return told
        return None

    def _changes(
        self, told: _Told, found: ServerSchema, *, whole: bool
    ) -> tuple[list[bytes], _Told]:
        """What is to be told, as lines, and what was told then; `told` is used up.

        There may be a million series: of those that are as they were a digest is kept, no more.
        """
        groups = {path: xxh3_64(encode_items([item])) for path, item in found.groups.items()}
        lines = [
            encode_items([_with_ttl(item) if path in told.groups else item])
            for path, item in sorted(found.groups.items())
            if whole or told.groups.get(path) != groups[path]
        ]
        left, following = told.series, dict[str, str]()
        others: set[str] = set()
        changed: list[tuple[str, bytes]] = []
        for path, item in found.series():
            before = left.pop(path, following.get(path))
            if item is None:
                others.add(path)
                if before is not None:
                    following[path] = before
                continue
            line = encode_items([item])
            following[path] = now = f"{item.type:02x}{xxh3_64(line)}"
            if whole or before != now:
                if before is not None and before[:2] != now[:2]:
                    line = encode_items([msgspec.structs.replace(item, replaces=True)])
                changed.append((path, line))
        gone = dict.fromkeys(self._gone(left, len(following.keys() | others), found))
        lines += [encode_items([Dropped(path=path)]) for path in gone]
        # Those of a device together. What may still be there was told as it was told.
        lines += [line for _, line in sorted(changed)]
        following |= {path: each for path, each in left.items() if path not in gone}
        return lines, _Told(groups={**told.groups, **groups}, series=following)

    def _gone(self, left: Mapping[str, str], different: int, found: ServerSchema) -> list[str]:
        """Of those that were told and not found, the ones that are proved to be gone.

        Args:
            left: told, and not found.
            different: paths that were found.
            found: the database, read to its end.
        """
        if not found.is_complete(different):
            return []
        missing = sorted(left)
        boot, now = boot_id(), self._since_boot()
        since = self._notes.now.missing if self._notes.now.missing_boot == boot else {}
        shown = set(map(stored_path, found.shown))
        held = [path for path in missing if found.database_of(path) not in shown]
        if len(missing) >= _MANY and len(missing) > different:
            held = missing
        if held:
            self._held.append(
                f"{len(held)} series that were told are not shown there, nor is any other of their "
                "databases, or most are not: they are not told to be gone"
            )
            missing = sorted(set(missing).difference(held))
        noted = {path: since.get(path, now) for path in missing[:_CONFIRMED]}
        twice = [path for path in noted if path in since and now - since[path] >= self._every]
        there = {path for path in twice if has_series(self._server, path)}
        still = {path: noted[path] for path in noted if path not in there}
        self._notes.update(missing=still, missing_boot=boot)
        return [path for path in twice if path not in there]


def _with_ttl(group: Group) -> Group:
    """What had a TTL, and has none now, has to say so."""
    return group if group.ttl else msgspec.structs.replace(group, ttl=None)


def _unread(found: ServerSchema) -> list[str]:
    said = ["tables of the server; its schema templates, but for their series"]
    return said + [f"{what}: {count}" for what, count in sorted(found.unread.items()) if count]
