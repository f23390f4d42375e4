"""Uploads at a node: blocks that count, a whole that is checked, and what becomes of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from common import crash
from common.crash import SimulatedCrash
from common.digests import md5
from common.durable import Tree, temporary_name
from common.errors import (
    BusyError,
    DigestError,
    NoSpaceError,
    NotATsFileError,
    NotFoundError,
    OffsetError,
    TooLargeError,
)
from common.tsfile.tail_digest import tail_digest
from receiver.config import LimitsConfig
from receiver.heartbeats.node_wire import MasterMark
from receiver.storagenode.staged_uploads import StagedUploads
from receiver.tablet_copies.copies_wire import CopiedFile, CopyOrder
from receiver.tablet_copies.replica_store import ReplicaStore
from receiver.tablet_copies.upload_tickets import SentFile
from receiver.transfer.receiving.partial import PartialUpload, UploadMeta
from tests.support.copy_nodes import Home
from tests.support.tsfile_bytes import build

TABLET = "a" * 32
PATH = "sequence/root.t/0/0/1-1-0-0.tsfile"
CONTENT = build({"root.t.d1": {"s1": [(1, 1)]}}, pad_to=5000)
OTHER = build({"root.t.d1": {"s1": [(1, 2)]}}, pad_to=5000)
MD5 = md5(CONTENT).hexdigest()
STEPS = ("upload.block_synced", "upload.block_logged", "staged.checked", "staged.whole")


def sent(content: bytes = CONTENT, **more: object) -> SentFile:
    given = {
        "node": "b" * 32,
        "sender": "c" * 32,
        "task": "d" * 32,
        "path": PATH,
        "size": len(content),
        "tail": tail_digest(content),
        "tablet": TABLET,
        "generation": 1,
        **more,
    }
    return SentFile(**given)  # type: ignore[arg-type]


def listed(content: bytes = CONTENT, **more: object) -> CopiedFile:
    given = {
        "physical": "sequence/root.t/0/0/1-1-0-0.0000000000000001.tsfile",
        "size": len(content),
        "md5": md5(content).hexdigest(),
        "commit": 5,
        "sender": "c" * 32,
        "path": PATH,
        **more,
    }
    return CopiedFile(**given)  # type: ignore[arg-type]


class Place:
    """A node's directories, over as many lives as a test wants."""

    def __init__(self, root: Path) -> None:
        self.paths = [root / "d1", root / "d2"]
        self.now = 1000.0
        self.free = 1 << 40
        self.trees: list[Tree] = []
        self.start()

    def start(self) -> None:
        self.trees = [Tree(path, create=True) for path in self.paths]
        self.store = ReplicaStore(self.trees, Home(), free=lambda _: self.free)
        self.uploads = StagedUploads(
            self.trees,
            self.store,
            LimitsConfig(
                max_chunk_bytes=4096,
                upload_expiry=3600,
                max_open_uploads=2,
                max_unloaded_bytes=12_000,
            ),
            clock=lambda: self.now,
        )

    def stop(self) -> None:
        for each in self.trees:
            each.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def send(self, file: SentFile, content: bytes = CONTENT, step: int = 2000) -> None:
        at = self.uploads.begin(file).offset
        while at < len(content):
            at = self.uploads.patch(file, at, content[at : at + step]).offset

    def left(self) -> list[str]:
        return sorted(each.suffix for path in self.paths for each in path.glob("uploads/*"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.stop()


def test_what_is_staged_is_counted(place: Place):
    assert place.uploads.standing() == (0, 0, 0)
    place.send(sent())
    other = sent(OTHER, path=PATH.replace("1-1", "2-2"))
    place.uploads.begin(other)
    place.uploads.patch(other, 0, OTHER[:2000])
    assert place.uploads.standing() == (2, 1, 7000)
    place.restart()
    assert place.uploads.standing() == (2, 1, 7000)
    place.uploads.drop(other)
    assert place.uploads.standing() == (1, 1, 5000)


def test_the_begin_of_one_upload_waits_for_no_other_ones_flush(place: Place, monkeypatch):
    """One hangs on its disk; it counts for the limits all the same, and begins only once."""
    arrived, go_on = threading.Event(), threading.Event()
    create = PartialUpload.create

    def hangs(tree: Tree, directory: str, meta: UploadMeta) -> PartialUpload:
        if meta.path == PATH:
            arrived.set()
            assert go_on.wait(60)
        return create(tree, directory, meta)

    monkeypatch.setattr(PartialUpload, "create", hangs)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(place.uploads.begin, sent())
        assert arrived.wait(60)
        try:
            with pytest.raises(BusyError, match="another request begins"):
                place.uploads.begin(sent())
            second, third = (sent(path=PATH.replace("1-1", each)) for each in ("2-2", "3-3"))
            assert place.uploads.begin(second).offset == 0
            with pytest.raises(BusyError, match="2 uploads of this sender"):
                place.uploads.begin(third)
            place.uploads.begin(sent(path=PATH.replace("1-1", "4-4"), sender="e" * 32))
        finally:
            go_on.set()
        assert hanging.result().offset == 0
    place.send(sent())
    assert place.uploads.standing().whole == 1


def test_an_upload_whose_begin_failed_begins_again(place: Place, monkeypatch):
    create = PartialUpload.create

    def fails(tree: Tree, directory: str, meta: UploadMeta) -> PartialUpload:
        create(tree, directory, meta)
        raise NoSpaceError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(PartialUpload, "create", fails)
        with pytest.raises(NoSpaceError):
            place.uploads.begin(sent())
    place.send(sent())
    assert place.uploads.standing() == (1, 1, 5000)


def test_what_was_answered_is_there_in_the_next_life_and_goes_on_with_any_ticket(place: Place):
    assert place.uploads.begin(sent()).offset == 0
    assert place.uploads.patch(sent(), 0, CONTENT[:2000]).offset == 2000
    place.restart()
    other = sent(task="e" * 32, md5=MD5, generation=7)  # of the same file
    assert place.uploads.begin(other).offset == 2000
    assert place.uploads.head(other).offset == 2000
    place.send(other)
    assert place.uploads.head(sent()).offset == len(CONTENT)
    assert place.left() == [".part", ".whole"]
    place.restart()
    assert place.uploads.begin(sent()).offset == len(CONTENT)
    assert place.uploads.read(sent().upload, 0, 9999) == (CONTENT, len(CONTENT), MD5)


def test_blocks_join_where_the_one_before_ends_and_nowhere_else(place: Place):
    place.uploads.begin(sent())
    for wrong in (1, 2000, 99999):
        with pytest.raises((OffsetError, TooLargeError, BusyError)):
            place.uploads.patch(sent(), wrong, CONTENT[:100])
    place.uploads.patch(sent(), 0, CONTENT[:2000])
    with pytest.raises(OffsetError):
        place.uploads.patch(sent(), 0, CONTENT[:2000])
    with pytest.raises(TooLargeError):
        place.uploads.patch(sent(), 2000, b"x" * 3001)
    with pytest.raises(TooLargeError):
        place.uploads.patch(sent(), 2000, b"x" * 4097)
    place.send(sent())
    with pytest.raises(OffsetError):
        place.uploads.patch(sent(), 4000, CONTENT[4000:])
    assert place.uploads.patch(sent(), len(CONTENT), b"", repr_md5=MD5).offset == len(CONTENT)


@pytest.mark.parametrize("known", ["ticket", "digest", "tail"])
def test_a_whole_that_is_another_one_counts_for_nothing(place: Place, known: str):
    file = sent(md5=md5(OTHER).hexdigest()) if known == "ticket" else sent()
    if known == "tail":
        file = sent(tail="0" * len(sent().tail))
    place.uploads.begin(file)
    place.uploads.patch(file, 0, CONTENT[:4000])
    digest = md5(OTHER).hexdigest() if known == "digest" else None
    with pytest.raises(DigestError):
        place.uploads.patch(file, 4000, CONTENT[4000:], repr_md5=digest)
    assert place.left() == []
    with pytest.raises(NotFoundError):
        place.uploads.read(file.upload, 0, 1)


def test_what_is_no_tsfile_is_refused_at_its_end(place: Place):
    content = b"x" * 3000
    file = sent(content)
    place.uploads.begin(file)
    with pytest.raises(NotATsFileError):
        place.uploads.patch(file, 0, content)
    assert place.left() == []


def test_a_whole_file_of_other_bytes_makes_way_for_what_is_sent_now(place: Place):
    place.send(sent())
    other = sent(md5="f" * 32)
    assert place.uploads.begin(other).offset == 0
    place.send(sent(), CONTENT)
    with pytest.raises(DigestError):
        place.uploads.patch(sent(), len(CONTENT), b"", repr_md5="f" * 32)
    assert place.left() == []


@pytest.mark.parametrize("step", STEPS)
def test_a_death_at_any_step_leaves_what_was_answered_and_no_more(place: Place, step: str):
    place.uploads.begin(sent())
    place.uploads.patch(sent(), 0, CONTENT[:2000])
    answered = 2000

    def die(name: str) -> None:
        if name == step:
            raise SimulatedCrash(name)

    with suppress(SimulatedCrash), crash.arm(die):
        answered = place.uploads.patch(sent(), 2000, CONTENT[2000:4000]).offset
        place.uploads.patch(sent(), 4000, CONTENT[4000:])
        pytest.fail(f"{step} is no step of an upload")
    place.restart()
    assert place.uploads.begin(sent()).offset >= answered
    place.send(sent())
    assert place.uploads.read(sent().upload, 0, 9999).md5 == MD5


def test_the_last_block_is_flushed_before_the_whole_is_called_that(place: Place):
    place.uploads.begin(sent())
    place.uploads.patch(sent(), 0, CONTENT[:4000])
    steps: list[str] = []
    with crash.arm(steps.append):
        place.uploads.patch(sent(), 4000, CONTENT[4000:])
    assert "durable.sync_file.before" in steps[: steps.index("staged.checked")]


def test_after_a_restart_only_what_counts_is_given_to_the_master(place: Place):
    place.uploads.begin(sent())
    assert place.uploads.read(sent().upload, 0, 100) == (b"", 0, None)
    place.uploads.patch(sent(), 0, CONTENT[:2000])
    assert place.uploads.read(sent().upload, 1900, 1000) == (CONTENT[1900:2000], 2000, None)
    assert place.uploads.read(sent().upload, 2000, 1000).content == b""
    part = next(path for each in place.paths for path in each.glob("uploads/*.part"))
    place.restart()
    part.write_bytes(CONTENT[:1000] + b"?" * 1000)  # the disk lies after the restart
    assert place.uploads.read(sent().upload, 0, 2000) == (b"", 0, None)


def test_the_master_reads_what_has_come_while_it_is_being_flushed(place: Place):
    """Its own disk takes the same bytes at the same time; what counts here is another question."""
    place.uploads.begin(sent())
    read = []

    def flushed(point: str) -> None:
        if point == "durable.sync_file.before" and not read:
            read.append(place.uploads.read(sent().upload, 0, 9999))

    with crash.arm(flushed):
        place.uploads.patch(sent(), 0, CONTENT[:2000])
    assert read == [(CONTENT[:2000], 0, None)]


def test_a_listed_file_is_moved_into_its_replica_and_not_copied(place: Place):
    place.store.make([order()], master())
    place.send(sent())
    with place.uploads.offered(listed(OTHER)) as there:
        assert there is None
    with place.uploads.offered(listed()) as there:
        assert there is not None
        with pytest.raises(BusyError):
            place.uploads.begin(sent())
        assert place.store.replica(TABLET).adopt(*there, listed())
    assert place.left() == []
    assert place.store.replica(TABLET).files().keys() == {listed().physical}
    with pytest.raises(NotFoundError):
        place.uploads.read(sent().upload, 0, 1)
    place.restart()
    assert place.store.replica(TABLET).held().files == 1


@pytest.mark.parametrize("step", ["copies.adopted", "copies.pull_noted", "staged.taken"])
def test_a_death_while_it_is_moved_loses_nothing(place: Place, step: str):
    place.store.make([order()], master())
    place.send(sent())

    def die(name: str) -> None:
        if name == step:
            raise SimulatedCrash(name)

    def take() -> None:
        with place.uploads.offered(listed()) as there:
            assert there is not None
            place.store.replica(TABLET).adopt(*there, listed())

    with pytest.raises(SimulatedCrash), crash.arm(die):
        take()
    place.restart()
    assert place.left() == []
    place.store.replica(TABLET).receive(0, listed(), ())  # it is whole there, and nothing is read
    assert place.store.replica(TABLET).held().files == 1


def test_a_file_that_rotted_here_is_pulled_in_its_stead(place: Place):
    place.store.make([order()], master())
    place.send(sent())
    part = next(path for each in place.paths for path in each.glob("uploads/*.part"))
    part.write_bytes(OTHER)
    with place.uploads.offered(listed()) as there:
        assert there is not None
        assert not place.store.replica(TABLET).adopt(*there, listed())
    assert place.left() == []
    assert place.store.replica(TABLET).files() == {}


def test_a_ticket_that_comes_again_when_its_file_was_superseded_changes_nothing_that_counts(
    place: Place,
):
    """Its bytes are staged once more, listed by nobody, and gone when uploads expire."""
    place.store.make([order()], master())
    place.send(sent())
    with place.uploads.offered(listed()) as there:
        assert there is not None
        assert place.store.replica(TABLET).adopt(*there, listed())
    newer = listed(OTHER, physical=listed().physical.replace("01.tsfile", "02.tsfile"), commit=6)
    place.send(sent(OTHER), OTHER)
    with place.uploads.offered(newer) as there:
        assert there is not None
        assert place.store.replica(TABLET).adopt(*there, newer)
    replica = place.store.replica(TABLET)
    assert replica.remove(1, [listed().physical]) == [listed().physical]
    place.send(sent())  # by the ticket of before
    for _ in range(2):
        with place.uploads.offered(newer) as there:
            assert there is None
        assert replica.files() == {newer.physical: newer}
        place.restart()
        replica = place.store.replica(TABLET)
    assert place.left() != []  # it counts against what its sender may have here
    place.now += 3601
    place.uploads.expire_now_and_then()
    assert place.left() == []
    assert replica.files() == {newer.physical: newer}


def test_what_came_in_another_way_is_not_waited_for(place: Place):
    place.uploads.begin(sent())
    place.uploads.patch(sent(), 0, CONTENT[:2000])
    place.uploads.let_go(listed(size=7))
    place.uploads.let_go(listed(path="sequence/root.t/0/0/2-2-0-0.tsfile"))
    assert place.left() == [".part", ".upload"]
    place.uploads.let_go(listed())
    assert place.left() == []


def test_no_more_is_held_than_there_is_room_for_and_nothing_for_ever(place: Place):
    place.send(sent())
    place.uploads.begin(sent(path=PATH.replace("1-1-0-0", "2-2-0-0")))
    third = sent(path=PATH.replace("1-1-0-0", "3-3-0-0"))
    with pytest.raises(BusyError):
        place.uploads.begin(third)
    place.now += 3601
    place.uploads.expire_now_and_then()
    assert place.left() == []
    place.uploads.begin(third)
    place.free = 100
    with pytest.raises(NoSpaceError):
        place.uploads.patch(third, 0, CONTENT[:2000])
    with pytest.raises(NoSpaceError):
        place.uploads.begin(sent())
    place.uploads.drop(third)
    assert place.left() == []


def test_what_the_master_is_reading_is_not_dropped(place: Place):
    place.send(sent())
    for _ in range(3):
        place.now += 3000
        assert place.uploads.read(sent().upload, 0, 10).content == CONTENT[:10]
        place.uploads.expire(place.now)
    place.now += 3601
    place.uploads.expire(place.now)
    assert place.left() == []


def test_one_sender_has_no_more_here_than_it_may_have_unloaded(place: Place):
    place.send(sent())
    large = sent(path=PATH.replace("1-1-0-0", "2-2-0-0"), size=7001)
    with pytest.raises(NoSpaceError, match="max_unloaded_bytes"):
        place.uploads.begin(large)
    assert place.uploads.begin(msgspec.structs.replace(large, sender="9" * 32)).offset == 0
    assert place.uploads.begin(msgspec.structs.replace(large, size=7000)).offset == 0


def test_uploads_that_were_begun_together_have_no_more_together(place: Place):
    wide = build({"root.t.d1": {"s1": [(1, 1)]}}, pad_to=8000)
    first = sent(wide)
    second = msgspec.structs.replace(first, path=PATH.replace("1-1-0-0", "2-2-0-0"))
    for each in (first, second):
        place.uploads.begin(each)
    place.send(first, wide)
    place.uploads.patch(second, 0, wide[:4000])
    with pytest.raises(NoSpaceError, match="max_unloaded_bytes"):
        place.uploads.patch(second, 4000, wide[4000:])
    assert place.uploads.head(second).offset == 4000


def test_what_is_half_there_is_swept_at_the_start(place: Place):
    place.send(sent())
    uploads = next(path for each in place.paths for path in each.glob("uploads"))
    halves = ["1" * 32 + ".part", "2" * 32 + ".whole", "3" * 32 + ".upload", "x.part"]
    for name in (*halves, temporary_name()):
        (uploads / name).write_bytes(b"{}\n")
    whole = next(uploads.glob(f"{sent().upload}.whole"))
    place.restart()
    assert place.left() == [".part", ".whole"]
    whole.write_bytes(b"no JSON")
    place.restart()
    assert place.left() == []


def order() -> CopyOrder:
    return CopyOrder(tablet=TABLET, generation=1, table="root.t", begin=0, end=1)


def master() -> MasterMark:
    return MasterMark(engine="e" * 32, commit=9)


def test_the_ticket_names_one_upload_for_each_file_and_none_for_others():
    ids = {
        each.upload
        for each in (
            sent(),
            sent(sender="9" * 32),
            sent(path="sequence/root.t/0/1/1-1-0-0.tsfile"),
            sent(OTHER),
            msgspec.structs.replace(sent(), size=1),
        )
    }
    assert len(ids) == 5
