from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import NotFoundError, UsageError
from receiver.operator.adopting.old_receiver import OldReceiver, read_old_receiver
from tests.support.node_world import path_of
from tests.support.old_tool import OTHER, UUID, OldReceiverTree, lay, name_of, tree_of


@pytest.fixture
def old(tmp_path: Path) -> OldReceiverTree:
    return OldReceiverTree(tmp_path / "iotdb")


def read(old: OldReceiverTree, group: str | None = None) -> OldReceiver:
    before = tree_of(old.home)
    found = read_old_receiver([old.root], group)
    assert tree_of(old.home) == before
    return found


def paths(found: OldReceiver) -> list[str]:
    return [each.file.path.text for each in found.files]


def reasons(found: OldReceiver) -> str:
    return "\n".join(f"{each.source}: {each.reason}" for each in found.odd)


def test_files_are_found_where_servers_with_and_without_regions_lay_them(
    old: OldReceiverTree,
) -> None:
    old.loaded({path_of(1): b"", "un" + path_of(2): b"", "sequence/root.sg/7/1-1-0.tsfile": b""})
    old.loaded({path_of(1) + ".resource": b"", "sequence/root.sg/0/0/mlog.bin": b""})
    found = read(old)
    assert paths(found) == [path_of(1), "sequence/root.sg/0/7/1-1-0.tsfile", "un" + path_of(2)]
    assert found.odd == ()


def test_owners_of_0_11_name_senders_and_those_of_0_12_do_not(old: OldReceiverTree) -> None:
    old.owners({"root.sg.d1": name_of(), "root.sg.d2": name_of(OTHER, "10.0.0.9")})
    found = read(old)
    assert found.owners == {"root.sg.d1": UUID, "root.sg.d2": OTHER}
    assert found.addresses == {UUID: "192.168.130.14", OTHER: "10.0.0.9"}
    old.owners({"root.sg.d1": "root.sg", "root.sg.d2": name_of()})
    found = read(old)
    assert found.owners == {"root.sg.d2": UUID}
    assert "no sender for the devices of 1 owner, the first is 'root.sg'" in reasons(found)


def test_of_two_maps_of_owners_the_newest_that_is_whole_counts(old: OldReceiverTree) -> None:
    old.owners({"root.sg.d1": name_of()})
    fresh = old.owners({"root.sg.d1": name_of(), "root.sg.d2": name_of()}, "device_owner.tmp")
    assert len(read(old).owners) == 2
    fresh.write_bytes(fresh.read_bytes()[:-30])
    found = read(old)
    assert found.owners == {"root.sg.d1": UUID}
    assert "device_owner.tmp: owners are not taken" in reasons(found)


def test_what_a_round_had_brought_is_its_senders_and_the_round_is_told(
    old: OldReceiverTree,
) -> None:
    folder = old.received(UUID, "192.168.130.14", {path_of(1): b"", path_of(2): b""})
    lay(folder, {"data/root.sg/9-9-0.tsfile": b"", "data/root.sg/0/9-9-0.tsfile": b""})
    found = read(old)
    assert [(each.sender, each.is_placed) for each in found.files] == [
        (UUID, True),
        (UUID, True),
        (UUID, False),
    ]
    assert paths(found)[:2] == [path_of(1), path_of(2)]
    assert f"a round of sender {UUID} was not over" in reasons(found)
    assert "the old receiver lays none there" in reasons(found)


def test_what_is_no_name_of_a_file_is_left_out_and_told(old: OldReceiverTree) -> None:
    bad = "sequence/root.sg/0/0/.tsfile", "sequence/root.sg/0/x/1-1-0.tsfile", "loose.tsfile"
    old.loaded(dict.fromkeys((path_of(1), *bad), b""))
    lay(old.root / "data" / "sync-receiver" / "nobody", {"data/root.sg/1-1-0.tsfile": b""})
    (old.root / "data" / path_of(3)).symlink_to(old.root / "data" / path_of(1))
    found = read(old)
    assert paths(found) == [path_of(1)]
    assert len(found.odd) == 5
    for said in ("'nobody' is no directory of a sender", "a link", "no name of a TsFile", "(--sg)"):
        assert said in reasons(found)
    assert "sequence/root.sg/0/0/loose.tsfile" in paths(read(old, "root.sg"))


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absolute"):
        read_old_receiver([Path("data")], None)
    with pytest.raises(NotFoundError, match="no such directory"):
        read_old_receiver([tmp_path / "gone"], None)
