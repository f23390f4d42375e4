"""Looks: what was seen together at this edge, and when it was seen first.

    <schema dir>/sync/<host>_<port>/looks.state     zlib of one JSON object, `LooksState`

A look is one scan, with a number that the receiver gives. Files that one look had together answered
the database's queries together; the receiver ranks by that. So it is told of each file the first
look that had it, closed or not, the first that had it closed, and, when it is gone, the last one.

The state is written once a round, after the scan and before anything is told of it: a look that was
not written never happened. Losing it loses no data: what is here is then seen for the first time.
"""

from __future__ import annotations

import time
import zlib
from itertools import chain
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from common.decoders import from_json
from common.digests import xxh3_128
from common.listed import KnownRecords, parse_deletions
from common.names import FilePath
from common.tsfile.deletion_records import whole_records
from common.tsfile.primitives import Malformed
from sender.kept.rival_deletions import without_rivals
from sender.kept.sights import Sight, Sights
from sender.select.found import Scan, Unreadable, Why
from sender.select.listed_table import unsettled
from sender.select.path_table import lacking, one_of_each_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from common.durable import Tree
    from sender.select.entry import Entry
    from sender.select.found import LocalDeletions, LocalFile, TimePartition, Waiting

__all__ = ["LONGEST_PART", "DeletionsSight", "EdgeLook", "Looks", "LooksState"]

_FILE = "looks.state"
_VERSION = 1
LONGEST_PART: Final = 256 << 10
"""Bytes of a part of a deletion file, but for a single record that is longer."""
_HOLDS = "what it said still holds at the receiver"


class SeenRecords(msgspec.Struct, frozen=True, array_like=True):
    """What was seen of a deletion file before it was cut; see `DeletionsSight`."""

    size: int
    digest: str
    marks: tuple[tuple[int, int], ...]


class DeletionsSight(msgspec.Struct, frozen=True, array_like=True):
    """What was seen of a deletion file.

    Attributes:
        identity: (size, mtime_ns, inode) of it.
        size: bytes of its whole records.
        digest: xxh3-128 (hex) of these.
        marks: (bytes, look): up to there, that look is the last one that could have seen what it
            did not see; 0 for none.
        told: bytes that are committed at the receiver.
        known: xxh3-128 (hex) of what the receiver has; empty where an earlier version told it.
        there: bytes that the receiver has, where these are others than what was told of this file:
            it was written anew, or its content has another name with a deletion file of its own.
        most: bytes that it had when it was told before it was written anew, or cut.
        kept: of how many marks it was told that readers are not to apply them; -1 where that is not
            known, as of what an earlier version told.
        uncut: what was seen of it before it was cut, while it has less: it may be whole again.
    """

    identity: tuple[int, int, int]
    size: int
    digest: str
    marks: tuple[tuple[int, int], ...]
    told: int = 0
    known: str = ""
    there: int = 0
    most: int = 0
    kept: int = -1
    uncut: SeenRecords | None = None

    @property
    def at_receiver(self) -> KnownRecords | None:
        """What the receiver has of it, None for nothing."""
        if self.there:
            return KnownRecords(self.there, self.known)
        if not self.told:
            return None
        whole = self.digest if self.told == self.size else ""
        return KnownRecords(self.told, self.known or whole)


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

    version: int = _VERSION
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


