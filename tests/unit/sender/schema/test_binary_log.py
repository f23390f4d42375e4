"""The binary log of a database, and the snapshot of its tree, as lines of the text log."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

import pytest

from common.durable import memory_file
from common.errors import DamagedError, UnsafePathError
from sender.schema.binary_log import BinaryLog, binary_nodes
from sender.schema.text_log import TextLog
from tests.support import binary_mlog as made
from tests.support.architecture import ROOT

REAL = Path(__file__).resolve().parents[5] / "shared/tsfiles/iotdb-0.12.0-schema"
FOREVER = (1 << 63) - 1


def lines(*frames: bytes) -> list[str]:
    return [line.rstrip("\n") for line in log_in(*frames).lines()]


def log_in(*frames: bytes, region: bool = False, tags_at: int = 0) -> BinaryLog:
    descriptor = memory_file(frames)
    log = BinaryLog(descriptor, "mlog.bin", region=region, tags_at=tags_at)
    weakref.finalize(log, os.close, descriptor)
    return log


def region_lines(*frames: bytes, tags_at: int = 0) -> list[str]:
    log = log_in(*frames, region=True, tags_at=tags_at)
    return [line.rstrip("\n") for line in log.lines()]


def log_of(folder: Path) -> str:
    with TextLog.open(folder) as log:
        assert log is not None
        return log._read(0, log.end).decode()


def test_each_record_becomes_its_line() -> None:
    assert lines(
        made.storage_group("root.a"),
        made.created("root.a.d.s", (1, 2, 1), alias="warm", tags={"k": "v"}, offset=700),
        made.created("root.a.d.t", props={"max_point_number": "2"}),
        made.ttl_set("root.a", 3600000),
        made.deleted("root.a.d.s", "root.a.d.t"),
        made.deleted("root.b", group=True),
        made.moved_tags("root.a.d.s", 1400),
        made.renamed("root.a.d.s", "hot"),
        made.renamed("root.a.d.s", None),
    ) == [
        "2,root.a",
        "0,root.a.d.s,1,2,1,,warm,700",
        "0,root.a.d.t,3,8,1,max_point_number=2,,",
        "10,root.a,3600000",
        "1,root.a.d.s",
        "1,root.a.d.t",
        "11,root.b",
        "12,root.a.d.s,1400",
        "13,root.a.d.s,hot",
        "13,root.a.d.s,",
    ]


def test_what_the_text_log_cannot_say_is_no_operation_and_names_itself() -> None:
    found = lines(
        made.created("root.a.d.s", alias="a,b"),
        made.storage_group("root.a\nb"),
        made.frame(b"\x29rest"),
    )
    assert "root.a.d.s" in found[0]
    assert r"root.a\nb" in found[1]
    assert found[2] == "record 41 of the binary log"
    assert not any(line.startswith(tuple("0123456789#")) for line in found)


@pytest.mark.parametrize("cut", range(1, 33))
def test_a_torn_end_is_left_for_later(cut: int) -> None:
    assert lines(made.storage_group("root.a"), made.storage_group("root.sg1")[:cut]) == ["2,root.a"]


@pytest.mark.parametrize("at", [0, 1, 3, 4, 10, 15, 24, 30])
def test_damage_in_the_middle_names_file_and_offset(at: int) -> None:
    first, second = made.storage_group("root.aaa"), bytearray(made.storage_group("root.b"))
    second[at] ^= 0x11
    data = first + bytes(second) + made.storage_group("root.c")
    with pytest.raises(DamagedError, match=f"mlog.bin, byte {len(first)}:"):
        lines(data)


def test_a_sound_frame_with_too_little_in_it_is_damage() -> None:
    with pytest.raises(DamagedError, match=r"byte 0: .*middle of a member"):
        lines(made.frame(b"\x03\x00\x00\x00\x09root"))


def snapshot() -> bytes:
    return b"".join(
        [
            made.series_node("s1", "warm", 700),
            made.series_node("s2", None, -1),
            made.inner_node("d1", 2),
            made.group_node("a", 60000, 1),
            made.group_node("b", FOREVER, 0),
            made.inner_node("root", 2),
        ]
    )


TREE = ["2,root.a", "10,root.a,60000", "0,root.a.d1.s1,3,8,1,,warm,700", "0,root.a.d1.s2,3,8,1,,,"]


def test_a_binary_snapshot_comes_before_the_log(tmp_path: Path) -> None:
    (tmp_path / "mtree-1.snapshot.bin").write_bytes(snapshot())
    (tmp_path / "mtree-1.snapshot.bin.tmp").write_bytes(b"half")
    assert log_of(tmp_path).splitlines() == [*TREE, "2,root.b"]
    (tmp_path / "mlog.bin").write_bytes(made.deleted("root.a.d1.s1"))
    (tmp_path / "mlog.txt").write_text("2,root.of.an.older.version\n")
    assert log_of(tmp_path).splitlines() == [*TREE, "2,root.b", "1,root.a.d1.s1"]


def test_a_text_snapshot_comes_before_the_text_log(tmp_path: Path) -> None:
    (tmp_path / "mtree.snapshot").write_text(
        "2,s1,warm,3,8,1,,700,0\n2,s2,,3,8,1,k:v;,-1,0\n0,d1,2\n1,a,60000,1\n0,root,1\n"
    )
    (tmp_path / "mlog.txt").write_text("1,root.a.d1.s1\n2,roo")
    assert log_of(tmp_path).splitlines() == [
        *TREE[:3],
        "0,root.a.d1.s2,3,8,1,k=v,,",
        "1,root.a.d1.s1",
    ]


@pytest.mark.parametrize("cut", [1, 30, 60, 100])
def test_a_snapshot_that_is_cut_off_is_damage(cut: int) -> None:
    with pytest.raises(DamagedError, match="mtree"):
        list(binary_nodes(snapshot()[:-cut], "mtree-1.snapshot.bin"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2,s1,,3,8,1,,-1,0\n0,root,2\n", "children"),
        ("0,d1,0\n", "no whole tree"),
        ("0,d1,0\n0,d2,0\n0,root,1\n", "no whole tree"),
        ("0,d1,0\nwhat\n0,root,1\n", "byte 7: 'what' is no node"),
        ("0,d1,0\n0,root,1", "byte 7: .*middle of a line"),
    ],
)
def test_a_text_snapshot_that_is_no_tree_is_damage(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "mtree.snapshot").write_text(text)
    with pytest.raises(DamagedError, match=f"mtree.snapshot.*{why}"), TextLog.open(tmp_path):
        pass


@pytest.mark.parametrize("name", ["mlog.bin", "mtree.snapshot"])
def test_links_are_not_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/etc/hostname")
    with pytest.raises(UnsafePathError, match=name), TextLog.open(tmp_path):
        pass


def test_records_of_a_region_need_no_checksum_and_have_their_tags_elsewhere() -> None:
    assert region_lines(
        made.unchecked(made.created("root.a.d.s", (1, 2, 3), alias="warm", offset=700)),
        made.created("root.a.d.t", (1, 2, 7)),  # of 0.13, with its checksum
        made.region_frame(b"\x28\x00\x00\x00\x08root.a.e" + bytes(8)),
        made.aligned("root.a.e", ["x", "y.z"], aliases=["first", None], offset=0),
        made.unchecked(made.moved_tags("root.a.d.t", 1400)),
        made.unchecked(made.renamed("root.a.d.t", "hot")),
        made.region_frame(b"\x40\x02anything"),
        made.unchecked(made.deleted("root.a.d.s")),
        tags_at=1 << 40,
    ) == [
        f"0,root.a.d.s,1,2,7,,warm,{(1 << 40) + 700}",
        "0,root.a.d.t,1,2,7,,,",
        "#aligned,root.a.e",
        f"0,root.a.e.x,3,8,1,,first,{1 << 40}",
        f"0,root.a.e.`y.z`,3,8,1,,,{1 << 40}",
        f"12,root.a.d.t,{(1 << 40) + 1400}",
        "13,root.a.d.t,hot",
        "1,root.a.d.s",
    ]


def test_what_is_not_read_of_a_region_is_said_once_and_counted() -> None:
    kinds = (63, 63, 66, 100, 108, 120)
    log = log_in(*(made.region_frame(bytes([kind]) + b"rest") for kind in kinds), region=True)
    assert list(log.lines()) == [
        "schema templates, not read of mlog.bin\n",
        "logical views, not read of mlog.bin\n",
        "devices and attributes of tables, not read of mlog.bin\n",
        "records 120, not read of mlog.bin\n",
    ]
    assert list(log.unread.values()) == [2, 1, 2, 1]


@pytest.mark.parametrize("cut", range(1, 50, 3))
def test_a_torn_end_of_a_region_is_left_for_later(cut: int) -> None:
    whole = made.unchecked(made.created("root.a.d.s"))
    for torn in (whole[:cut], bytes(cut)):
        log = log_in(whole, torn, region=True)
        assert len(list(log.lines())) == 1
        assert log.read == len(whole)


@pytest.mark.parametrize("at", [0, 3, 8, 45])
def test_damage_in_the_middle_of_a_region_is_found(at: int) -> None:
    first, second = (made.unchecked(made.created(f"root.a.d.{each}")) for each in ("s", "t"))
    broken = bytearray(second)
    broken[at] ^= 0x7F
    with pytest.raises(DamagedError, match=f"byte {len(first)}:"):
        region_lines(first, bytes(broken), made.unchecked(made.created("root.a.d.u")))


def test_a_log_longer_than_a_window_is_read_piece_by_piece(monkeypatch) -> None:
    monkeypatch.setattr("sender.schema.binary_log._WINDOW", 100)
    frames = [made.unchecked(made.created(f"root.a.d.s{each}")) for each in range(50)]
    frames.append(made.aligned("root.a.e", [f"x{each}" for each in range(100)]))
    frames.append(made.unchecked(made.created("root.a.d.last")))
    log = log_in(*frames, b"\x00\x00", region=True)
    assert len(list(log.lines())) == 50 + 101 + 1
    assert log.read == sum(map(len, frames))


@pytest.mark.parametrize("version", ["1.0.1", "2.0.1-beta"])
def test_a_real_log_that_is_cut_anywhere_is_read_on_when_it_is_whole(version: str) -> None:
    data = (ROOT / "tests/data/iotdb-regions" / version / "root.plant/0/mlog.bin").read_bytes()
    whole = region_lines(data)
    assert len(whole) > 10
    for cut in range(0, len(data), 5):
        log = log_in(data[:cut], region=True)
        before = list(log.lines())
        rest = log_in(data, region=True)
        rest.read, rest.unread = log.read, log.unread
        assert [each.rstrip() for each in (*before, *rest.lines())] == whole, cut


def test_the_log_of_a_real_server() -> None:
    if not REAL.is_dir():
        return
    found = log_of(REAL).splitlines()
    assert len(found) == 163
    assert found[:6] == [
        "2,root.sg1",
        "2,root.sg2",
        "2,root.sg3",
        "0,root.sg1.d0.s1,1,2,1,,temperature,0",
        "0,root.sg1.d1.s1,1,4,1,,,700",
        "10,root.sg3,360000000",
    ]
    assert found[-1] == "10,root.sg2,85820988"
    assert sum(line.startswith("1,root.sg2.d") for line in found) == 7
    assert not any("record" in line for line in found)
