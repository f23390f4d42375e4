from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.durable import Tree
from receiver.load.folder.staged import Staged, Verified
from tests.support import tiers

LOG, DATA = "verified.log", "data"


def place(root: Path, name: str, content: bytes = b"content") -> Verified:
    file = root / DATA / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    found = file.stat()
    return Verified(
        path=name, size=len(content), md5="0" * 32, tail="t", inode=found.st_ino,
        mtime_ns=found.st_mtime_ns, at=1.0,
    )  # fmt: skip


def opened(tree: Tree) -> tuple[Staged, list[str]]:
    staged = Staged(tree, LOG, DATA)
    return staged, staged.open()


def test_records_survive_a_restart(tmp_path: Path) -> None:
    with Tree(tmp_path) as tree:
        staged, _ = opened(tree)
        records = [place(tmp_path, f"f{number}") for number in range(3)]
        staged.put(records)
        staged.discard(["f1"])
        again, strays = opened(tree)
        assert again.all() == [records[0], records[2]]
        assert strays == []
        assert again.bytes == 14
        assert not (tmp_path / DATA / "f1").exists()


def test_a_file_without_a_record_is_reported_and_not_believed(tmp_path: Path) -> None:
    with Tree(tmp_path) as tree:
        place(tmp_path, "stray")
        staged, strays = opened(tree)
        assert strays == ["stray"]
        assert staged.get("stray") is None


def test_a_file_that_is_another_one_now_is_not_believed(tmp_path: Path) -> None:
    with Tree(tmp_path) as tree:
        staged, _ = opened(tree)
        staged.put([place(tmp_path, "f")])
        (tmp_path / DATA / "f").unlink()
        place(tmp_path, "f", b"garbage")
        again, strays = opened(tree)
        assert again.get("f") is None
        assert strays == ["f"]


def test_a_record_without_its_file_is_dropped(tmp_path: Path) -> None:
    with Tree(tmp_path) as tree:
        staged, _ = opened(tree)
        staged.put([place(tmp_path, "f")])
        (tmp_path / DATA / "f").unlink()
        again, _ = opened(tree)
        assert again.all() == []
        assert again.bytes == 0


def test_partial_uploads_are_no_strays(tmp_path: Path) -> None:
    with Tree(tmp_path) as tree:
        place(tmp_path, ".uploads/1.part")
        assert opened(tree)[1] == []


def test_the_log_is_rewritten_before_it_grows_without_bound(tmp_path: Path) -> None:
    with Tree(tmp_path) as tree:
        staged, _ = opened(tree)
        record = place(tmp_path, "f")
        for _ in range(30):
            staged.put([record] * 100)
        assert len((tmp_path / LOG).read_bytes().splitlines()) < 1200
        assert opened(tree)[0].all() == [record]


@settings(max_examples=tiers.examples(60))
@given(cut=st.integers(0, 2000), garbage=st.binary(max_size=40))
def test_a_log_cut_anywhere_keeps_what_was_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes
) -> None:
    root = tmp_path_factory.mktemp("staged")
    with Tree(root) as tree:
        staged, _ = opened(tree)
        records = [place(root, f"f{number}") for number in range(5)]
        for record in records:
            staged.put([record])
        data = (root / LOG).read_bytes()
        kept = data[: min(cut, len(data))]
        whole = kept.count(b"\n")
        (root / LOG).write_bytes(kept + garbage.replace(b"\n", b""))
        again, strays = opened(tree)
        expected = records[:whole]
        assert again.all() == expected
        assert strays == [each.path for each in records[whole:]]
        again.put(records[whole:])  # what is appended after the cut can be read
        assert opened(tree)[0].all() == records
