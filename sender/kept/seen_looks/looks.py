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
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from common.listed import parse_deletions
from common.names import FilePath
from sender.kept.seen_looks.deletions_seen import as_known, deletions_of_look, kept_marks
from sender.kept.seen_looks.deletions_sight import LONGEST_PART, DeletionsSight
from sender.kept.seen_looks.look_sights import (
    earlier_looks,
    missing_since,
    out_of_sight,
    sights_of_look,
)
from sender.kept.seen_looks.looks_state import LOOKS_VERSION, LooksState
from sender.kept.seen_looks.mounted_places import (
    misplaced,
    places_of_look,
    with_unknown,
    without_unknown,
)
from sender.kept.seen_looks.rival_deletions import without_rivals
from sender.kept.seen_looks.sights import Sights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from common.durable import Tree
    from sender.select.entry import Entry
    from sender.select.found import LocalDeletions, LocalFile, Scan, TimePartition, Waiting

__all__ = ["EdgeLook", "Looks"]

_FILE = "looks.state"
_HOLDS = "what it said still holds at the receiver"


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
        missing = dict(missing_since(self.before, self.number, self.scan, entries, ()))
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
                forms[form] = as_known(forms.get(form), known.get(form))
            if forms:
                found[path] = forms
        return replace(self, after=replace(self.after, deletions=found))

    def parts(self, file: LocalDeletions) -> int:
        """In how many parts a deletion file is told from its begin, at most."""
        sight = self.sight(file)
        # Whole records do not fill a part, but two parts behind each other are more than one.
        return 0 if sight is None else len(sight.marks) + 2 * sight.size // LONGEST_PART

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
            now = kept_marks(file, sight, range(1, sight.told + 1), applies=applies)
            if sight.kept < 0 or now < sight.kept:
                return 0
        return sight.told

    def kept_of(self, file: LocalDeletions, begin: int, end: int, *, applies: bool) -> int:
        """`DeletionsSight.kept`, once these bytes of a deletion file are told."""
        sight = self.after.deletions[file.path.text][file.form]
        if begin and sight.kept < 0:
            return -1
        before = sight.kept if begin else 0
        return before + kept_marks(file, sight, range(begin + 1, end + 1), applies=applies)

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
        scan = misplaced(again, self.after.places, told)
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
        if found.version == LOOKS_VERSION:
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
        places = places_of_look(before.places, scan, entries)
        if restored:
            places = without_unknown(places)
        elif self.forgot and number:
            places = with_unknown(places, scan, entries)
        scan = misplaced(without_rivals(scan, read), places, entries)
        if not number:
            return EdgeLook(0, scan, before, replace(before, places=places))
        deletions, unread = deletions_of_look(before, scan, entries, read, md5)
        scan = scan.waiting_for(unread)
        gone = [each for each in last_copies if each.path not in scan.files]
        earlier, torn = earlier_looks(before, number, scan, entries)
        after = LooksState(
            last=number,
            earlier=earlier,
            torn=torn,
            sights=Sights(
                chain(
                    out_of_sight(before, scan, entries),
                    sights_of_look(before, number, scan, entries, gone, time.time()),
                )
            ),
            missing=dict(missing_since(before, number, scan, entries, gone)),
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
