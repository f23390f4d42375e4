from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import DamagedError, UsageError
from sender.kept.old_tool_state import SET_ASIDE, OldTool, old_identity, read_old_tool
from tests.support.old_tool import RECEIVER, UUID, OldSenderTree, lay, tree_of

P1 = "sequence/root.sg/0/2650/1581324718762-101-1.tsfile"
P2 = "sequence/root.sg/1/2650/1581324718763-102-0-0.tsfile"
OLD = "sequence/root.sg/2650/1581324718764-103-0.tsfile"


@pytest.fixture
def old(tmp_path: Path) -> OldSenderTree:
    made = OldSenderTree(tmp_path / "data" / "data", tmp_path / "data" / "system")
    made.identity()
    made.listed([P1, P2])
    return made


def read(old: OldSenderTree, receiver: str | None = None) -> OldTool:
    root = old.data.parent
    before = tree_of(root)
    found = read_old_tool([old.data], old.system, old.system / "schema", receiver)
    assert tree_of(root) == before
    return found


def synced(found: OldTool) -> list[str]:
    return sorted(path.text for path in found.lists.synced)


def test_what_0_12_has_written_is_read(old: OldSenderTree) -> None:
    old.schema_position("4711")
    lay(old.system / "schema", {"mlog.bin": bytes(5000)})
    found = read(old)
    assert (found.uuid, found.lists.receiver, found.odd) == (UUID, RECEIVER, ())
    assert synced(found) == [P1, P2]
    assert found.lists.folders == (old.data,)
    assert found.schema == "4711 of the 5000 bytes of mlog.bin"


def test_what_0_11_has_written_is_read(old: OldSenderTree) -> None:
    old.listed([OLD])
    old.schema_position("12")
    lay(old.system / "schema", {"mlog.txt": b"0,root\n"})
    found = read(old)
    assert synced(found) == ["sequence/root.sg/0/2650/1581324718764-103-0.tsfile"]
    assert found.schema == "12 lines of mlog.txt"


def test_a_data_directory_may_have_moved_since(old: OldSenderTree) -> None:
    lines = f"/elsewhere/data/{P1}\r\nC:\\iotdb\\{P2}\r\n".replace(
        f"C:\\iotdb\\{P2}", "C:\\iotdb\\" + P2.replace("/", "\\")
    )
    lay(old.folder, {"last_local_files.txt": lines.encode()})
    assert synced(read(old)) == [P1, P2]


def test_a_list_that_was_being_replaced_counts_as_the_tool_would_take_it(
    old: OldSenderTree,
) -> None:
    old.listed([P1], "current_local_files.txt")
    assert synced(read(old)) == [P1, P2]
    (old.folder / "last_local_files.txt").unlink()
    found = read(old)
    assert synced(found) == [P1]
    assert "being replaced" in found.odd[0]


def test_a_round_that_was_cut_off_counts_as_far_as_it_came(old: OldSenderTree) -> None:
    fresh = "sequence/root.sg/0/2650/1581324718999-200-0.tsfile"
    old.cut_off(deleted=[P1], sent=[fresh])
    found = read(old)
    assert synced(found) == [fresh, P2]
    assert "a round was cut off" in found.odd[0]
    log = old.folder / "sync.log"
    log.write_bytes(log.read_bytes()[:-9])
    assert synced(read(old)) == [P2]


@pytest.mark.parametrize("end", [1, 20, 70])
def test_a_list_that_is_cut_off_counts_as_far_as_it_is_whole(old: OldSenderTree, end: int) -> None:
    listed = old.folder / "last_local_files.txt"
    listed.write_bytes(listed.read_bytes()[:-end])
    found = read(old)
    assert synced(found) == [P1]
    assert "1 line names no file" in found.odd[0]


@pytest.mark.parametrize(
    "junk", [b"\0" * 100, b"\xff\xfe\n", b"no path\n", b"/a/sequence/x/../y\n"]
)
def test_lines_that_are_no_paths_are_told(old: OldSenderTree, junk: bytes) -> None:
    listed = old.folder / "last_local_files.txt"
    listed.write_bytes(listed.read_bytes() + junk)
    found = read(old)
    assert synced(found) == [P1, P2]
    assert "1 line names no file" in found.odd[0]


