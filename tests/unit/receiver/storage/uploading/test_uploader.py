"""Loaded files come into the store once, whatever is cut off, and count when the store says so."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common import crash
from common.config import UploadRules
from common.digests import md5
from common.durable import Tree
from common.errors import StoppedError, Transient
from receiver.metadata.model import records
from receiver.metadata.model.errors import FencedError
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import next_incarnation, own_incarnation
from receiver.storage.stores.object_keys import resource_key
from receiver.storage.stores.object_store import Fingerprint, StoreAwayError, StoreRefusedError
from receiver.storage.uploading.upload_attempts import UploadAttempts
from receiver.storage.uploading.upload_queue import UploadQueue
from tests.support.uploading import SENDER, Centre


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Centre]:
    (tmp_path / "bucket").mkdir()
    made = Centre(tmp_path, DirectoryStore(tmp_path / "bucket"))
    yield made
    made.end()


def test_what_is_loaded_is_uploaded_with_its_resource(centre: Centre) -> None:
    one, two = centre.load(1, resource=b"res"), centre.load(2)
    assert centre.uploader.run_once() == 2
    assert centre.uploaded() == {one, two}
    key = centre.key(one)
    whole = (centre.root / "data" / one).read_bytes()
    assert centre.store.read(key, 0, 1 << 20) == whole
    assert centre.store.head(key).about["sender"] == SENDER
    assert sorted(centre.objects()) == sorted(
        [key, f"{key}.{md5(b'res').hexdigest()}", centre.key(two)]
    )


def test_what_comes_later_is_found_by_its_commit(centre: Centre) -> None:
    centre.load(1)
    assert centre.uploader.run_once() == 1
    assert centre.uploader.run_once() == 0
    later = centre.load(2)
    assert centre.uploader.progress().waiting_files == 1
    assert centre.uploader.run_once() == 1
    assert later in centre.uploaded()


def test_it_is_known_after_a_start_from_a_checkpoint(centre: Centre) -> None:
    one = centre.load(1)
    centre.uploader.run_once()
    centre.engine.checkpoint()
    centre.restart()
    assert centre.uploaded() == {one}
    assert centre.uploader.run_once() == 0
    progress = centre.uploader.progress()
    assert (progress.uploaded_files, progress.waiting_files) == (1, 0)


@pytest.mark.parametrize(
    "point", ["storage.upload.sent", "storage.upload.confirmed", "storage.upload.committed"]
)
def test_a_kill_between_store_and_commit_uploads_nothing_twice(centre: Centre, point: str) -> None:
    one = centre.load(1, resource=b"res")

    def die(name: str) -> None:
        if name == point:
            raise crash.SimulatedCrash

    with crash.arm(die), pytest.raises(crash.SimulatedCrash):
        centre.uploader.run_once()
    centre.restart()
    before = [(each.key, each.modified) for each in centre.store.objects("")]
    centre.uploader.run_once()
    assert centre.uploaded() == {one}
    assert [(each.key, each.modified) for each in centre.store.objects("")] == before


def test_a_rotten_copy_never_goes(centre: Centre) -> None:
    one, two = centre.load(1), centre.load(2)
    place = centre.root / "data" / one
    last = place.read_bytes()[-1:]
    place.write_bytes(place.read_bytes()[:-1] + b"?")
    centre.uploader.run_once()
    assert centre.uploaded() == {two}
    assert centre.objects() == [centre.key(two)]
    ((physical, digest, why),) = centre.bad
    assert (physical, digest) == (one, md5(place.read_bytes()[:-1] + last).hexdigest())
    assert "1500 bytes with MD5" in why


def test_a_copy_that_was_cut_is_told_to_be_bad(centre: Centre) -> None:
    one = centre.load(1)
    os.truncate(centre.root / "data" / one, 700)
    centre.uploader.run_once()
    assert [(each[0], each[2][:9]) for each in centre.bad] == [(one, "700 bytes")]


@pytest.mark.parametrize("readings", ["E*", "?", "E", "?1*", "?EE"])
def test_what_is_not_proved_to_be_other_bytes_is_no_verdict(
    centre: Centre, readings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails now (E), or reads other bytes now and then, may have every byte of it."""
    one = centre.load(1)
    real = os.pread
    flaws = list(readings) if "*" not in readings else list(readings.rstrip("*") * 50)

    def pread(fd: int, length: int, offset: int) -> bytes:
        data = real(fd, length, offset)
        if not data or "/sequence/" not in os.readlink(f"/proc/self/fd/{fd}") or not flaws:
            return data
        flaw = flaws.pop(0)
        if flaw == "E":
            raise OSError(errno.EIO, "the disk fails")
        return flaw.encode() + data[1:]

    monkeypatch.setattr(os, "pread", pread)
    centre.uploader.run_once()
    assert (centre.bad, centre.uploaded()) == ([], set())
    assert centre.uploader.progress().unreadable_files == 1
    monkeypatch.undo()
    centre.now += 61
    assert centre.uploader.run_once() == 1
    assert centre.uploaded() == {one}


