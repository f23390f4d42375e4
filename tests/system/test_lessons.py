"""Faults that users of such systems met, from one end to the other; each test names the promise."""

from __future__ import annotations

import hashlib

import pytest

from common import crash
from common.crash import SimulatedCrash
from receiver.metadata.state.table_rows import FileState
from sender.config import StorageGroupFilter
from sender.select.data_dirs import mark
from tests.support.looking import in_sync, loaded, once, rows
from tests.support.tsfile_bytes import build
from tests.system.sender.test_rounds import call
from tests.system.test_lost_state import operator


def test_what_was_deleted_at_the_receiver_can_be_sent_again_by_a_resync(centre, make_edge):
    edge = make_edge(centre.start())
    for number in range(3):
        edge.write(number)
    edge.round()
    centre.stop()
    (physical,) = centre.data.glob("sequence/**/*-1-0-0.*.tsfile")
    physical.unlink()
    operator(centre, "fsck", "--repair")
    centre.start()
    (entry,) = centre.call("quarantine", "list")["entries"]
    centre.call("quarantine", "drop", entry["path"])
    assert edge.round().quiet, "the operator has let it go"
    config = edge.write_config()
    got = call(config, "resync")
    assert "1 that the receiver does not keep (quarantine list says why)" in got.stdout
    assert "an operator of the receiver deleted" in call(config, "quarantine", "list").stdout
    assert call(config, "resync", "--deleted").returncode == 0
    in_sync(edge, centre.root)
    states = [row.state for row in rows(centre.root, edge.uuid) if row.path == edge.path(1)]
    assert sorted(states) == [FileState.DELETED, FileState.LIVE]


def test_a_file_that_moved_between_tiers_is_neither_gone_nor_new(shared, make_edge):
    edge = make_edge(shared.url, propagate_deletes="all")
    cold = edge.root / "cold"
    for kind in ("sequence", "unsequence"):
        (cold / kind).mkdir(parents=True)
    mark(cold, edge.uuid)
    edge.with_settings(data_dirs=(edge.data, cold))
    for number in range(3):
        edge.write(number)
    edge.round()
    before = {row.physical for row in rows(shared.root, edge.uuid)}
    path = edge.path(1)
    (cold / path).parent.mkdir(parents=True)
    for each in (path, f"{path}.resource"):
        content = (edge.data / each).read_bytes()
        (cold / each).write_bytes(content)  # a copy, then the old one goes: another inode
        (edge.data / each).unlink()
    report = edge.round()
    assert (report.tasks, report.bytes, report.deleted, report.exit_code) == ([], 0, 0, 0)
    assert {row.physical for row in rows(shared.root, edge.uuid)} == before


def test_a_file_replaced_while_half_of_it_is_there_never_mixes_with_the_old_half(shared, make_edge):
    edge = make_edge(shared.url, transfer={"chunk_bytes": 65536, "batch_bytes": 1000})
    path = edge.write(1, size=400_000)
    size = len(edge.content(path))
    left = [3]

    def die(name: str) -> None:
        left[0] -= name == "upload.block.acknowledged"
        if left[0] == 0:
            raise SimulatedCrash(name)

    with crash.arm(die), pytest.raises(SimulatedCrash):
        edge.round()
    series = {f"{edge.sg}.d1": {"s1": [(1000 + each, each + 7) for each in range(10)]}}
    new = build(series, pad_to=size)
    assert len(new) == size, "the same size: only the content tells"
    edge.put(path, new)
    report = edge.round()
    assert report.exit_code == 0, report.as_json()
    in_sync(edge, shared.root)
    assert loaded(shared.root, edge.uuid) == {path: hashlib.md5(new).hexdigest()}


def test_the_owner_is_found_by_what_is_in_the_file_not_by_its_directory(shared, make_edge):
    first, second = make_edge(shared.url), make_edge(shared.url)
    second.sg = first.sg
    first.write(1, device=f"{first.sg}.d1")
    first.round()
    # Same storage group and virtual group, another device: no conflict.
    second.write(2, device=f"{first.sg}.d2")
    assert second.round().exit_code == 0
    # Another directory altogether, the same device: a conflict.
    stolen = second.write(3, sg=f"{first.sg}.elsewhere", device=f"{first.sg}.d1")
    report = second.round()
    assert [(each.file, each.device) for each in report.conflicts] == [(stolen, f"{first.sg}.d1")]


def test_a_digest_with_leading_zeros_is_a_digest(shared, make_edge):
    edge = make_edge(shared.url)
    for value in range(10_000):
        content = build({f"{edge.sg}.d1": {"s1": [(1, value)]}})
        if hashlib.md5(content).hexdigest().startswith("00"):
            break
    else:
        raise AssertionError("no such content")
    edge.put(edge.path(1), content)
    assert edge.round().exit_code == 0
    (row,) = rows(shared.root, edge.uuid)
    assert row.md5.startswith("00")
    in_sync(edge, shared.root)
    config = edge.write_config()
    assert call(config, "resync").returncode == 0
    once(shared.root, edge.uuid)


def test_storage_groups_whose_names_only_differ_by_separators_keep_apart(shared, make_edge):
    edge = make_edge(shared.url, propagate_deletes="all")
    groups = [f"{edge.sg}.a_b", f"{edge.sg}.a.b", f"{edge.sg}.a__b", f"{edge.sg}.a-b"]
    for sg in groups:
        edge.write(1, sg=sg, device=f"{sg}.d1")
    assert edge.round().sent == 4
    in_sync(edge, shared.root)
    edge.remove(edge.path(1, sg=groups[0]))
    assert edge.round().deleted == 1
    in_sync(edge, shared.root)


def test_a_narrowed_filter_or_a_lost_marker_deletes_nothing(shared, make_edge):
    edge = make_edge(shared.url, propagate_deletes="all")
    for number in range(3):
        edge.write(number)
        edge.write(number, sg=f"{edge.sg}.other", device=f"{edge.sg}.other.d1")
    edge.round()
    whole = edge.config.storage_groups
    edge.with_settings(storage_groups=StorageGroupFilter(include=(edge.sg,)))
    assert edge.round().deleted == 0
    edge.with_settings(storage_groups=whole)
    marker = edge.data / ".tsferry"
    kept = marker.read_bytes()
    marker.unlink()
    report = edge.round()
    assert report.deleted == 0
    assert report.exit_code != 0, "nobody must think that all is well"
    assert len(loaded(shared.root, edge.uuid)) == 6
    marker.write_bytes(kept)
    assert edge.round().exit_code == 0
    in_sync(edge, shared.root)


def test_a_file_that_waited_for_weeks_to_be_closed_is_shipped_when_it_is(shared, make_edge):
    edge = make_edge(shared.url)
    path = edge.write(1, resource=None)
    for _ in range(15):
        report = edge.round()
        assert (report.sent, report.waiting, report.exit_code) == (0, 1, 0)
    (edge.data / f"{path}.resource").write_bytes(b"closed at last")
    assert edge.round().sent == 1
    in_sync(edge, shared.root)
