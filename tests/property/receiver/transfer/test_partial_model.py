"""A partial upload against a plain model: bytes that were acknowledged, and nothing else."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.durable import Tree
from receiver.transfer.receiving.partial import PartialUpload, UploadMeta
from tests.support import tiers

ID = "1" * 32
CONTENT = random.Random(7).randbytes(5000)


def meta() -> UploadMeta:
    return UploadMeta(
        id=ID, sender="a" * 32, owner="token:x", path="sequence/root.sg/0/0/1-1-0.tsfile",
        length=len(CONTENT), created=1.0,
    )  # fmt: skip


def write(tree: Tree, partial: PartialUpload, size: int, *, commit: bool = True) -> None:
    at = partial.offset
    block = CONTENT[at : min(at + size, len(CONTENT) - 1)]
    if not block:
        return
    with tree.open_write(partial.part) as file:
        pending = partial.write(file, block)
        if commit:
            partial.flush(file)
            partial.count(pending)
        else:
            partial.give_up(file, partial.offset)
            partial.prepare()


def reopened(tree: Tree) -> PartialUpload:
    partial = PartialUpload.open(tree, "up", ID)
    assert partial is not None
    partial.prepare()
    return partial


def finished(tree: Tree, partial: PartialUpload) -> str:
    with tree.open_write(partial.part) as file:
        pending = partial.write(file, CONTENT[partial.offset :])
    assert (tree.path / partial.part).read_bytes() == CONTENT
    return pending.md5.hexdigest()


steps = st.lists(
    st.tuples(st.sampled_from(["good", "broken", "restart"]), st.integers(1, 1500)), max_size=12
)


@settings(max_examples=tiers.examples(80))
@given(steps=steps)
def test_any_order_of_blocks_breaks_and_restarts_ends_in_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    with Tree(tmp_path_factory.mktemp("partial")) as tree:
        tree.make_dirs("up")
        partial = PartialUpload.create(tree, "up", meta())
        acknowledged = 0
        for kind, size in steps:
            if kind == "restart":
                partial = reopened(tree)
            else:
                write(tree, partial, size, commit=kind == "good")
            assert partial.offset >= acknowledged
            if kind != "good":
                assert partial.offset == acknowledged
            acknowledged = partial.offset
        assert finished(tree, partial) == hashlib.md5(CONTENT).hexdigest()


@settings(max_examples=tiers.examples(120))
@given(
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=6),
    which=st.sampled_from(["part", "upload"]),
    cut=st.integers(0, 6000),
    tail=st.binary(max_size=60),
)
def test_whatever_a_power_cut_does_to_the_end_of_a_file_garbage_never_counts(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    which: str,
    cut: int,
    tail: bytes,
) -> None:
    with Tree(tmp_path_factory.mktemp("partial")) as tree:
        tree.make_dirs("up")
        partial = PartialUpload.create(tree, "up", meta())
        ends = [0]
        for size in sizes:
            write(tree, partial, size)
            ends.append(partial.offset)
        file = tree.path / (partial.part if which == "part" else partial.log)
        data = file.read_bytes()
        first_line = (tree.path / partial.log).read_bytes().index(b"\n") + 1
        keep = cut % (len(data) + 1)
        if which == "upload":
            keep = max(keep, first_line)
        file.write_bytes(data[:keep] + tail)
        again = reopened(tree)
        assert again.offset in ends
        if keep == len(data):
            assert again.offset == ends[-1]
        if which == "part":
            whole = [end for end in ends if end <= keep or same(end, data, keep, tail)]
            assert again.offset == max(whole)
        assert (tree.path / again.part).stat().st_size == again.offset
        assert finished(tree, again) == hashlib.md5(CONTENT).hexdigest()


def same(end: int, data: bytes, keep: int, tail: bytes) -> bool:
    """Whether the garbage happens to be what was there."""
    return (data[:keep] + tail)[:end] == data[:end] and len(data[:keep] + tail) >= end


@settings(max_examples=tiers.examples(80))
@given(position=st.integers(0, 4000), flip=st.integers(1, 255))
def test_a_flipped_byte_cuts_back_to_the_block_before_it(
    tmp_path_factory: pytest.TempPathFactory, position: int, flip: int
) -> None:
    with Tree(tmp_path_factory.mktemp("partial")) as tree:
        tree.make_dirs("up")
        partial = PartialUpload.create(tree, "up", meta())
        for _ in range(4):
            write(tree, partial, 1000)
        file = tree.path / partial.part
        data = bytearray(file.read_bytes())
        position %= len(data)
        data[position] ^= flip
        file.write_bytes(data)
        assert reopened(tree).offset == position // 1000 * 1000


def test_a_lost_first_line_takes_the_upload_away_and_nothing_else(tmp_path: Path) -> None:
    with Tree(tmp_path) as tree:
        tree.make_dirs("up")
        partial = PartialUpload.create(tree, "up", meta())
        (tmp_path / partial.log).write_bytes(b"\0" * 200)
        (tmp_path / "up" / "other.part").write_bytes(b"x")
        assert PartialUpload.open(tree, "up", ID) is None
        assert [each.name for each in (tmp_path / "up").iterdir()] == ["other.part"]