def test_other_bytes_in_the_store_say_nothing_of_the_copy_here(centre: Centre) -> None:
    one = centre.load(1)
    centre.store.put(centre.key(one), b"x" * 1500)
    centre.uploader.run_once()
    assert (centre.bad, centre.uploaded()) == ([], set())


def test_a_resource_written_anew_is_an_object_of_its_own(centre: Centre) -> None:
    one = centre.load(1, resource=b"res")
    centre.uploader.run_once()
    key, size = centre.key(one), centre.uploader.progress().uploaded_bytes
    new = centre.note_resource(one, b"another")
    centre.write_resource(one, b"another")
    assert centre.uploader.run_once() == 1
    assert centre.resources() == {one: new}
    assert centre.store.read(resource_key(key, new), 0, 100) == b"another"
    assert centre.store.read(resource_key(key, md5(b"res").hexdigest()), 0, 100) == b"res"
    assert centre.uploader.progress().uploaded_bytes == size
    centre.restart()
    assert centre.uploader.run_once() == 0


def test_a_resource_that_comes_to_its_place_behind_its_commit_is_waited_for(
    centre: Centre,
) -> None:
    one = centre.load(1, resource=b"res")
    new = centre.note_resource(one, b"another")
    assert centre.uploader.run_once() == 1
    assert centre.resources() == {one: ""}  # the file does not wait for it
    progress = centre.uploader.progress()
    assert (progress.waiting_files, progress.unreadable_files) == (1, 1), "why it waits is told"
    assert centre.uploader.progress().waiting_files == 1
    centre.write_resource(one, b"another")
    assert centre.uploader.run_once() == 0
    centre.now += 61
    assert centre.uploader.run_once() == 1
    assert centre.resources() == {one: new}
    assert centre.uploader.progress().waiting_files == 0


def test_a_resource_that_is_noted_while_its_file_is_under_way_follows(centre: Centre) -> None:
    one = centre.load(1, resource=b"res")
    new: list[str] = []

    def note(name: str) -> None:
        if name == "storage.upload.confirmed" and not new:
            new.append(centre.note_resource(one, b"another"))
            centre.write_resource(one, b"another")

    with crash.arm(note):
        centre.uploader.run_once()
        centre.uploader.run_once()
    assert centre.resources() == {one: new[0]}


def test_a_file_whose_directory_is_away_goes_when_it_is_back(centre: Centre) -> None:
    one, two = centre.load(1), centre.load(2)
    place = centre.root / "data" / one
    place.rename(centre.root / "away")
    assert centre.uploader.run_once() == 1
    assert centre.uploaded() == {two}
    progress = centre.uploader.progress()
    assert (progress.waiting_files, progress.unreadable_files) == (1, 1)
    (centre.root / "away").rename(place)
    centre.now += 61
    assert centre.uploader.run_once() == 1
    assert centre.uploaded() == {one, two}
    assert centre.uploader.progress().unreadable_files == 0


def test_the_line_is_asked_before_bytes_go_and_may_stop_them(centre: Centre) -> None:
    names = {centre.load(number, size=1000) for number in range(5)}
    asked: list[int] = []

    def paced(size: int) -> None:
        asked.append(size)
        if len(asked) == 3:
            raise StoppedError("told to stop while waiting")

    centre.uploader_of(parallel=1, paced=paced)
    with pytest.raises(StoppedError):
        centre.uploader.run_once()
    assert len(centre.uploaded()) == len(centre.objects()) == 2
    assert centre.uploader.run_once() == 3
    assert centre.uploaded() == names
    assert asked == [1000] * 6


def loaded_at(centre: Centre, physical: str) -> float:
    with centre.engine.reading() as state:
        return centre.engine.times.seconds(state.files[physical].created)


def test_files_go_when_their_storage_group_says(centre: Centre) -> None:
    one = centre.load(1)
    centre.uploader_of(rules=UploadRules.parse([{"group": "root.sg", "upload": "12h"}]))
    assert centre.uploader.run_once() == 0
    later = centre.load(2)
    centre.now = loaded_at(centre, later) + 12 * 3600 - 1
    assert centre.uploader.run_once() in (0, 1)
    assert later not in centre.uploaded()
    assert centre.uploader.progress().kept_files >= 1
    assert centre.uploader.progress().waiting_files == 0
    centre.now += 2
    centre.uploader.run_once()
    assert centre.uploaded() == {one, later}
    assert centre.uploader.progress().kept_files == 0