def test_a_state_that_is_half_there_is_read_as_far_as_it_is(old: OldSenderTree) -> None:
    (old.folder / "last_local_files.txt").unlink()
    (old.folder / "snapshot").mkdir()
    (old.system / "sync" / "uuid.txt").unlink()
    old.schema_position("many")
    found = read(old)
    assert (found.uuid, synced(found), found.schema) == (None, [], "")
    assert "no last_local_files.txt" in found.odd[0]
    assert "uuid.txt is not there" in found.odd[1]
    assert "'many' is no position" in found.odd[2]
    found = read_old_tool([old.data], old.data / "none", old.system, None)
    assert "--system" in found.odd[-1]


def test_an_identity_whose_lists_are_lost_is_read_all_the_same(old: OldSenderTree) -> None:
    assert old_identity(old.system) == UUID
    (old.folder / "last_local_files.txt").unlink()  # the folder is empty then
    with pytest.raises(UsageError, match=r"name its receiver \(--old\)"):
        read(old)
    found = read(old, RECEIVER)
    assert (found.uuid, found.lists.receiver, synced(found)) == (UUID, RECEIVER, [])
    assert found.odd == (f"{old.data}: no sync-sender/{RECEIVER}: nothing counts as synced of it",)
    old.schema_position("4711")
    found = read(old)
    assert (found.uuid, found.lists.receiver, found.lists.folders) == (UUID, RECEIVER, ())
    assert old_identity(old.system) == UUID
    with pytest.raises(UsageError, match="no folder"):
        read(old, "10.0.0.2_5555")


def test_a_position_behind_the_end_of_the_log_is_told(old: OldSenderTree) -> None:
    old.schema_position("4711")
    lay(old.system / "schema", {"mlog.bin": bytes(10)})
    assert "4711 bytes, and mlog.bin has 10" in read(old).odd[0]


@pytest.mark.parametrize("content", [b"", b"A" * 32, b"a45b6e63", b"\xff" * 32])
def test_an_identity_that_is_none_is_an_error_with_a_way_out(
    old: OldSenderTree, content: bytes
) -> None:
    lay(old.system / "sync", {"uuid.txt": content})
    with pytest.raises(DamagedError, match="--uuid"):
        read(old)


def test_of_several_receivers_one_is_named_and_our_own_folders_are_none_of_them(
    old: OldSenderTree,
) -> None:
    lay(
        old.data / "sync-sender" / "dc1_8443",
        {"last_local_files.txt": b"", "local_files.state": b""},
    )
    assert read(old).lists.receiver == RECEIVER
    lay(old.data / "sync-sender" / "10.0.0.1_5555", {"last_local_files.txt": b""})
    with pytest.raises(UsageError, match="several receivers"):
        read(old)
    assert synced(read(old, RECEIVER)) == [P1, P2]
    with pytest.raises(UsageError, match="no folder"):
        read(old, "10.0.0.2_5555")


def test_where_there_was_no_old_tool_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tsferry-sender init"):
        read_old_tool([tmp_path, tmp_path / "gone"], tmp_path, tmp_path, None)


def test_lists_that_a_death_left_half_set_aside_count_all_the_same(
    old: OldSenderTree, tmp_path: Path
) -> None:
    second = OldSenderTree(tmp_path / "disk2" / "data", old.system)
    old.listed([P1])
    second.listed([P2])
    old.folder.rename(old.folder.with_name(f"{RECEIVER}{SET_ASIDE}"))
    dirs = [old.data, second.data]
    for receiver in (None, RECEIVER):
        found = read_old_tool(dirs, old.system, old.system / "schema", receiver)
        assert synced(found) == [P1, P2]
        assert (found.lists.receiver, found.lists.folders) == (RECEIVER, (second.data,))
        assert found.odd == ()
