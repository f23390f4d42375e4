"""Digests of blocks come of the reading that puts a file, and are those of all of it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.digests import md5
from receiver.storage.reading.block_digests import BlockDigests
from receiver.storage.stores.object_content import FileContent, checked_blocks
from receiver.storage.uploading.digest_uploads import ReadContent

SIZE = (5 << 20) + 123


@pytest.fixture
def content(tmp_path: Path) -> Iterator[FileContent]:
    data = random.Random(1).randbytes(SIZE)
    (tmp_path / "file").write_bytes(data)
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    yield FileContent(fd, SIZE, md5(data).hexdigest())
    os.close(fd)


@pytest.mark.few(5)
@pytest.mark.parametrize("block", [1 << 20, 2 << 20, 16 << 20, 100_000])
@pytest.mark.parametrize("readings", [0, 1, 2])
def test_they_are_the_same_however_it_was_read(
    content: FileContent, block: int, readings: int
) -> None:
    watched = ReadContent(content)
    for _ in range(readings):
        assert sum(map(len, checked_blocks(watched, block=block))) == SIZE
    assert watched.blocks() == BlockDigests.of(content)


def test_a_reading_that_was_cut_off_counts_for_nothing(content: FileContent) -> None:
    watched = ReadContent(content)
    watched.read(0, 2 << 20)
    watched.read(3 << 20, SIZE - (3 << 20))
    assert watched.blocks() == BlockDigests.of(content)
