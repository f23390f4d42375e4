"""Large objects that came without digests of their blocks get them, of bytes that are proved."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common import crash
from receiver.metadata.model import records
from receiver.metadata.model.errors import FencedError, RefusedCommitError
from receiver.metadata.state.uploaded_rows import UploadedRow
from receiver.storage.reading.block_digests import (
    BLOCK_BYTES,
    WHOLE_BYTES,
    BlockDigests,
    blocks_key,
)
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import next_incarnation
from receiver.storage.stores.object_store import StoreAwayError
from receiver.storage.uploading.digest_backlog import DigestBacklog
from tests.support.uploading import Centre

SIZE = WHOLE_BYTES + BLOCK_BYTES // 2


class Former(Centre):
    """What it uploads has no digests of blocks, as before there were any."""

    def bring(self, number: int, patch: pytest.MonkeyPatch) -> str:
        physical = self.load(number, size=SIZE)
        with patch.context() as former:
            former.setattr("receiver.storage.uploading.uploader.put_block_digests", lambda *_: {})
            assert self.uploader.run_once() == 1
        assert "blocks" not in self.row(physical).digests
        return physical

    def backlog(self, clock: Callable[[], float] | None = None) -> DigestBacklog:
        """One whose clock goes a second further with each look, unless it is given."""
        seconds = map(float, itertools.count())
        return DigestBacklog(
            self.engine,
            self.store,
            self.owner,
            lambda: [self.tree],
            monotonic=clock or (lambda: next(seconds)),
        )

    def row(self, physical: str) -> UploadedRow:
        with self.engine.reading() as state:
            return state.uploaded_table.rows[physical]

    def digests(self, physical: str) -> BlockDigests:
        return BlockDigests.unpack(self.store.read(blocks_key(self.key(physical)), 0, 1 << 20))


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Former]:
    (tmp_path / "bucket").mkdir()
    made = Former(tmp_path, DirectoryStore(tmp_path / "bucket"))
    yield made
    made.end()


def test_a_file_that_is_here_gives_its_object_digests_that_readers_find(
    centre: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = centre.bring(1, monkeypatch)
    before = centre.row(one)
    small = centre.load(2)
    backlog = centre.backlog()
    assert backlog.work(100) == 1
    digests = centre.digests(one)
    content = (centre.root / "data" / one).read_bytes()
    assert all(
        digests.is_block(n, content[n * BLOCK_BYTES : (n + 1) * BLOCK_BYTES]) for n in range(5)
    )
    told = dict(each.split("=") for each in centre.row(one).digests.split())
    assert told.pop("blocks")
    assert told == dict(each.split("=") for each in before.digests.split())
    assert centre.row(one).created == before.created
    assert backlog.work(100) == 0
    centre.restart()
    assert centre.backlog().work(100) == 0
    assert small not in centre.uploaded()


def test_it_is_made_a_little_at_a_time_and_takes_back_nothing_that_was_told_meanwhile(
    centre: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = centre.bring(1, monkeypatch)
    backlog = centre.backlog()
    assert [backlog.work(2) for _ in range(4)] == [0] * 4
    digest = centre.note_resource(one, b"resource")
    centre.write_resource(one, b"resource")
    assert centre.uploader.run_once() == 1
    assert sum(backlog.work(2) for _ in range(10)) == 1
    assert centre.row(one).resource == digest
    assert "blocks=" in centre.row(one).digests


def test_what_is_in_the_store_only_gets_them_when_it_has_been_fetched(
    centre: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = centre.bring(1, monkeypatch)
    place = centre.root / "data" / one
    content = place.read_bytes()
    place.unlink()
    now = [0.0]
    ticks = itertools.count()
    backlog = centre.backlog(lambda: now[0] + next(ticks) / 1000)
    assert backlog.work(1) == 0
    place.write_bytes(content)
    assert backlog.work(1) == 0  # it is looked for now and then
    now[0] = 61.0
    assert backlog.work(1) == 1
    assert "blocks=" in centre.row(one).digests


def test_a_rotten_copy_gives_none(centre: Former, monkeypatch: pytest.MonkeyPatch) -> None:
    one = centre.bring(1, monkeypatch)
    place = centre.root / "data" / one
    place.write_bytes(place.read_bytes()[:-1] + b"?")
    assert centre.backlog().work(100) == 0
    assert "blocks" not in centre.row(one).digests
    assert blocks_key(centre.key(one)) not in centre.objects()


@pytest.mark.parametrize("point", ["storage.backlog.put", "storage.backlog.told"])
def test_a_kill_at_any_step_leaves_it_to_the_next_life(
    centre: Former, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    one = centre.bring(1, monkeypatch)

    def die(name: str) -> None:
        if name == point:
            raise crash.SimulatedCrash(name)

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        centre.backlog().work(100)
    centre.restart()
    assert centre.backlog().work(100) == (1 if point == "storage.backlog.put" else 0)
    assert "blocks=" in centre.row(one).digests
    assert centre.digests(one).size == SIZE


def test_while_the_store_is_away_it_waits(centre: Former, monkeypatch: pytest.MonkeyPatch) -> None:
    centre.bring(1, monkeypatch)
    backlog = centre.backlog()

    def away(*_: object, **__: object) -> None:
        raise StoreAwayError("slow down")

    with monkeypatch.context() as patch:
        patch.setattr(centre.store, "upload", away)
        with pytest.raises(StoreAwayError):
            backlog.work(100)
    assert backlog.work(100) == 1


def test_who_was_replaced_puts_and_tells_nothing(
    centre: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = centre.bring(1, monkeypatch)
    next_incarnation(centre.store, centre.home, centre.engine.uuid)
    with pytest.raises(FencedError):
        centre.backlog().work(100)
    assert "blocks" not in centre.row(one).digests
    assert blocks_key(centre.key(one)) not in centre.objects()


def test_a_file_that_was_deleted_meanwhile_is_not_told_of(
    centre: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = centre.bring(1, monkeypatch)

    def forget(name: str) -> None:
        if name == "storage.backlog.put":
            centre.engine.commit([records.FileDeleted(one, "operator")])
            centre.engine.commit([records.FileForgotten(one)])

    with crash.arm(forget):
        assert centre.backlog().work(100) == 0
    assert "blocks" not in centre.row(one).digests


def test_what_is_told_again_as_it_was_is_refused(
    centre: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = centre.bring(1, monkeypatch)
    there = centre.row(one)
    with pytest.raises(RefusedCommitError):
        centre.engine.commit(
            [records.FileUploaded(one, there.incarnation, SIZE, there.digests, there.resource)]
        )
