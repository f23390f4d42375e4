"""Deletion files in a look: new, grown, cut, written anew, moved with their TsFile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from common.digests import xxh3_128
from common.listed import KnownRecords
from common.names import FilePath
from common.tsfile.deletion_records import whole_records
from common.tsfile.primitives import Malformed
from sender.kept.seen_looks.deletions_sight import DeletionsSight, SeenRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from sender.kept.seen_looks.looks_state import LooksState
    from sender.select.entry import Entry
    from sender.select.found import LocalDeletions, LocalFile, Scan

__all__ = ["as_known", "deletions_of_look", "kept_marks"]


def deletions_of_look(
    before: LooksState,
    scan: Scan,
    entries: Mapping[FilePath, Entry],
    read: Callable[[LocalDeletions], bytes | None],
    md5: Callable[[LocalFile], str | None],
) -> tuple[dict[str, dict[str, DeletionsSight]], dict[FilePath, str]]:
    """What is known of deletion files, and of which TsFiles they cannot be read, and why."""
    here = {(each.path.text, each.form) for each in scan.deletions}
    moved = [
        (entries.get(FilePath.parse(path)), sight)
        for path, forms in before.deletions.items()
        for form, sight in forms.items()
        if (path, form) not in here
    ]
    found: dict[str, dict[str, DeletionsSight]] = {}
    for path, forms in before.deletions.items():
        parsed = FilePath.parse(path)
        stands = parsed in entries or parsed in scan.files or parsed in scan.others
        if stands or scan.why_not_listed(parsed.directory):
            found[path] = dict(forms)  # one that vanished beside its TsFile is not withdrawn
    unread: dict[FilePath, str] = {}
    for file in scan.deletions:
        known = before.deletions.get(file.path.text, {}).get(file.form)
        if known is None or known.identity != file.identity:
            content = read(file)
            try:
                if content is None:
                    raise Malformed("it cannot be read", 0)
                may_be_it = [sight for entry, sight in moved if _may_be(scan, file, entry, md5)]
                floor = before.floor_of_deletions(file.path)
                known = _seen(floor, file, known, may_be_it, content)
            except Malformed as error:
                unread[file.path] = (
                    f"its deletion file ({file.form}), byte {error.at}: {error.what}"
                )
        if known is not None:
            found.setdefault(file.path.text, {})[file.form] = known
    return found, unread


def _may_be(
    scan: Scan,
    deletions: LocalDeletions,
    entry: Entry | None,
    md5: Callable[[LocalFile], str | None],
) -> bool:
    """Whether the TsFile of a deletion file may be one that was listed under another path.

    That its deletion file begins as that one's did says little: who deletes once more what was
    deleted before writes the very records, beside other files.
    """
    if entry is None or not entry.md5:
        return True
    file = scan.files.get(deletions.path)
    if file is None:
        at = deletions.data_dir, deletions.path.text
        sizes = (each.size for each in scan.waiting if (each.data_dir, each.text) == at)
        return next(sizes, entry.size) == entry.size
    return file.size == entry.size and (entry.is_of(file) or md5(file) in (None, entry.md5))


def _seen(
    floor: int,
    file: LocalDeletions,
    known: DeletionsSight | None,
    moved: Sequence[DeletionsSight],
    content: bytes,
) -> DeletionsSight | None:
    """A deletion file that is new or has changed.

    What it begins with may have been seen before, also beside another path: its TsFile has moved.

    Raises:
        Malformed: something in it is no record.
    """
    size = whole_records(content, file.form)
    if not size:
        return known
    if known is not None and size < known.size:
        if file.segments:
            return replace(known, identity=file.identity)
        return _written_anew(file, known, size, content)
    if file.segments:
        marks = tuple((end, floor) for end, floor, _ in file.segments)
        found = DeletionsSight(file.identity, size, _digest(content[:size]), marks, kept=0)
        same = known is not None and _digest(content[: known.size]) == known.digest
        return _told_before(found, known) if known is not None and same else found
    for each in (*([] if known is None else [known]), *moved):
        if _begins_with(content, size, each):
            marks, uncut = _grown(each, size, floor, content)
            digest = _digest(content[:size])
            found = DeletionsSight(file.identity, size, digest, marks, kept=0, uncut=uncut)
            return found if each is not known else _told_before(found, known)
    if known is not None:
        return _written_anew(file, known, size, content)
    return DeletionsSight(file.identity, size, _digest(content[:size]), ((size, floor),), kept=0)


def _begins_with(content: bytes, size: int, seen: DeletionsSight | SeenRecords) -> bool:
    return seen.size <= size and _digest(content[: seen.size]) == seen.digest


def _grown(
    seen: DeletionsSight, size: int, floor: int, content: bytes
) -> tuple[tuple[tuple[int, int], ...], SeenRecords | None]:
    """Marks of a deletion file that begins with what was seen, and what is still cut off.

    What comes back behind a cut is as old as it was.
    """
    marks, uncut = seen.marks, seen.uncut
    if size == seen.size:
        return marks, uncut
    if uncut is not None and _begins_with(content, size, uncut):
        marks, uncut = uncut.marks, None
        if marks[-1][0] == size:
            return marks, None
    return (*marks, (size, floor)), uncut if uncut is not None and size < uncut.size else None


def _told_before(now: DeletionsSight, known: DeletionsSight) -> DeletionsSight:
    """A deletion file that has grown: what was told of it holds."""
    there = known.at_receiver or KnownRecords(0, "")
    return replace(
        now,
        told=known.told,
        known=there.digest,
        there=known.there,
        most=known.most,
        kept=known.kept,
    )


def _written_anew(
    file: LocalDeletions, known: DeletionsSight, size: int, content: bytes
) -> DeletionsSight:
    """A deletion file that does not begin as it did, or is shorter: a database may compact it.

    What it said holds at the receiver. What it says now is told behind that, from the begin, for
    nobody knows what of it is new. So none of it is later than the first that was seen of it: what
    was written between may be written again, and not be deleted.
    """
    there = known.at_receiver or KnownRecords(0, "")
    floor = min(floor for _, floor in known.marks)
    uncut = known.uncut
    if uncut is None and size < known.size:
        uncut = SeenRecords(known.size, known.digest, known.marks)
    return DeletionsSight(
        file.identity,
        size,
        _digest(content[:size]),
        ((size, floor),),
        known=there.digest,
        there=there.size,
        most=max(known.most, known.size) if there.size else 0,
        kept=0,
        uncut=uncut,
    )


def as_known(sight: DeletionsSight | None, known: KnownRecords | None) -> DeletionsSight:
    """A deletion file as it is here, of which the receiver has something, or nothing."""
    if known is None:
        assert sight is not None
        return replace(sight, told=0, known="", there=0, kept=0)
    size, digest = known
    if sight is None:
        return DeletionsSight((0, 0, 0), size, digest, ((size, 0),), told=size, known=digest)
    if sight.at_receiver == known:
        return sight
    if (sight.size, sight.digest) == known:
        return replace(sight, told=size, known=digest, there=0, kept=-1)
    # It never takes anything back: while it has no less, it has all that it was told.
    is_more = size >= sight.there if sight.there else size > sight.size
    told = sight.told if sight.told == sight.size and is_more else 0
    kept = sight.kept if told else 0
    return replace(sight, told=told, known=digest, there=size, kept=kept)


def kept_marks(
    file: LocalDeletions, sight: DeletionsSight, told: Container[int], *, applies: bool
) -> int:
    """How many marks are told as not to be applied, of those that end among some bytes."""
    let = {end: is_applied for end, _, is_applied in file.segments}
    return sum(end in told and not (applies and let.get(end, True)) for end, _ in sight.marks)


def _digest(content: bytes) -> str:
    return xxh3_128(content).hex()
