from __future__ import annotations

import pytest

from common.errors import UsageError
from sender.select.data_dirs import DataDirs, mark, read_marker
from tests.support.site import Site

UUID = "a45b6e63eb434aad891264b5c08d448e"
OTHER = "0" * 32


def test_a_marked_directory_counts(tmp_path):
    assert mark(tmp_path, UUID)
    assert not mark(tmp_path, UUID)
    with DataDirs.open([tmp_path], UUID) as dirs:
        assert dirs.mounted == (tmp_path,)
        assert dirs.unmounted == ()
        assert read_marker(dirs.trees[tmp_path]) == UUID


def test_a_directory_without_its_marker_counts_as_not_mounted(tmp_path):
    with DataDirs.open([tmp_path, tmp_path / "missing"], UUID) as dirs:
        assert dirs.mounted == ()
        assert [each.data_dir for each in dirs.unmounted] == [tmp_path, tmp_path / "missing"]
        assert "no marker" in dirs.unmounted[0].reason


def test_a_directory_of_another_sender_is_shown_and_not_used(tmp_path):
    mark(tmp_path, OTHER)
    with DataDirs.open([tmp_path], UUID) as dirs:
        assert dirs.mounted == ()
        assert OTHER in dirs.unmounted[0].reason
    with pytest.raises(UsageError, match=OTHER):
        mark(tmp_path, UUID)
    assert mark(tmp_path, UUID, adopt=True)
    with DataDirs.open([tmp_path], UUID) as dirs:
        assert dirs.mounted == (tmp_path,)


@pytest.mark.parametrize("content", [b"", b"\0" * 70, b"tsferry data directory 1\nsender x\n"])
def test_a_damaged_marker_is_shown_and_not_replaced_in_silence(tmp_path, content):
    (tmp_path / ".tsferry").write_bytes(content)
    with DataDirs.open([tmp_path], UUID) as dirs:
        assert dirs.mounted == ()
        assert "damaged" in dirs.unmounted[0].reason
    with pytest.raises(UsageError):
        mark(tmp_path, UUID)
    assert mark(tmp_path, UUID, adopt=True)


def test_a_directory_that_is_not_there_cannot_be_marked(tmp_path):
    with pytest.raises(UsageError, match="make or mount it first"):
        mark(tmp_path / "missing", UUID)


def test_a_receivers_directories_need_no_marker(tmp_path):
    with DataDirs.unmarked([tmp_path, tmp_path / "missing"]) as dirs:
        assert dirs.mounted == (tmp_path,)
        assert len(dirs.unmounted) == 1


def test_a_marker_that_comes_back_brings_the_directory_back(tmp_path):
    edge = Site(tmp_path)
    marker = edge.data_dirs[0] / ".tsferry"
    content = marker.read_bytes()
    marker.unlink()
    assert edge.reopen().mounted == ()
    marker.write_bytes(content)
    assert edge.reopen().mounted == edge.data_dirs
