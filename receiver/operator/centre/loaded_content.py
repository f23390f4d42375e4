"""Bytes of loaded files, for readers who have neither the directories nor a way into the store.

What is given is a file of the catalogue, or one that is read in place of such files, found by its
physical name and by nothing else: one that readers see, or saw within the history. It comes from
the data directory that has it, or else from the object store, by ranges, as it comes for anybody;
nothing is brought to the disk for it. Whoever reads checks the bytes: a small file by the MD5 of
the catalogue, blocks of a large one by digests that are made here of bytes which had that MD5.

Readers have a part of the server's threads, and no more: files that come go on beside them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.errors import DISK_ERRORS, BusyError, DamagedError, NotFoundError, TsferryError
from receiver.datadirs.disks import AwayError
from receiver.load.placing import tree_of
from receiver.metadata.state.table_rows import FileRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from receiver.config import ReceiverConfig
    from receiver.datadirs.disks import Disks
    from receiver.metadata.engine import Engine
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedOutput
    from receiver.principal import Principal
    from receiver.storage.reading.open_stores import OpenStores
    from receiver.storage.reading.ranged_file import RangedFile

__all__ = ["MOST_CONTENT", "LoadedContent"]

log = logging.getLogger(__name__)

MOST_CONTENT = 8 << 20
"""Bytes of one answer: what a reader of the store asks for at once, too."""
_PART = 4
"""Of the server's threads one in so many reads for readers; half as many wait for that."""
_KEPT = 4 << 20
"""Bytes of digests in memory: those of 256 GiB of files."""
_CACHE = 64 << 20
"""Bytes of blocks of the store in memory."""
_PAUSE = 0.2
"""Seconds until a reader that found all places taken tries again."""


