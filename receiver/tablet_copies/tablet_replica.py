"""One replica of a tablet: its files in the directories of a node, and which of them count.

A directory that is lost takes with it what lay there, and nothing of the others: each has a journal
of its own (`replica_directory`). A file counts once it is whole, has its name, and its line is in
the journal.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from common import crash
from common.errors import (
    DamagedError,
    DigestError,
    GoneError,
    NoSpaceError,
    NotFoundError,
    ProtocolError,
    TsferryError,
)
from common.names import FilePath
from receiver.heartbeats.node_wire import ReportedTablet
from receiver.tablet_copies.copies_wire import TableAttributes, digest_of_list, sum_of_file
from receiver.tablet_copies.copy_journal import JournalLine
from receiver.tablet_copies.replica_directory import ReplicaDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from common.durable import Tree
    from receiver.heartbeats.node_wire import TabletState
    from receiver.tablet_copies.copies_wire import CopiedFile, CopyOrder
    from receiver.tablet_copies.copy_journal import JournalState

__all__ = ["TabletReplica", "check_file"]


def check_file(order: CopyOrder, file: CopiedFile) -> None:
    """See that a file may lie in a tablet.

    Raises:
        NameRefusedError: its name is none.
        ProtocolError: it belongs to another table, or to other partitions.
    """
    path = FilePath.parse(file.physical)
    if path.sg != order.table or not order.begin <= path.partition < order.end:
        raise ProtocolError(f"{file.physical} is no file of tablet {order.tablet}")


class TabletReplica:
    """A replica; any thread may call.

    Attributes:
        commit: it has all files that were in the tablet then and still are; 0 for never in this
            life.
        life: of the master whose commit that is.
        is_behind: files of it are known to lack.
        losses: how often files were found not to be here any more, in this life.
    """

    def __init__(
        self,
        tablet: str,
        trees: Sequence[Tree],
        *,
        lost: Callable[[], None] = lambda: None,
        rotted: Callable[[int], None] = lambda number: None,
    ) -> None:
        """Nothing is touched yet.

        Args:
            tablet: its id.
            trees: the directories of the node.
            lost: called when a file is found not to be here any more; no lock is held.
            rotted: called with the number of a directory in which a file has rotted, likewise.
        """
        self.tablet = tablet
        self.commit, self.life = 0, ""
        self.is_behind = False
        self.losses = 0
        self._lost = lost
        self._rotted = rotted
        self._trees = trees
        self._lock = threading.RLock()
        self._directories: dict[int, ReplicaDirectory] = {}
        self._where: dict[str, int] = {}
        self._missing: set[str] = set()
        self._size = self._sum = self._newest = 0

    @property
    def order(self) -> CopyOrder | None:
        """What it was made by, the newest of it; None where no directory has one."""
        with self._lock:
            made = [each.made for each in self._states() if each.made is not None]
        return max(made, key=lambda each: each.generation, default=None)

    @property
    def generation(self) -> int:
        """Of the replica, 0 where it is not there."""
        order = self.order
        return 0 if order is None else order.generation

    @property
    def is_there(self) -> bool:
        """Whether anything of it is here: one whose first line is damaged has no generation."""
        with self._lock:
            return bool(self._directories)

    @property
    def attributes(self) -> TableAttributes:
        """What is known of its table: of the highest version that any directory has."""
        with self._lock:
            known = [each.attributes for each in self._states()]
        return max(known, key=lambda each: each.version, default=TableAttributes())

    # -- life --------------------------------------------------------------------------------

    def open(self) -> None:
        """Take what an earlier life left: what was going goes, what was coming comes anew."""
        with self._lock:
            for number in range(len(self._trees)):
                directory = self._directory(number)
                if directory.open():
                    self._directories[number] = directory
            # One whose first line was damaged is made anew by its master, and keeps its files.
            lost = any(it.files or it.rotten or it.is_unlisted for it in self._states())
            if self._directories and self.order is None and not lost:  # cut off at its first line
                self._remove_all()
                return
            for number, directory in list(self._directories.items()):
                state = directory.journal
                # What goes may have come again, by a line that is damaged: a list tells.
                if not state.is_unlisted:
                    if state.dropped and state.dropped >= self.generation:
                        self._remove_directory(number)
                        continue
                    for name in sorted(state.going):
                        directory.unlink(name)
                state.going.clear()
                self._missing |= state.rotten.keys()
                for name, file in state.files.items():
                    self._find(number, name, file)
            for number, directory in self._directories.items():
                rotten = directory.journal.rotten.keys()
                for name in rotten & self._where.keys():  # whole elsewhere
                    with suppress(OSError, TsferryError):
                        self._end(number, name)
            self._missing -= self._where.keys()
            self.is_behind = bool(self._missing)

    def _find(self, number: int, name: str, file: CopiedFile) -> None:
        self._newest = max(self._newest, file.commit)
        if self._directories[number].size(name) != file.size:
            self._missing.add(name)
        else:
            self._put(number, file)

    def make(self, order: CopyOrder, number: int) -> None:
        """Be there, with this generation or the higher one that it has.

        Args:
            order: what is to be there.
            number: of the directory, where it is not there yet.
        """
        with self._lock:
            if self.generation >= order.generation:
                return
            for each in [*self._directories] or [number]:
                self._begin(each, order)
        crash.point("copies.made")

    def know(self, attributes: TableAttributes) -> bool:
        """Know this of the table; whether it is new: nothing goes back to a lower version."""
        with self._lock:
            if attributes.version <= self.attributes.version or not self._directories:
                return False
            for each in self._directories.values():
                each.note(JournalLine(known=attributes))
                crash.point("copies.known")
        return True

    def _begin(self, number: int, order: CopyOrder) -> None:
        if order.attributes.version < self.attributes.version:
            order = msgspec.structs.replace(order, attributes=self.attributes)
        directory = self._directory(number)
        directory.begin(order)
        self._directories[number] = directory

    def drop(self, generation: int) -> bool:
        """Have nothing any more; whether that is so.

        One of another generation stays: the order is an old one, or is for another replica.
        """
        with self._lock:
            if not self._directories:
                return True
            if self.generation != generation:
                return False
            for each in self._directories.values():
                each.note(JournalLine(dropped=generation))
                crash.point("copies.drop_noted")
            # If not all of it can be removed, what is made here next has none of it.
            self.commit, self.is_behind, self.losses = 0, True, self.losses + 1
            for name in list(self._where):
                self._take_out(name)
            self._remove_all()
        return True

    def _remove_all(self) -> None:
        for number in list(self._directories):
            self._remove_directory(number)

    def _remove_directory(self, number: int) -> None:
        self._directories[number].remove()
        for name in [name for name, at in self._where.items() if at == number]:
            self._take_out(name)
        del self._directories[number]
        self.commit = 0
        crash.point("copies.dropped")

    # -- files -------------------------------------------------------------------------------

    def files(self) -> dict[str, CopiedFile]:
        """What it has, by physical name."""
        with self._lock:
            return {name: self._file(number, name) for name, number in self._where.items()}

    def size(self) -> int:
        """Bytes of its files."""
        return self._size

    def digest(self) -> str:
        """Of the list of its files; see `digest_of_list`."""
        return digest_of_list(self._sum)

    def _put(self, number: int, file: CopiedFile) -> None:
        """A file counts, in this directory and in no other."""
        self._take_out(file.physical)
        self._where[file.physical] = number
        self._newest = max(self._newest, file.commit)
        self._missing.discard(file.physical)
        self._size += file.size
        self._sum += sum_of_file(file)

    def _take_out(self, name: str) -> None:
        """A file does not count any more, if it did; its line is still there."""
        number = self._where.pop(name, None)
        if number is not None:
            file = self._file(number, name)
            self._size -= file.size
            self._sum -= sum_of_file(file)

    def held(self) -> ReportedTablet:
        """What is reported of it."""
        with self._lock:
            state: TabletState = "running" if self.commit and not self.is_behind else "copying"
            return ReportedTablet(
                id=self.tablet,
                generation=self.generation,
                state="damaged" if self._missing else state,
                version=self.attributes.version,
                files=len(self._where),
                size=self.size(),
                digest=self.digest(),
            )

    def receive(
        self, number: int, file: CopiedFile, blocks: Iterable[bytes], life: str = ""
    ) -> None:
        """Take a file in; when this returns it is whole, checked, and on the disk.

        Args:
            number: of the directory that it goes to.
            file: what it must be.
            blocks: its bytes.
            life: of the master that lists it.

        Raises:
            DigestError: they are others; nothing is left of them.
            NoSpaceError: the disk is full; nothing is left of them.
            GoneError: the replica was dropped meanwhile.
        """
        order = self.order
        if order is None:
            raise GoneError(f"there is no replica of tablet {self.tablet}")
        check_file(order, file)
        directory = self._directory(number)
        directory.take_whole(file, blocks)
        with self._lock:
            if self.order is None:
                directory.tree.unlink(directory.rel(file.physical))
                raise GoneError(f"tablet {self.tablet} was dropped meanwhile")
            if number not in self._directories:
                self._begin(number, order)
            self._note(number, file, life)

    def take_unnamed(self, file: CopiedFile, life: str = "") -> bool:
        """Take a file in that lies here whole, and no line says so; whether there is one.

        The line was damaged, or cut off.

        Raises:
            GoneError: the replica was dropped meanwhile.
        """
        for number in range(len(self._trees)):
            with self._lock:
                directory = self._directory(number)
                state = directory.journal
                if file.physical in state.files.keys() | state.rotten.keys() | state.going:
                    continue
            if directory.size(file.physical) != file.size:
                continue
            try:
                self.receive(number, file, (), life)
            except (DigestError, NoSpaceError, OSError):
                continue
            return True
        return False

    def adopt(self, number: int, rel: str, file: CopiedFile, life: str = "") -> bool:
        """Take a file in that lies in a directory of the node under another name.

        Args:
            number: of the directory.
            rel: its name there.
            file: what it must be; its bytes are read for that.
            life: of the master that lists it.

        Returns:
            whether it is; else it is gone from where it was.

        Raises:
            GoneError: the replica was dropped meanwhile.
        """
        order = self.order
        if order is None:
            raise GoneError(f"there is no replica of tablet {self.tablet}")
        check_file(order, file)
        directory = self._directory(number)
        directory.move_in(rel, file)
        target = directory.rel(file.physical)
        try:
            self.receive(number, file, (), life)
        except DigestError:
            directory.tree.unlink(target)
            return False
        except GoneError:
            directory.tree.unlink(target)
            raise
        return True

    def _note(self, number: int, file: CopiedFile, life: str) -> None:
        line = JournalLine(file=file, life=life)
        directory = self._directories[number]
        directory.write_line(line)
        crash.point("copies.pull_noted")
        self._take_out(file.physical)
        directory.journal.take(line)
        self._put(number, file)
        for other, each in self._directories.items():
            state = each.journal
            if other != number and file.physical in state.files.keys() | state.rotten.keys():
                # A disk that does not take it has what does not count, until it is there no more.
                with suppress(OSError, TsferryError):
                    self._end(other, file.physical)

    def _end(self, number: int, name: str) -> None:
        """A file goes from a directory; the line first."""
        line, directory = JournalLine(gone=name), self._directories[number]
        directory.write_line(line)
        crash.point("copies.gone_noted")
        if self._where.get(name) == number:
            self._take_out(name)
        directory.journal.take(line)
        directory.unlink(name)
        directory.journal.going.discard(name)
        crash.point("copies.gone")

    def note(self, files: Iterable[CopiedFile], life: str = "") -> None:
        """Keep what is known anew of files that are here; their bytes are the same.

        Args:
            files: as they are listed.
            life: of the master that lists them.
        """
        with self._lock:
            for file in files:
                number = self._where.get(file.physical)
                if number is None:
                    continue
                known = self._file(number, file.physical)
                if (known.size, known.md5) != (file.size, file.md5):
                    raise ProtocolError(f"{file.physical} is listed with other bytes than before")
                if known != file or file.physical in self._directories[number].journal.kept:
                    self._note(number, file, life)

    def remove(self, generation: int, names: Sequence[str]) -> list[str]:
        """Let files go; which have gone. Of another generation nothing does."""
        with self._lock:
            if self.generation != generation:
                return []
            kept = set(self.kept())
            gone = [each for each in names if self._place(each) is not None and each not in kept]
            for name in gone:
                while (number := self._place(name)) is not None:
                    self._end(number, name)
            return gone

    def _place(self, name: str) -> int | None:
        """Number of the directory that a file lies in, or the rotten bytes of it; None for none."""
        found = self._where.get(name)
        if found is not None:
            return found
        directories = self._directories.items()
        return next((at for at, each in directories if name in each.journal.rotten), None)

    def keep(self, names: Iterable[str]) -> None:
        """A master does not know these files: they stay, whatever a master says of them later.

        Until one lists them: then they are known.
        """
        with self._lock:
            for name in names:
                number = self._place(name)
                if number is not None and name not in self._directories[number].journal.kept:
                    self._directories[number].note(JournalLine(kept=name))

    def lives(self, names: Iterable[str]) -> tuple[str, ...]:
        """Of each file the life of the master that listed it; empty where it is not known."""
        with self._lock:
            states = self._states()
            return tuple(
                next((each.lives[name] for each in states if each.lives.get(name)), "")
                for name in names
            )

    def kept(self) -> list[str]:
        """Names of files that a master did not know."""
        with self._lock:
            return sorted(each for state in self._states() for each in state.kept)

    def set_unlisted(self, is_unlisted: bool) -> None:
        """Whether all that is here waits for a list of a master that is trusted."""
        with self._lock:
            if is_unlisted:
                self.commit = 0  # what was complete was so by lists of another one
            for each in self._directories.values():
                if each.journal.is_unlisted is not is_unlisted:
                    each.note(JournalLine(unlisted=is_unlisted))

    @property
    def is_unlisted(self) -> bool:
        """Whether no master that is trusted has listed what is here."""
        with self._lock:
            return any(state.is_unlisted for state in self._states())

    @property
    def why_it_stays(self) -> str:
        """Why it is not dropped by the word of any master, empty if it is."""
        with self._lock:
            if self.is_unlisted:
                return "no master has listed its files since an operator has trusted one again"
            kept = self.kept()
        return f"{len(kept)} files, as {kept[0]}, were not known to a master" if kept else ""

    def lose(self, name: str) -> None:
        """A file is not as it was: it does not count any more, and is to come again."""
        with self._lock:
            if name not in self._where:
                return
            self._miss(name)
        self._lost()

    def _miss(self, name: str) -> None:
        self._take_out(name)
        self._missing.add(name)
        self.is_behind = True
        self.losses += 1

    def rot(self, name: str, file: CopiedFile) -> bool:
        """The bytes of a file were read, and are not those that came, or cannot be read.

        It does not count any more, in a later life neither, and is to come again. The bytes stay
        until then: nobody may have better ones.

        Args:
            name: of the file.
            file: what it was to be when it was read.

        Returns:
            whether that is so still: it may have gone meanwhile.
        """
        with self._lock:
            number = self._where.get(name)
            if number is None or self._file(number, name).md5 != file.md5:
                return False
            self._miss(name)
            line = JournalLine(rotten=name)
            with suppress(OSError, TsferryError):  # a disk that takes no line: it is found again
                self._directories[number].write_line(line)
            self._directories[number].journal.take(line)
        crash.point("copies.rotten_noted")
        self._rotted(number)
        self._lost()
        return True

    def rotten(self) -> dict[str, CopiedFile]:
        """Files whose bytes are not those that came, and what they were to be."""
        with self._lock:
            return {name: file for each in self._states() for name, file in each.rotten.items()}

    def rotten_in(self) -> list[int]:
        """Numbers of the directories in which such files lie."""
        with self._lock:
            return [at for at, each in self._directories.items() if each.journal.rotten]

    @property
    def rotten_count(self) -> int:
        """How many there are of these; no lock is waited for, which a disk that hangs may have."""
        return sum(len(each.rotten) for each in self._states())

    def tree_of(self, name: str) -> Tree | None:
        """The directory that a file lies in, None where it is not here."""
        with self._lock:
            number = self._where.get(name)
        return None if number is None else self._trees[number]

    def completed(self, commit: int, losses: int, life: str = "") -> bool:
        """All files are here that were in the tablet as of a commit, and still are.

        Args:
            commit: of the list that was gone through.
            losses: as they were before that.
            life: of the master that gave it.

        Returns:
            whether that is so: none was found to be gone meanwhile.
        """
        with self._lock:
            if self.losses != losses:
                return False
            self.commit = max(self.commit, commit) if life == self.life else commit
            self.life = life
            self._missing.clear()
            self.is_behind = False
            return True

    def missing(self) -> list[str]:
        """Files that were here once, and are not any more."""
        with self._lock:
            return sorted(self._missing)

    def newest(self) -> int:
        """The newest commit that is known of, by the files and by what was complete."""
        return max(self.commit, self._newest)

    def open_file(self, name: str) -> tuple[int, CopiedFile]:
        """A descriptor of a file, for reading, and what it must be; the caller closes it.

        Raises:
            NotFoundError: it is not here.
            DamagedError: it has not as many bytes as it had. It comes again.
        """
        with self._lock:
            number = self._where.get(name)
            if number is None:
                raise NotFoundError(f"{name!a} is no file of tablet {self.tablet} here")
            directory, file = self._directories[number], self._file(number, name)
        try:
            fd = directory.tree.open_read(directory.rel(name))
        except FileNotFoundError:
            self.lose(name)
            raise NotFoundError(f"{name} is not here any more") from None
        size = os.fstat(fd).st_size
        if size != file.size:
            os.close(fd)
            self.lose(name)
            raise DamagedError(f"{name}: {size} bytes, {file.size} came")
        return fd, file

    # -- where it lies -----------------------------------------------------------------------

    def _directory(self, number: int) -> ReplicaDirectory:
        """A directory of the node, whether the replica has something there or not."""
        return self._directories.get(number) or ReplicaDirectory(self._trees[number], self.tablet)

    def _states(self) -> list[JournalState]:
        return [each.journal for each in list(self._directories.values())]

    def _file(self, number: int, name: str) -> CopiedFile:
        return self._directories[number].journal.files[name]