class EdgeLook(msgspec.Struct, frozen=True):
    """One look, as a round goes by it.

    Attributes:
        number: of it; 0 for a receiver that knows no looks.
        scan: what it saw; what lies on another file system than it did counts as not looked at.
        before: what was remembered.
        after: what is to be remembered, before anything is told.
    """

    number: int
    scan: Scan
    before: LooksState
    after: LooksState

    def first(self, path: FilePath) -> int:
        """The first look that had a file that is sent."""
        sight = self.after.sights.get(path.text)
        return self.number if sight is None else sight.first

    def closed(self, path: FilePath) -> int:
        """The first look that had it closed."""
        sight = self.after.sights.get(path.text)
        return self.number if sight is None or not sight.closed else sight.closed

    def waits_since(self, file: Waiting) -> float:
        """When a look first saw a file wait, seconds since the epoch; 0 where none is known."""
        sight = self.after.sights.get(file.text)
        return 0.0 if sight is None else sight.since

    def last_of_copy(self, file: LocalFile) -> int:
        """The last look that had a file that is sent, and is gone but for a link; 0 of others.

        Where its partition was not looked at whole it may still be there.
        """
        gone = self.scan.is_gone(file.path, file.data_dir)
        return self.after.missing.get(file.path.text, 0) if gone else 0

    def last(self, path: FilePath) -> int:
        """The last look that had a file that is gone."""
        if not self.number:
            return 0
        known = self.before.missing.get(path.text) or self.before.last_of(path.directory)
        return known or self.number - 1

    def sight(self, file: LocalDeletions) -> DeletionsSight | None:
        """What is known of a deletion file; None where it could not be read."""
        return self.after.deletions.get(file.path.text, {}).get(file.form)

    def knowing(self, entries: Mapping[FilePath, Entry]) -> EdgeLook:
        """This look for a list that was found only after it: what of it was not seen is missing."""
        if not self.number:
            return self
        missing = dict(_missing_since(self.before, self.number, self.scan, entries, ()))
        after = replace(self.after, missing={**missing, **self.after.missing})
        return replace(self, after=after)

    def told_as(self, there: Mapping[str, str]) -> EdgeLook:
        """The same, where what is told of deletion files is what the receiver has of them.

        What it has and is not here any more holds: a deletion file that vanished, or shrank, is not
        withdrawn.

        Args:
            there: of each path that is loaded there, what is known: `common.listed`.
        """
        found: dict[str, dict[str, DeletionsSight]] = {}
        for path in {**self.after.deletions, **there}:
            forms = dict(self.after.deletions.get(path, {}))
            known = parse_deletions(there.get(path, ""))
            for form in {**forms, **known}:
                forms[form] = _as_known(forms.get(form), known.get(form))
            if forms:
                found[path] = forms
        return replace(self, after=replace(self.after, deletions=found))

    def parts(self, file: LocalDeletions) -> int:
        """In how many parts a deletion file is told from its begin, at most."""
        sight = self.sight(file)
        return 0 if sight is None else len(sight.marks) + sight.size // LONGEST_PART

    def due(self, *, applies: bool) -> list[LocalDeletions]:
        """Deletion files of which the receiver does not have all, or only keeps what it may apply.

        Args:
            applies: whether readers are to leave out what is deleted.
        """
        return [
            file
            for file in self.scan.deletions
            if self.number
            and (sight := self.sight(file)) is not None
            and self.begin(file, applies=applies) < sight.size
        ]

    def begin(self, file: LocalDeletions, *, applies: bool) -> int:
        """From which byte on a deletion file that could be read is told.

        From its begin, where something was told as not to be applied, and now it is; or may be.
        """
        sight = self.after.deletions[file.path.text][file.form]
        if applies and sight.told and sight.kept:
            now = _kept(file, sight, range(1, sight.told + 1), applies=applies)
            if sight.kept < 0 or now < sight.kept:
                return 0
        return sight.told

    def kept_of(self, file: LocalDeletions, begin: int, end: int, *, applies: bool) -> int:
        """`DeletionsSight.kept`, once these bytes of a deletion file are told."""
        sight = self.after.deletions[file.path.text][file.form]
        if begin and sight.kept < 0:
            return -1
        before = sight.kept if begin else 0
        return before + _kept(file, sight, range(begin + 1, end + 1), applies=applies)

    @property
    def kept_deletions(self) -> list[tuple[FilePath, str]]:
        """TsFiles of which less is deleted here than the receiver was told, and why."""
        told = {
            (path, form): max(sight.size, sight.most)
            for path, forms in self.after.deletions.items()
            for form, sight in forms.items()
            if sight.told or sight.there
        }
        for file in self.scan.deletions if told else ():
            at = (file.path.text, file.form)
            if at in told and file.size >= told[at]:
                del told[at]
        here = {(file.path.text, file.form) for file in self.scan.deletions} if told else ()
        found = []
        for path, form in sorted(told):
            parsed = FilePath.parse(path)
            if parsed in self.scan.files or parsed in self.scan.others:
                what = "shrank" if (path, form) in here else "vanished"
                found.append((parsed, f"its deletion file {what}; {_HOLDS}"))
        return found

    def not_gone(self, again: Scan, told: Mapping[FilePath, Entry]) -> dict[TimePartition, str]:
        """Partitions of which a file that is told as gone is not proved so, and why.

        Args:
            again: another scan, of the partitions of these files at least.
            told: the files, as they are listed.
        """
        scan = _misplaced(again, self.after.places, told)
        return {
            path.group: scan.why_not_whole(path.group) or f"{path} may be there"
            for path, entry in told.items()
            if not scan.is_gone(path, entry.data_dir)
        }