class LoadedContent:
    """Gives pieces of files; any thread may call."""

    def __init__(
        self,
        config: ReceiverConfig,
        engine: Engine,
        disks: Disks,
        bring: Callable[[FileRow], bool] | None = None,
        relay: Callable[[str, int, int], bytes] | None = None,
    ) -> None:
        """Prepare; no store is opened before a file of it is asked for.

        Args:
            config: of the receiver, or of a node, whose store is the one that it reads.
            engine: its metadata.
            disks: its data directories.
            bring: has a file come from a storage node into them; whether it is there then. None
                where there are none.
            relay: so many bytes of a file as a storage node gives them, unchecked: of one that has
                left the disks for nodes, or that the store does not give.
        """
        self._bring = bring
        self._relay = relay
        self._config = config.storage
        self._engine = engine
        self._disks = disks
        at_once = max(1, config.listen.threads // _PART)
        self._reading = threading.Semaphore(at_once)
        self._asking = threading.Semaphore(at_once + at_once // 2)
        self._opening = threading.Lock()
        self._stores: OpenStores | None = None
        self._computing = threading.Lock()
        self._digests: OrderedDict[str, bytes] = OrderedDict()

    def find(self, who: Principal, physical: str) -> FileRow | CompactedOutput:
        """The file of a name.

        Raises:
            ForbiddenError: whoever asks is no reader.
            NotFoundError: readers do not see it, nor did they within the history.
        """
        who.must_read()
        with self._engine.reading() as state:
            row = state.files.get(physical)
            output = None if row is not None else state.compacted_table.output(physical)
        if output is not None:
            return output
        # What hid it is its last change: it was seen at the commit before that.
        if row is None or not (row.visible or row.changed > self._engine.oldest_answerable):
            raise NotFoundError(f"{physical!a} is no file of the catalogue")
        return row

    def read(self, row: FileRow | CompactedOutput, begin: int, length: int) -> bytes:
        """So many bytes at an offset, all within the file.

        Raises:
            NotFoundError: its bytes are in no place that is known here.
            AwayError: they may be in a data directory that is away.
            DamagedError: they are not as many as were loaded.
            ContentChangedError: they are others.
            StoreAwayError, StoreRefusedError: of the store.
            BusyError: others read, as many as may.
        """
        from receiver.storage.stores.object_content import FileContent

        with self._place():
            try:
                fd = self._open(row)
            except (*DISK_ERRORS, OSError) as error:
                return self._at_nodes(row, lambda file: file.read(begin, length), error)
            if fd is None:
                return self._elsewhere(row, lambda file: file.read(begin, length))
            try:
                return FileContent(fd, row.size, row.md5).read(begin, length)
            finally:
                os.close(fd)

    def digests(self, row: FileRow | CompactedOutput) -> bytes:
        """Those of the blocks of a file, packed (`BlockDigests`).

        Raises as `read`.
        """
        with self._computing:
            found = self._digests.get(row.physical)
            if found is not None:
                self._digests.move_to_end(row.physical)
                return found
        with self._place():
            made = self._made_digests(row)
        with self._computing:
            self._digests[row.physical] = made
            while sum(map(len, self._digests.values())) > max(_KEPT, len(made)):
                self._digests.popitem(last=False)
        return made

    def close(self) -> None:
        """Let go of the store."""
        with self._opening:
            if self._stores is not None:
                self._stores.close()

    # -- one step each -----------------------------------------------------------------------

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._asking.acquire(blocking=False):
            raise BusyError("other readers have all places; ask again", retry_after=_PAUSE)
        try:
            with self._reading:
                yield
        finally:
            self._asking.release()

    def _open(self, row: FileRow | CompactedOutput) -> int | None:
        """A descriptor of it; None where no data directory has it."""
        tree = tree_of(self._disks.standing(), row)
        # What has left the disks is read where it is: it would take room that is wanted.
        bring = None if self._has_left(row) else self._bring
        if tree is None and bring is not None and isinstance(row, FileRow):
            tree = tree_of(self._disks.standing(), row) if bring(row) else None
        if tree is None:
            return None
        try:
            fd = tree.open_read(row.physical)
        except FileNotFoundError:
            return None  # it has made room just now
        size = os.fstat(fd).st_size
        if size != row.size:
            os.close(fd)
            raise DamagedError(f"{row.physical}: {size} bytes, {row.size} were loaded")
        return fd

    def _has_left(self, row: FileRow | CompactedOutput) -> bool:
        """Whether a file may be in the store, or at nodes, and in no data directory."""
        if not isinstance(row, FileRow):
            return False
        with self._engine.reading() as state:
            released = row.physical in state.released_table.rows
            stored = state.uploaded_table.parts(row).file
        return (released and self._relay is not None) or (stored and self._config.url is not None)

    def _elsewhere(
        self, row: FileRow | CompactedOutput, reads: Callable[[RangedFile | _Relayed], bytes]
    ) -> bytes:
        """Of a file that is in no data directory: as the store has it, or as a node gives it.

        One that has left the disks for nodes is asked for there first; what the one does not give,
        the other may.
        """

        def of_store() -> bytes:
            with self._stored(row) as file:
                return reads(file)

        relay = self._relay if isinstance(row, FileRow) else None
        if relay is None or not self._has_left(row):
            return of_store()
        of_nodes = _Relayed(relay, row.physical, row.size, row.md5)
        with self._engine.reading() as state:
            released = row.physical in state.released_table.rows
        ways = [lambda: reads(of_nodes), of_store]
        first, second = ways if released else ways[::-1]
        try:
            return first()
        except (TsferryError, OSError) as error:
            where = "storage nodes do" if released else "the object store does"
            told = {"file": row.physical, "error": str(error)}
            log.warning("%s not give a file", where, extra=told)
            try:
                return second()
            except (TsferryError, OSError):
                raise error from None

    def _at_nodes(
        self,
        row: FileRow | CompactedOutput,
        reads: Callable[[_Relayed], bytes],
        problem: TsferryError | OSError,
    ) -> bytes:
        """Of a file that was to come back from a node, and that no disk here takes."""
        if self._bring is None or self._relay is None or not isinstance(row, FileRow):
            raise problem
        try:
            found = reads(_Relayed(self._relay, row.physical, row.size, row.md5))
        except (TsferryError, OSError):
            raise problem from None
        log.warning("not brought here", extra={"file": row.physical, "error": str(problem)})
        return found

    def _stored(self, row: FileRow | CompactedOutput) -> RangedFile:
        # Only here: a receiver without a store does without all of it.
        from receiver.storage.cache.stored_files import place_of
        from receiver.storage.reading.open_stores import OpenStores
        from receiver.storage.reading.stored_place import StoreAddress

        with self._engine.reading() as state:
            table = state.uploaded_table
            uploaded = isinstance(row, FileRow) and table.parts(row).file
            there = table.rows[row.physical] if uploaded else None
        address = StoreAddress.of(self._config)
        if there is None or address is None:
            away = self._disks.away()
            if away:
                raise AwayError(f"{row.physical} cannot be read: {away[0]}", retry_after=60.0)
            where = "and which object store has it is not configured" if there else "nor uploaded"
            raise NotFoundError(f"{row.physical} is in no data directory, {where}")
        with self._opening:
            if self._stores is None:
                self._stores = OpenStores(_CACHE)
        return self._stores.file(place_of(address, self._engine.uuid, there, row.md5))

    def _made_digests(self, row: FileRow | CompactedOutput) -> bytes:
        from receiver.storage.reading.block_digests import BlockDigests
        from receiver.storage.stores.object_content import ContentChangedError, FileContent

        def of_file(file: RangedFile | _Relayed) -> bytes:
            return BlockDigests.of(file).pack() if isinstance(file, _Relayed) else file.digests()

        try:
            fd = self._open(row)
        except (*DISK_ERRORS, OSError) as error:
            return self._at_nodes(row, of_file, error)
        if fd is None:
            return self._elsewhere(row, of_file)
        try:
            return BlockDigests.of(FileContent(fd, row.size, row.md5)).pack()
        except ContentChangedError as error:
            raise DamagedError(f"{row.physical}, as it lies here: {error.message}") from error
        finally:
            os.close(fd)


@dataclass(frozen=True)
class _Relayed:
    """A file at storage nodes; see `ObjectContent`. Its MD5 is compared by who reads all of it."""

    relay: Callable[[str, int, int], bytes]
    physical: str
    size: int
    md5: str

    def read(self, offset: int, length: int) -> bytes:
        """See `ObjectContent.read`."""
        return self.relay(self.physical, offset, length)
