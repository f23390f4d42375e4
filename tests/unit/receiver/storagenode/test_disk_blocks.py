"""Blocks on a cache node's disk: what was kept, or nothing; within what they may take."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import LockedError
from receiver.storagenode import disk_blocks
from receiver.storagenode.disk_blocks import DiskBlocks

HEAD = 22


def name(number: int) -> str:
    return f"{'a' * 32}-{number}"


@pytest.fixture
def blocks(tmp_path: Path) -> Iterator[DiskBlocks]:
    with DiskBlocks(tmp_path, 4 * (100 + HEAD)) as made:
        yield made


def test_the_longest_unused_goes_first_and_all_of_it_is_counted(blocks: DiskBlocks):
    for number in range(4):
        blocks.put(name(number), bytes([number]) * 100)
    assert blocks.get(name(0)) == b"\0" * 100
    blocks.put(name(4), b"x" * 100)
    assert [blocks.get(name(number)) is not None for number in range(5)] == [1, 0, 1, 1, 1]
    assert (blocks.used, len(blocks)) == (4 * (100 + HEAD), 4)
    blocks.put(name(5), b"x" * 500)
    assert blocks.get(name(5)) is None, "it is larger than all that may be kept"


@pytest.mark.parametrize("at", [0, 5, 6, 21, 22, 121, None])
def test_a_block_with_one_other_bit_or_cut_off_is_none(blocks: DiskBlocks, tmp_path: Path, at: int):
    blocks.put(name(1), b"y" * 100)
    file = tmp_path / name(1)
    content = bytearray(file.read_bytes())
    if at is None:
        del content[60:]
    else:
        content[at] ^= 8
    file.write_bytes(content)
    assert blocks.get(name(1)) is None
    assert (blocks.rotten, blocks.used, file.exists()) == (1, 0, False)
    blocks.put(name(1), b"y" * 100)
    assert blocks.get(name(1)) == b"y" * 100


def test_a_block_under_the_name_of_another_one_is_none(blocks: DiskBlocks, tmp_path: Path):
    blocks.put(name(1), b"1" * 100)
    blocks.put(name(2), b"2" * 100)
    os.replace(tmp_path / name(1), tmp_path / name(2))
    assert [blocks.get(name(1)), blocks.get(name(2))] == [None, None]


def test_a_start_finds_what_is_there_takes_away_what_is_too_much_and_leaves_all_else(
    tmp_path: Path,
):
    with DiskBlocks(tmp_path, 1 << 20) as blocks:
        for number in range(4):
            blocks.put(name(number), b"z" * 100)
            os.utime(tmp_path / name(number), ns=(number, 10 - number))
    (tmp_path / "other").write_bytes(b"not ours")
    (tmp_path / f".{'0' * 16}.tmp").write_bytes(b"half")
    with DiskBlocks(tmp_path, 2 * (100 + HEAD)) as blocks:
        assert sorted(each.name for each in tmp_path.iterdir()) == [
            name(0),
            name(1),
            "cache.lock",
            "other",
        ]
        assert blocks.get(name(0)) == b"z" * 100
        with pytest.raises(LockedError):
            DiskBlocks(tmp_path, 1)


def test_a_disk_that_takes_nothing_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now, tried = [0.0], []

    def full(path: Path, pieces: object) -> None:
        tried.append(path)
        raise OSError(errno.ENOSPC, "no room")

    with DiskBlocks(tmp_path, 1 << 20, monotonic=lambda: now[0]) as blocks:
        with monkeypatch.context() as patched:
            patched.setattr(disk_blocks, "write_scratch", full)
            for number in range(3):
                blocks.put(name(number), b"q" * 100)
        assert (len(tried), blocks.used, "no room" in blocks.problem) == (1, 0, True)
        blocks.put(name(1), b"q" * 100)
        assert blocks.get(name(1)) is None
        now[0] = 31.0
        blocks.put(name(1), b"q" * 100)
        assert (blocks.get(name(1)), blocks.problem) == (b"q" * 100, "")