def test_what_an_operator_says_counts_before_the_configuration_and_at_once(centre: Centre) -> None:
    centre.uploader_of(rules=UploadRules.parse("never"))
    one = centre.load(1)
    assert centre.uploader.run_once() == 0
    progress = centre.uploader.progress()
    assert (progress.kept_files, progress.kept_bytes, progress.waiting_files) == (1, 1500, 0)
    centre.engine.set_storage_group("root.sg")
    centre.engine.set_upload("root.sg", 0)
    assert centre.uploader.run_once() == 1
    centre.engine.set_upload("root.sg", -1)
    two = centre.load(2)
    assert centre.uploader.run_once() == 0
    centre.engine.checkpoint()
    centre.restart()
    centre.uploader_of(rules=UploadRules())
    assert centre.uploader.run_once() == 0
    centre.engine.set_upload("root.sg", None)
    assert centre.uploader.run_once() == 1
    assert centre.uploaded() == {one, two}


def test_with_before_ack_nobody_says_otherwise(centre: Centre) -> None:
    centre.engine.set_storage_group("root.sg")
    centre.engine.set_upload("root.sg", -1)
    one = centre.load(1)
    assert centre.uploader.run_once() == 1
    assert centre.uploaded() == {one}


def test_what_somebody_waits_for_goes_first_though_it_came_during_the_run(
    centre: Centre,
) -> None:
    order: list[str] = []
    waited: list[str] = []

    def paced(_: int) -> None:
        order.append("")
        if len(order) == 2:
            waited.append(centre.load(9))
            centre.uploader.first(waited)

    centre.uploader_of(parallel=1, paced=paced)
    for number in range(1, 6):
        centre.load(number)
    told: list[str] = []
    commit = centre.engine.commit

    def noted(ops: list[records.Record]) -> int:
        told.extend(each.physical for each in ops if isinstance(each, records.FileUploaded))
        return commit(ops)

    centre.engine.commit = noted  # type: ignore[method-assign, assignment]
    assert centre.uploader.run_once() == 6
    assert told[2] == waited[0]
    assert len(told) == 6


def test_what_somebody_waits_for_stays_first_when_all_is_put_back(centre: Centre) -> None:
    names = [centre.load(number) for number in range(1, 5)]
    queue = UploadQueue(centre.engine, None, lambda: centre.now)
    queue.look()
    queue.first([names[2], "sequence/no/0/0/1-1-0-0.tsfile"])
    queue.first([names[2]])

    def first() -> str:
        due = queue.take()
        assert due is not None
        return due.row.physical

    assert first() == names[2]
    queue.put_back_all()
    centre.engine.set_storage_group("root.sg")
    centre.engine.set_upload("root.sg", 0)  # all are looked at anew
    queue.look()
    assert [first() for _ in names] == [names[2], names[0], names[1], names[3]]
    assert queue.take() is None


def test_many_files_are_told_of_by_one_commit(centre: Centre) -> None:
    names = {centre.load(number) for number in range(50)}
    before = centre.engine.newest_commit
    assert centre.uploader.run_once() == 50
    assert centre.uploaded() == names
    assert len(list(centre.engine.log_since(before))) == 1


def test_a_file_that_is_forgotten_meanwhile_holds_up_none_that_is_told_of_with_it(
    centre: Centre,
) -> None:
    one, two = centre.load(1), centre.load(2)

    def forget(name: str) -> None:
        if name == "storage.upload.confirmed" and one in centre.files():
            centre.engine.commit([records.FileDeleted(one, "operator")])
            centre.engine.commit([records.FileForgotten(one)])

    centre.uploader_of(parallel=1)
    with crash.arm(forget):
        assert centre.uploader.run_once() == 1
    assert centre.uploaded() == {two}


