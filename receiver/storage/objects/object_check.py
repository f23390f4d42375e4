"""Whether the store has what the catalogue says: each object, its size, its digest, its bytes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from common.console.step_progress import StepCounter, untold
from common.digests import md5
from common.wire import Struct
from common.wire.base import CommitTs
from receiver.storage.reading.block_digests import blocks_key, packed_size
from receiver.storage.stores.object_keys import data_key, resource_key
from receiver.storage.stores.object_store import (
    Fingerprint,
    ObjectArchivedError,
    ObjectMissingError,
)
from receiver.storage.uploading.digest_uploads import BLOCKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from common.console.step_progress import ToldProgress
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.uploaded_rows import UploadedRow
    from receiver.storage.stores.object_store import ObjectStore

__all__ = ["ARCHIVED", "CopiesReport", "ObjectFinding", "check_objects", "md5_of_object"]

ARCHIVED = "archived"
"""The kind of a finding that nothing is done about here."""
_BLOCK = 8 << 20
_BATCH = 1000
_PARALLEL = 8


class ObjectFinding(Struct, frozen=True, kw_only=True):
    """Something that is not as it should be.

    Attributes:
        kind: `missing`, `damaged`, `archived` (its bytes cannot be read until somebody restores it
            in the store; nothing is wrong with it), `resource`, `blocks` (the digests of its
            blocks), `lacking` (it never came), `untold` (no commit says that it is there),
            `orphan`, `foreign`, `tree`, or `log`.
        key: of the object; empty for one that never came.
        detail: what was found.
        physical: of the file.
        sender: whose it is.
        path: at its sender.
        repair: what a repair does about it; empty where nothing is to be done.
        repaired: whether it was done.
    """

    kind: str
    key: str
    detail: str
    physical: str = ""
    sender: str = ""
    path: str = ""
    repair: str = ""
    repaired: bool = False


class CopiesReport(Struct, frozen=True, kw_only=True):
    """What of a store was looked at, and what is wrong.

    Attributes:
        engine: whose copies they are.
        commit: up to which they were looked at.
        files: that were looked at.
        bytes: of them.
        sizes_only: the store knows no digest of what it keeps, and nothing was read: bytes that
            changed are not seen, where their number is the same.
        found: what is not as it should be; orphans and what is foreign are told of, no more.
    """

    engine: str
    commit: CommitTs = 0
    files: int = 0
    bytes: int = 0
    sizes_only: bool = False
    found: list[ObjectFinding] = msgspec.field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing is left to be put right."""
        return all(each.repaired or each.kind in ("orphan", "foreign") for each in self.found)


def check_objects(
    store: ObjectStore,
    engine: str,
    rows: Sequence[FileRow],
    places: Mapping[str, UploadedRow],
    *,
    deep: bool,
    told: ToldProgress = untold,
    read_unsaid: bool = False,
) -> list[ObjectFinding]:
    """Look for the objects of files; what is wrong.

    Args:
        store: where they should be.
        engine: uuid of the metadata engine.
        rows: the files.
        places: by physical name, where their objects are said to be.
        deep: read all bytes of each.
        told: called with each file that was looked for.
        read_unsaid: read all bytes of those that the store knows no digest of, as a directory.

    Raises:
        StoreAwayError, StoreRefusedError: of the store.
    """
    look = _Look(store, deep=deep, read_unsaid=read_unsaid)
    counter = StepCounter("files", len(rows), sum(row.size for row in rows), told)
    wrong: list[ObjectFinding] = []
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="check") as pool:
        for low in range(0, len(rows), _BATCH):
            batch = rows[low : low + _BATCH]
            results = pool.map(
                lambda row: _check(look, engine, row, places.get(row.physical)), batch
            )
            for row, found in zip(batch, results, strict=True):
                counter.done(row.size)
                wrong += found
    return wrong


def _check(
    look: _Look, engine: str, row: FileRow, place: UploadedRow | None
) -> list[ObjectFinding]:
    def found(kind: str, key: str, detail: str) -> ObjectFinding:
        return ObjectFinding(
            kind=kind,
            key=key,
            detail=detail,
            physical=row.physical,
            sender=row.sender,
            path=row.path,
        )

    if place is None:
        return [found("lacking", "", "it is not in the store")]
    wrong = []
    digests = dict(each.split("=", 1) for each in place.digests.split())
    object_key = data_key(engine, place.incarnation, row.physical, place.again)
    problem = look.problem(object_key, Fingerprint(row.size, digests), row.md5)
    if problem is not None:
        wrong.append(found(*problem))
    if BLOCKS in digests:
        key, whole = blocks_key(object_key), Fingerprint(packed_size(row.size), {})
        problem = look.problem(key, whole, digests[BLOCKS])
        if problem is not None:
            wrong.append(found(_beside("blocks", problem), key, problem[2]))
    if row.resource is not None and row.resource.md5 == place.resource:
        key, whole = resource_key(object_key, place.resource), Fingerprint(row.resource.size, {})
        problem = look.problem(key, whole, row.resource.md5)
        if problem is not None:
            wrong.append(found(_beside("resource", problem), key, problem[2]))
    return wrong


def _beside(kind: str, problem: tuple[str, str, str]) -> str:
    """What is wrong with what lies beside an object; an archived one is not to be put right."""
    return ARCHIVED if problem[0] == ARCHIVED else kind


class _Look(NamedTuple):
    """How closely objects are looked at."""

    store: ObjectStore
    deep: bool
    read_unsaid: bool

    def problem(self, key: str, expected: Fingerprint, digest: str) -> tuple[str, str, str] | None:
        """Kind, key and detail of what is wrong with an object; None for nothing."""
        try:
            there = self.store.head(key)
            if there.size != expected.size:
                return "damaged", key, f"{there.size} bytes, {expected.size} were put"
            if there.agrees(expected) is False:
                return "damaged", key, "the store says other digests than were put"
            reads = self.deep or (self.read_unsaid and not there.digests)
            if reads and (found := md5_of_object(self.store, key, expected.size)) != digest:
                return "damaged", key, f"MD5 {found}, {digest} was put"
        except ObjectMissingError:
            return "missing", key, "there is no such object"
        except ObjectArchivedError as error:
            return ARCHIVED, key, error.message
        return None


def md5_of_object(store: ObjectStore, key: str, size: int) -> str:
    """MD5 of an object's bytes, as many as there are of so many.

    Raises:
        ObjectMissingError: it is not there.
    """
    digest, at = md5(), 0
    while at < size:
        block = store.read(key, at, min(_BLOCK, size - at))
        if not block:
            break
        digest.update(block)
        at += len(block)
    return digest.hexdigest()
