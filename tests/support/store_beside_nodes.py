"""Masters with nodes and an object store, each of which loses something: `StoreBesideNodes`.

A file lies on a master's disk, at nodes, and in the bucket, and leaves the first of these for the
last. Objects are lost or rot, the bucket is away, files on a master's disk rot or go. The oracle
knows which bytes lie where, and what edges were told: what was once said to be safe is whole at a
node or in the bucket, as far as the world has left it there, and comes to whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from common.errors import TsferryError, UnreachableError
from receiver.metadata.state.table_rows import FileRow
from receiver.storage.cache.stored_files import place_of
from receiver.storage.objects.read_objects import ReadObjects
from receiver.storage.reading.block_cache import BlockCache
from receiver.storage.reading.file_tiers import FileTiers, ShutStores
from receiver.storage.reading.open_stores import opened_at
from receiver.storage.reading.ranged_file import RangedFile
from receiver.storage.reading.stored_place import StoreAddress, StoredPlace
from receiver.storage.stores.object_store import ObjectStore
from tests.support.disks_and_operators import DisksAndOperators
from tests.support.masters_and_edges import GROUP, MASTER, NODE
from tests.support.storing_master import StoringMaster
from tests.support.two_masters import OneOfTwo

__all__ = ["StoreBesideNodes"]

_PICK = st.integers(0, 1 << 16)


class _OfMaster:
    """What a reader asks whichever master leads; see `ReceiverReads`."""

    url = "http://master"

    def __init__(self, centre: StoreBesideNodes) -> None:
        self.centre = centre

    def read(self, physical: str, begin: int, length: int) -> bytes:
        return self._ask(lambda master: master.content(physical, begin, length))

    def digests(self, physical: str) -> bytes:
        def ask(master: StoringMaster) -> bytes:
            with master.engine.reading() as state:
                row = state.files[physical]
            return master.reads.digests(row)

        return self._ask(ask)

    def _ask(self, call: Callable[[StoringMaster], bytes]) -> bytes:
        found: list[bytes] = []

        def ask(master: OneOfTwo) -> None:
            assert isinstance(master, StoringMaster)
            found.append(call(master))

        self.centre._ask(ask)
        if not found:
            raise UnreachableError("no master gives it")
        return found[-1]


class _Disturbed:
    """What a file's blocks are fetched from, and something happens before one of them."""

    reads: FileTiers

    def __init__(self, centre: StoreBesideNodes, what: str, node: int) -> None:
        self.url = "a slice"
        self._centre, self._what, self._node = centre, what, node

    def read(self, key: str, offset: int, length: int) -> bytes:
        half = length // 2
        first = self.reads.read(key, offset, half) if half else b""
        what, self._what = self._what, ""
        if what:
            self._centre.happens_to_a_source(what, self._node)
        return first + self.reads.read(key, offset + half, length - half)


