"""The log of a partial upload: what could not be written to it never hides what comes behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from common.durable import AppendFile, Tree
from common.errors import NoSpaceError
from receiver.transfer.receiving.partial import PartialUpload, UploadMeta

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

META = UploadMeta(
    id="0" * 32, sender="1" * 32, owner="1" * 32, path="sequence/root.sg/0/0/1-1-0.tsfile",
    length=6, created=0.0,
)  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    tmp_path.joinpath("uploads").mkdir()
    with Tree(tmp_path) as tree:
        yield tree


def take(tree: Tree, partial: PartialUpload, data: bytes) -> None:
    partial.prepare()
    with tree.open_write(partial.part) as file:
        pending = partial.write(file, data)
        partial.flush(file)
        partial.count(pending)


def test_a_block_counts_though_half_a_line_was_left_before_its_own(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = PartialUpload.create(tree, "uploads", META)
    take(tree, partial, b"ab")

    def half(log: AppendFile, data: bytes) -> int:
        os.write(log.fileno(), data[:3])  # and cutting it back failed too
        raise NoSpaceError("full")

    with monkeypatch.context() as broken:
        broken.setattr(AppendFile, "append", half)
        with pytest.raises(NoSpaceError):
            take(tree, partial, b"cd")
    assert not partial.is_read
    take(tree, partial, b"cd")
    found = PartialUpload.open(tree, "uploads", META.id)
    assert found is not None
    assert found.offset == partial.offset == 4
    assert found.prepare() == 4


def test_a_block_costs_two_flushes(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    partial = PartialUpload.create(tree, "uploads", META)
    flushed: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda fd, real=real: (flushed.append("one"), real(fd)))
    take(tree, partial, b"ab")
    assert len(flushed) == 2