def test_an_error_of_one_run_leaves_nothing_out(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {centre.load(number) for number in range(5)}

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(centre.engine, "commit", fail)
        with pytest.raises(OSError, match="Input"):
            centre.uploader.run_once()
    assert centre.uploader.progress().waiting_files == 5
    assert centre.uploader.run_once() == 5
    assert centre.uploaded() == names


def test_while_nothing_can_be_told_of_nothing_more_goes(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(400):
        centre.load(number, size=10)
    puts, committing = [], threading.Event()
    upload = centre.store.upload

    def put(key: str, *rest: Any, **more: Any) -> Fingerprint:
        puts.append(key)
        if len(puts) > 220:
            committing.wait(60)
        return upload(key, *rest, **more)

    def fail(*_: object, **__: object) -> None:
        committing.set()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(centre.store, "upload", put)
    monkeypatch.setattr(centre.engine, "commit", fail)
    with pytest.raises(OSError, match="Input"):
        centre.uploader.run_once()
    assert len(puts) < 400


def test_an_attempt_of_an_earlier_life_is_gone_on_with_and_small_files_ask_for_none(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = centre.load(1), centre.load(2)
    UploadAttempts(centre.home).note(centre.key(one), "attempt-7")
    resumed: dict[str, object] = {}
    upload = centre.store.upload

    def put(key: str, *rest: Any, **more: Any) -> Fingerprint:
        resumed[key] = more["resume"]
        return upload(key, *rest, **more)

    monkeypatch.setattr(centre.store, "upload", put)
    centre.restart()
    assert centre.uploader.run_once() == 2
    assert resumed == {centre.key(one): "attempt-7", centre.key(two): None}
    assert not centre.home.listing("storage/attempts")
    reads = []
    monkeypatch.setattr(centre.home, "read", reads.append)
    centre.load(3)
    assert centre.uploader.run_once() == 1
    assert not reads


def test_an_attempt_of_this_life_is_gone_on_with_until_it_is_forgotten(centre: Centre) -> None:
    attempts = UploadAttempts(centre.home)
    assert attempts.of("a") is None
    attempts.note("a", "attempt-1")
    assert (attempts.of("a"), attempts.of("b")) == ("attempt-1", None)
    attempts.forget("a", "b")
    assert attempts.of("a") is None
    assert not centre.home.listing("storage/attempts")


def test_a_store_with_other_bytes_does_not_count(centre: Centre) -> None:
    one = centre.load(1)
    whole = (centre.root / "data" / one).read_bytes()
    centre.store.put(centre.key(one), whole[:-1] + b"?")
    centre.uploader.run_once()
    assert centre.uploaded() == set()


def test_a_store_that_is_away_is_tried_again(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = centre.load(1)

    def away(*_: object, **__: object) -> None:
        raise StoreAwayError("slow down")

    with monkeypatch.context() as patch:
        patch.setattr(centre.store, "upload", away)
        with pytest.raises(Transient):
            centre.uploader.run_once()
    assert centre.uploader.progress().waiting_files == 1
    assert centre.uploader.run_once() == 1
    assert centre.uploaded() == {one}


def test_a_file_that_the_store_refuses_holds_up_no_other(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, *others = [centre.load(number) for number in range(5)]
    upload = centre.store.upload

    def refuse(key: str, *rest: Any, **more: Any) -> Fingerprint:
        if one in key:
            raise StoreRefusedError("KeyTooLongError")
        return upload(key, *rest, **more)

    monkeypatch.setattr(centre.store, "upload", refuse)
    assert centre.uploader.run_once() == 4
    assert centre.uploaded() == set(others)
    assert centre.uploader.progress().unreadable_files == 1


def test_a_store_that_refuses_all_is_a_problem(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {centre.load(number) for number in range(30)}

    def refuse(*_: object, **__: object) -> None:
        raise StoreRefusedError("AccessDenied")

    with monkeypatch.context() as patch:
        patch.setattr(centre.store, "upload", refuse)
        with pytest.raises(StoreRefusedError):
            centre.uploader.run_once()
    centre.now += 61
    assert centre.uploader.run_once() == 30
    assert centre.uploaded() == names


def test_the_longest_name_that_a_file_may_have_fits(centre: Centre) -> None:
    stem = "x" * (200 - len(".tsfile"))
    one = centre.load(1, stem=f"sequence/root.sg/0/0/{stem}", resource=b"res")
    assert len(one.rpartition("/")[2]) == 217
    assert centre.uploader.run_once() == 1
    assert centre.resources() == {one: md5(b"res").hexdigest()}


def test_who_was_replaced_puts_nothing_any_more(centre: Centre, tmp_path: Path) -> None:
    centre.load(1)
    other = tmp_path / "restored"
    other.mkdir()
    with Tree(other) as home:
        taken = next_incarnation(centre.store, home, centre.engine.uuid)
    assert (taken.number, taken.parent) == (2, 1)
    with pytest.raises(FencedError):
        centre.uploader.run_once()
    assert centre.objects() == []
    with pytest.raises(FencedError):
        own_incarnation(centre.store, centre.home, centre.engine.uuid)


def test_a_copy_of_the_machine_that_began_before_it_had_a_store_is_refused(
    centre: Centre, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    with Tree(clone) as home, pytest.raises(FencedError):
        own_incarnation(centre.store, home, centre.engine.uuid)


def test_a_forgotten_file_leaves_its_object_to_be_removed_later(centre: Centre) -> None:
    one = centre.load(1)
    centre.uploader.run_once()
    centre.engine.commit([records.FileDeleted(one, "operator")])
    centre.engine.commit([records.FileForgotten(one)])
    with centre.engine.reading() as state:
        assert list(state.uploaded_table.ended) == [one]
    centre.engine.commit([records.ObjectRemoved(one)])
    assert centre.uploaded() == set()