class StoreBesideNodes(DisksAndOperators):
    """See the module."""

    made = StoringMaster

    def __init__(self) -> None:
        super().__init__()
        self.bucket = self.there.root / "bucket"
        self.stored: set[str] = set()
        """Files that were whole in the bucket when an edge was told that they are safe by it."""

    @property
    def storing(self) -> list[StoringMaster]:
        """The masters."""
        return [each for each in self.there.masters if isinstance(each, StoringMaster)]

    # -- the bucket ----------------------------------------------------------------------------

    @rule(at=MASTER)
    def a_master_copies(self, at: int) -> None:
        self.storing[at].copy()

    @rule(at=MASTER, partition=st.integers(0, 1), group=GROUP)
    def a_file_leaves_a_master_for_the_bucket(self, at: int, partition: int, group: str) -> None:
        """And its edge frees what it may."""
        self.all_goes_well_for_a_while(partition, group, False)
        for each in self.storing:
            each.copy()
        self.files_leave_the_disks_of_a_master(at)
        self.an_edge_asks()

    @rule(at=MASTER)
    def a_master_asks_the_bucket_for_everything(self, at: int) -> None:
        self.storing[at].scrub()

    @rule(at=MASTER)
    def what_nobody_needs_goes_from_the_bucket(self, at: int) -> None:
        self.storing[at].removes_objects()

    @rule(at=MASTER, repair=st.booleans())
    def an_operator_checks_the_bucket(self, at: int, repair: bool) -> None:
        """With the server down, if it is to be put right."""
        if self._leads(self.storing[at]):
            self.storing[at].fsck_of_the_bucket(repair=repair)

    @rule()
    def the_bucket_is_away_or_comes_back(self) -> None:
        away = self.bucket.with_name("bucket-away")
        if self.bucket.is_dir():
            self.bucket.rename(away)
        else:
            away.rename(self.bucket)

    @rule(pick=_PICK, goes=st.booleans())
    def an_object_rots_or_goes(self, pick: int, goes: bool) -> None:
        """Of which somebody else has the bytes."""
        paths = [each for each in sorted(self.contents) if self.in_bucket(each)]
        paths = [each for each in paths if self.whole_at(each)]
        if not paths:
            return
        path = paths[pick % len(paths)]
        for place in [*self._objects(path)]:
            if goes:
                place.unlink()
            else:
                content = bytearray(place.read_bytes())
                content[len(content) // 2] ^= 1
                place.write_bytes(content)
        self.stored.discard(path)
        for each in self.storing:
            if each.is_alive:
                each.storage._read_objects = ReadObjects()  # what was read counts for a day

    def _objects(self, path: str) -> Iterator[Path]:
        """Where a file is whole in the bucket."""
        for physical, content in self.names_of(path).items():
            name = Path(physical).name
            for place in self.bucket_now.glob(f"*/data/*/{Path(physical).parent}/{name}*"):
                if place.suffix != ".meta" and place.read_bytes() == content:
                    yield place

    @property
    def bucket_now(self) -> Path:
        """Where it is; who asks for objects does not find it while it is away."""
        return self.bucket if self.bucket.is_dir() else self.bucket.with_name("bucket-away")

    def in_bucket(self, path: str) -> bool:
        """Whether a file is whole there, whatever anybody says."""
        return next(self._objects(path), None) is not None

    # -- readers elsewhere ---------------------------------------------------------------------

    @rule(pick=_PICK, meanwhile=st.sampled_from(("", "stops", "lies", "other leads")), node=NODE)
    def a_slice_reads_a_file(self, pick: int, meanwhile: str, node: int) -> None:
        """By ranges, of nodes, the bucket or a master; something happens before each of them."""
        told = sorted(self.loaded - self.deleted)
        rows: list[FileRow] = []
        places: list[StoredPlace] = []
        if not told:
            return
        path = told[pick % len(told)]

        def ask(master: OneOfTwo) -> None:
            row = self._row(master, path)
            if row is None:
                return
            with master.engine.reading() as state:
                there = state.uploaded_table.rows.get(row.physical)
            address = StoreAddress(self.bucket.as_uri())
            rows.append(row)
            places.append(
                StoredPlace(None, "", row.size, row.md5, physical=row.physical)
                if there is None
                else place_of(address, master.engine.uuid, there, row.md5)
            )

        self._ask(ask)
        if not rows:
            return
        origin = _Disturbed(self, meanwhile, node)
        shut = ShutStores(self.there.monotonic)
        receiver: Any = _OfMaster(self)
        tiers = FileTiers(places[-1], self._opened, receiver, shut, self.reader)
        origin.reads = tiers
        file = RangedFile(
            origin,
            places[-1],
            BlockCache(1 << 20),
            told=tiers.told_digests,
            distrust=tiers.distrust,
        )
        try:
            found = file.read(0, rows[-1].size)
        except TsferryError:
            return  # of no source that there is, or none that says the truth
        assert found == self.names_of(path)[rows[-1].physical]
        self.was_read += 1

    def _opened(self, address: StoreAddress) -> ObjectStore:
        return opened_at(address)

    # -- a master's disk -----------------------------------------------------------------------

    @rule(at=MASTER, pick=_PICK, rots=st.booleans())
    def a_file_of_a_master_goes_or_rots(self, at: int, pick: int, rots: bool) -> None:
        """Of which somebody else has the bytes. What has rotted is found, and mended.

        Where nobody gives it at that moment it is hidden until an operator asks again: not here.
        """
        master = self.storing[at]
        self.nodes_report_and_pull()  # a start of a node gives nothing before it was heard
        if not self._leads(master):
            return
        here = [each for each in sorted(self._on_disk(master)) if self._is_given(master, each)]
        if not here:
            return
        path = here[pick % len(here)]
        row = self._row(master, path)
        place = None if row is None else master.world.data / row.physical
        if row is None or place is None or not place.is_file():
            return
        if rots:
            content = bytearray(place.read_bytes())
            content[len(content) // 2] ^= 1
            place.write_bytes(content)
            master.judges(row, "it has other bytes")
            assert place.read_bytes() == self.names_of(path)[row.physical], "it was not mended"
        else:
            place.unlink()

    def _is_given(self, master: StoringMaster, path: str) -> bool:
        """Whether the bucket, or a node that does not lie, gives a file to a master now."""
        row = self._row(master, path)
        if row is None or not self.there.may_speak(master.name, "log"):
            return False
        if self.in_bucket(path) and self.bucket.is_dir():
            with master.engine.reading() as state:
                if state.uploaded_table.parts(row).file:
                    return True
        urls = {each.url for each in master.copies.places(row.physical, perhaps=True)}
        hosts = self.whole_at(path)
        return any(
            node.url in urls and node.is_up and not node.lies and node.host in hosts
            for node in self.there.nodes
            if self.there.may_speak(master.name, node.host)
        )

    # -- what edges are told -------------------------------------------------------------------

    @rule()
    def an_edge_asks(self) -> None:
        super().an_edge_asks()
        if self.is_turned_back:
            return
        told: set[str] = set()

        def ask(master: OneOfTwo) -> None:
            assert isinstance(master, StoringMaster)
            told.clear()
            rows: dict[str, FileRow] = {}
            for path in self.loaded - self.deleted:
                row = self._row(master, path)
                if row is not None:
                    rows[path] = row
            safe = master.safe([*rows.values()])
            told.update(path for path, row in rows.items() if row.physical in safe)

        try:
            self.edge.ask(lambda master: master.answer(lambda: ask(master)))
        except TsferryError:
            return
        for path in told:
            copies = self.whole_at(path)
            had = {*copies, *self.burnt}
            is_stored = self.in_bucket(path)
            assert is_stored or len(had) >= 2, f"{path} is told to be safe, and {copies} have it"
            if is_stored:
                self.stored.add(path)
        self.safe |= told

    @rule(at=MASTER)
    def files_leave_the_disks_of_a_master(self, at: int) -> None:
        """For the bucket, which is asked just before."""
        master = self.storing[at]
        if not master.works:
            return
        before = self._on_disk(master)
        master.evict()
        for path in before - self._on_disk(master):
            assert self.in_bucket(path), f"{path} has left, and is not in the bucket"

    def is_kept_elsewhere(self, path: str) -> bool:
        return self.in_bucket(path)

    # -- what this machine leaves to the other one ---------------------------------------------

    def the_log_is_turned_back(self, *_: object, **__: object) -> None:
        """An operator has to say whose the bucket is then."""

    # -- the oracle ----------------------------------------------------------------------------

    @invariant()
    def nothing_but_the_world_takes_objects(self) -> None:
        for path in self.stored - self.deleted:
            assert self.in_bucket(path), f"{path} was in the bucket, and nobody took it"

    def all_is_well_in_the_end(self) -> None:
        if not self.bucket.is_dir():
            self.the_bucket_is_away_or_comes_back()
        for each in self.storing:
            each.copy()
        super().all_is_well_in_the_end()
        leader = next(each for each in self.storing if self._leads(each))
        for path in sorted(self.loaded - self.deleted):
            row = self._row(leader, path)
            assert row is not None
            content = self.names_of(path)[row.physical]
            assert leader.content(row.physical, 0, row.size) == content
        leader.scrub()
        for path in sorted(self.loaded - self.deleted):
            row = self._row(leader, path)
            with leader.engine.reading() as state:
                is_told = row is not None and state.uploaded_table.parts(row).file
            assert not is_told or self.in_bucket(path), f"{path} is not in the bucket"