class Looks:
    """The remembered looks of one receiver.

    Attributes:
        now: what is remembered.
        problem: why the file could not be used; None if it could, or was not there.
        forgot: whether nothing was remembered, as before the first look.
    """

    def __init__(self, sync: Tree, endpoint: str) -> None:
        self._tree = sync
        self._rel = f"{endpoint}/{_FILE}"
        self.now = LooksState()
        self.problem: str | None = None
        self.forgot = True

    @classmethod
    def open(cls, sync: Tree, endpoint: str) -> Looks:
        """Read what is remembered.

        Args:
            sync: `<schema dir>/sync`; stays the caller's to close.
            endpoint: `<host>_<port>`.
        """
        looks = cls(sync, endpoint)
        try:
            found = LooksState.read(zlib.decompress(sync.read(looks._rel)))
        except FileNotFoundError:
            return looks
        except (msgspec.MsgspecError, UnicodeDecodeError, zlib.error) as error:
            looks.problem = str(error)
            return looks
        if found.version == _VERSION:
            looks.now, looks.forgot = found, False
        else:
            looks.problem = f"version {found.version} is not known here"
        return looks

    def take(
        self,
        number: int,
        scan: Scan,
        entries: Mapping[FilePath, Entry],
        last_copies: Sequence[LocalFile] = (),
        read: Callable[[LocalDeletions], bytes | None] = lambda file: None,
        md5: Callable[[LocalFile], str | None] = lambda file: None,
        *,
        restored: bool = False,
    ) -> EdgeLook:
        """Make a look of a scan; nothing is written.

        Args:
            number: that the receiver gave; 0 if it gives none. One that is not behind the last is
                of another time than that: all is seen for the first time.
            scan: of all local files.
            entries: the list of loaded files.
            last_copies: files that live on only as links, and are still to be sent.
            read: a deletion file as it is; None where it cannot be read.
            md5: of a closed file as it is, in hex; None where it cannot be read.
            restored: an operator says that all was restored from a copy: no file is as it was, and
                what is missing is only retired.
        """
        before = self.now
        if 0 < number <= before.last:
            before = LooksState(places=before.places)
        places = _places(before.places, scan, entries)
        if restored:
            places = _without_unknown(places)
        elif self.forgot and number:
            places = _with_unknown(places, scan, entries)
        scan = _misplaced(without_rivals(scan, read), places, entries)
        if not number:
            return EdgeLook(0, scan, before, replace(before, places=places))
        deletions, unread = _deletions(before, scan, entries, read, md5)
        scan = scan.waiting_for(unread)
        gone = [each for each in last_copies if each.path not in scan.files]
        earlier, torn = _earlier(before, number, scan, entries)
        after = LooksState(
            last=number,
            earlier=earlier,
            torn=torn,
            sights=Sights(
                chain(
                    _out_of_sight(before, scan, entries),
                    _sights(before, number, scan, entries, gone, time.time()),
                )
            ),
            missing=dict(_missing_since(before, number, scan, entries, gone)),
            deletions=deletions,
            unread={path.text: before.floor_of_deletions(path) for path in unread},
            places=places,
        )
        return EdgeLook(number, scan, before, after)

    def begin_anew(self) -> None:
        """See all for the first time in the next look, as after a restore; nothing is written."""
        self.now = LooksState(places=self.now.places)

    def record(self, look: EdgeLook) -> None:
        """Remember a look: on disk before this returns."""
        self._write(look.after)

    def told(self, files: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        """Remember how much of deletion files is committed.

        Args:
            files: (path, form) -> bytes, and `DeletionsSight.kept`.
        """
        deletions = {path: dict(forms) for path, forms in self.now.deletions.items()}
        for (path, form), (size, kept) in files.items():
            sight = deletions.get(path, {}).get(form)
            if sight is not None:
                known = sight.digest if size == sight.size and not sight.there else sight.known
                deletions[path][form] = replace(sight, told=size, known=known, kept=kept)
        self._write(replace(self.now, deletions=deletions))

    def _write(self, state: LooksState) -> None:
        if state == self.now and self.problem is None:
            return
        self._tree.make_dirs(self._rel.rpartition("/")[0])
        squeeze = zlib.compressobj(level=1)
        content = b"".join(map(squeeze.compress, state.pieces())) + squeeze.flush()
        self._tree.write_atomic(self._rel, content)
        self.now, self.problem, self.forgot = state, None, False


def _sights(
    before: LooksState,
    number: int,
    scan: Scan,
    entries: Mapping[FilePath, Entry],
    copies: Sequence[LocalFile],
    now: float,
) -> Iterator[tuple[str, Sight]]:
    """What is here and not on the list as it is: last copies and closed files, then open ones.

    A partition in motion may show what a compaction made beside what it was made of, which the
    database never had together: the next look that sees it at rest is the first one that had it.
    """
    here = ((each, entries.get(each.path)) for each in copies)
    for file, entry in chain(here, unsettled(scan.files, entries)):
        path = file.path
        if entry is None or not entry.is_of(file):
            known = _known(before, path.text, file.inode)
            if known is None and path.is_product and path.group in scan.changing:
                continue
            first = known.first if known else number
            closed = (known.closed if known else 0) or number
            yield path.text, Sight(file.inode, first, closed)
    for waiting in scan.waiting:
        if waiting.group is not None and waiting.inode and waiting.why is not Why.REFUSED:
            known = _known(before, waiting.text, waiting.inode)
            if known is not None or not (waiting.is_product and waiting.group in scan.changing):
                seen = known or Sight(waiting.inode, number, 0)
                yield waiting.text, seen if seen.since else replace(seen, since=now)


def _out_of_sight(
    before: LooksState, scan: Scan, entries: Mapping[FilePath, Entry]
) -> Iterator[tuple[str, Sight]]:
    """What was seen, is not on the list, and lies where this look did not get to."""
    if not (scan.unmounted or scan.unreadable):
        return
    for path, sight in before.sights.items():
        if scan.why_not_listed(path.rpartition("/")[0]) and FilePath.parse(path) not in entries:
            yield path, sight


def _missing_since(
    before: LooksState,
    number: int,
    scan: Scan,
    entries: Mapping[FilePath, Entry],
    copies: Sequence[LocalFile],
) -> Iterator[tuple[str, int]]:
    """The last look that had each file that is not seen now, while its end is not told.

    Its end may be held for long; looks that go by meanwhile do not have it. Where a data directory
    is away, its list is, too. Without a memory it is known that this look does not have it.
    """
    if scan.unmounted:
        for text, last in before.missing.items():
            path = FilePath.parse(text)
            if not (path in entries or path in scan.files or path in scan.others):
                yield text, last
    for each in copies:
        known = before.missing.get(each.path.text)
        yield each.path.text, known or before.last_of(each.path.directory) or number - 1
    for path, _ in lacking(entries, scan.files):
        if path in scan.others:
            continue
        known = before.missing.get(path.text)
        if known is not None:
            yield path.text, known
        elif scan.why_not_listed(path.directory) is None:
            yield path.text, before.last_of(path.directory) or number - 1


def _known(before: LooksState, path: str, inode: int) -> Sight | None:
    found = before.sights.get(path)
    return found if found is not None and found.inode == inode else None


# -- what was not reached ------------------------------------------------------------------------


def _earlier(
    before: LooksState, number: int, scan: Scan, entries: Mapping[FilePath, Entry]
) -> tuple[dict[str, int], dict[str, int]]:
    """`LooksState.earlier` and `torn` of a look."""
    if not (scan.unmounted or scan.unreadable or scan.moving or scan.changing):
        return {}, {}
    directories: dict[str, FilePath] = {}
    remembered = map(FilePath.parse, (*before.missing, *before.sights, *before.deletions))
    seen = map(one_of_each_directory, (entries, scan.files, scan.others, remembered))
    for path in chain.from_iterable(seen):
        directories.setdefault(path.directory, path)
    earlier, torn = {}, {}
    for directory, path in directories.items():
        listed = scan.why_not_listed(directory) is None
        earlier[directory] = number if listed else before.last_of(directory)
        at_rest = path.group not in scan.changing and scan.why_not_looked_at(directory) is None
        torn[directory] = number if at_rest else before.floor_of(directory)
    if not (scan.unmounted or scan.unreadable):
        return {}, {each: look for each, look in torn.items() if look != number}
    # What lies there is not seen, and where a data directory is away, its list is not read.
    for directory in (before.earlier.keys() | before.torn.keys() | {""}) - directories.keys():
        earlier[directory] = before.last_of(directory)
        torn[directory] = before.floor_of(directory)
    return earlier, torn


# -- deletion files ------------------------------------------------------------------------------


def _deletions(
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


def _as_known(sight: DeletionsSight | None, known: KnownRecords | None) -> DeletionsSight:
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


def _kept(
    file: LocalDeletions, sight: DeletionsSight, told: Container[int], *, applies: bool
) -> int:
    """How many marks are told as not to be applied, of those that end among some bytes."""
    let = {end: is_applied for end, _, is_applied in file.segments}
    return sum(end in told and not (applies and let.get(end, True)) for end, _ in sight.marks)


def _digest(content: bytes) -> str:
    return xxh3_128(content).hex()


# -- file systems --------------------------------------------------------------------------------

_Places = dict[str, dict[str, str]]


def _places(before: _Places, scan: Scan, entries: Mapping[FilePath, Entry]) -> _Places:
    """On which mounts files are listed: those of before, and what is proved to be so now.

    A directory that is on another mount than it was proves that it is the same one by a file that
    is as it was listed, or that all that was listed in it is there.
    """
    after = {data_dir: dict(places) for data_dir, places in before.items()}
    listed: dict[tuple[Path, str], list[Entry]] = {each: [] for each in _moved(before, scan)}
    for path, entry in entries.items() if listed else ():
        if (at := (entry.data_dir, path.directory)) in listed:
            listed[at].append(entry)
    for (data_dir, directory), several in listed.items():
        now = scan.mounts[data_dir].of(directory)
        known = after.get(str(data_dir), {}).get(directory, "")
        if _is_there(scan, data_dir, several, missed=known.partition(" ")[2]):
            places = after.setdefault(str(data_dir), {})
            if now:
                places[directory] = now
            else:
                places.pop(directory, None)
    return {data_dir: places for data_dir, places in after.items() if places}


def _moved(before: _Places, scan: Scan) -> Iterator[tuple[Path, str]]:
    """Directories of TsFiles that are on another mount than they were."""
    for data_dir, mounts in scan.mounts.items():
        known = before.get(str(data_dir), {})
        for directory in known.keys() | mounts.others.keys():
            if directory.count("/") == _DEPTH and known.get(directory, "") != mounts.of(directory):
                yield data_dir, directory


def _with_unknown(places: _Places, scan: Scan, entries: Mapping[FilePath, Entry]) -> _Places:
    """Places, where it is not remembered on which mount any was.

    Of a directory that has no file as it was listed nobody knows whether what is missing in it is
    gone, or lies on a mount that is away, with what was left beneath that in sight. The first of
    what is missing says so, once it is back.
    """
    known = {(each.data_dir, path.directory) for path, each in entries.items() if each.mtime_ns}
    here: set[tuple[Path, str]] = set()
    for path, file in scan.files.items():
        at, entry = (file.data_dir, path.directory), entries.get(path)
        if at not in known or (entry is not None and entry.identity == file.identity):
            here.add(at)
    waiting = {(each.data_dir, each.text): each.inode for each in scan.waiting}
    here |= {at for data_dir, text in waiting if (at := _place(data_dir, text)) not in known}
    for path, entry in entries.items() if waiting else ():
        if entry.inode and waiting.get((entry.data_dir, path.text)) == entry.inode:
            here.add((entry.data_dir, path.directory))
    after = {data_dir: dict(several) for data_dir, several in places.items()}
    for path, entry in entries.items():
        if (entry.data_dir, path.directory) not in here and scan.is_missing(path):
            there = after.setdefault(str(entry.data_dir), {})
            if not _is_unknown(there.get(path.directory, "")):
                there[path.directory] = f"{_UNKNOWN} {path.name}"
    return after


def _without_unknown(places: _Places) -> _Places:
    return {
        data_dir: {at: each for at, each in several.items() if not _is_unknown(each)}
        for data_dir, several in places.items()
    }


def _place(data_dir: Path, text: str) -> tuple[Path, str]:
    return data_dir, text.rpartition("/")[0]


def _is_unknown(place: str) -> bool:
    return place.startswith(f"{_UNKNOWN} ") or place == _UNKNOWN


_UNKNOWN = "unknown"
_DEPTH = 3
"""Slashes in `<kind>/<storage group>/<virtual group>/<partition>`."""


def _is_there(scan: Scan, data_dir: Path, listed: Iterable[Entry], *, missed: str = "") -> bool:
    """Whether what was listed in a directory is there, as far as one file can prove it.

    Args:
        scan: of all local files.
        data_dir: of the directory.
        listed: what is listed in it.
        missed: the file that proves it where others may have come since; any one, if empty.
    """
    here = [(entry, scan.files.get(entry.path)) for entry in listed]
    for entry, file in here:
        if file is not None and file.identity == entry.identity and missed in ("", entry.path.name):
            return True
    return all(file is not None and file.data_dir == data_dir for _, file in here)


def _misplaced(scan: Scan, places: _Places, entries: Mapping[FilePath, Entry]) -> Scan:
    """The scan, where partitions of missing files count as not looked at whole if need be."""
    wrong: dict[TimePartition, str] = {}
    away: dict[tuple[Path, str], Unreadable] = {}
    for path, entry in _missing(scan, entries):
        if entry.data_dir in scan.mounts:
            known = places.get(str(entry.data_dir), {}).get(path.directory, "")
            if scan.mounts[entry.data_dir].of(path.directory) != known:
                why = _FORGOTTEN if _is_unknown(known) else _ELSEWHERE
                wrong[path.group] = f"{entry.data_dir}/{path.directory} {why}; {_FOR_GOOD}"
                found = Unreadable(entry.data_dir, path.directory, f"{why}; {_FOR_GOOD}")
                away[entry.data_dir, path.directory] = found
    if not wrong:
        return scan
    changing = {**wrong, **scan.changing}
    return replace(scan, changing=changing, misplaced=tuple(away.values()), _wholes={})


_ELSEWHERE = "is not on the file system that its files were listed on"
_FORGOTTEN = (
    "has no file as it was listed, and looks.state, which knew whether it was mounted, was lost"
)
_FOR_GOOD = "if they are gone for good: tsferry-sender resync"


def _missing(scan: Scan, entries: Mapping[FilePath, Entry]) -> Iterable[tuple[FilePath, Entry]]:
    return ((path, entry) for path, entry in lacking(entries, scan.files) if scan.is_missing(path))
