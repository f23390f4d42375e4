"""Edges and centres that differ notice it in the next round, and put it right."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.centre import Centre, centre
from tests.support.edge import Edge
from tests.support.procs import wait_until
from tests.system.test_lost_state import died, operator

HOUR_MS = 3_600_000


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Centre]:
    with centre(tmp_path) as there:
        yield there


@pytest.fixture
def edge(tmp_path: Path, there: Centre) -> Edge:
    return Edge(tmp_path / "edge", there.start())


def settled(edge: Edge, most: int = 4) -> list[int]:
    """Rounds until one has nothing to do; what each sent."""
    sent = []
    for _ in range(most):
        report = edge.round()
        assert report.error is None, report.error
        sent.append(report.sent)
        if not (report.sent or report.retired or report.held or report.already):
            return sent
    raise AssertionError(f"{most} rounds were not enough: {sent}")


def same(edge: Edge, there: Centre) -> None:
    """The edge's files are listed at both ends, and nothing else."""
    assert there.loaded(edge.uuid) == edge.files
    assert edge.listed == sorted(edge.files)


def kept_of(edge: Edge) -> list[Path]:
    return [edge.data / "sync-sender", edge.schema]


def copied(there: Centre, to: Path) -> None:
    there.stop()
    shutil.copytree(there.root / "schema", to / "schema", symlinks=True)
    shutil.copytree(there.data, to / "data", symlinks=True)
    there.start()


def restored(there: Centre, source: Path) -> None:
    there.stop()
    for name in ("schema", "data"):
        shutil.rmtree(there.root / name)
        shutil.copytree(source / name, there.root / name, symlinks=True)
    there.start()


def test_a_round_with_nothing_new_compares_by_one_small_call(edge: Edge, there: Centre) -> None:
    for number in range(1, 6):
        edge.write(number)
    assert settled(edge) == [5, 0]
    same(edge, there)


def test_a_restored_centre_gets_what_it_lacks_and_the_edge_has(
    edge: Edge, there: Centre, tmp_path: Path
) -> None:
    edge.write(1)
    settled(edge)
    copied(there, tmp_path / "copy")
    for number in (2, 3):
        edge.write(number)
    settled(edge)
    restored(there, tmp_path / "copy")
    assert sum(settled(edge)) == 2
    same(edge, there)


def test_what_a_restored_centre_lacks_and_the_edge_has_no_more_is_lost(
    edge: Edge, there: Centre, tmp_path: Path
) -> None:
    edge.write(1)
    settled(edge)
    copied(there, tmp_path / "copy")
    gone, _ = edge.write(2), edge.write(3)
    settled(edge)
    edge.remove(gone)
    restored(there, tmp_path / "copy")
    report = edge.round()
    assert report.error is None
    assert [each.file for each in report.lost] == [gone]
    assert report.exit_code == 3
    settled(edge)
    same(edge, there)
    report = edge.round()
    assert [each.file for each in report.lost] == [gone]
    assert report.complete_until == 2000  # the hole begins there
    assert report.exit_code == 3
    view = there.call("lost", "list")["files"]
    assert [(each["path"], each["first"]) for each in view] == [(gone, "2000")]
    assert there.call("lost", "acknowledge", "--sender", edge.uuid, gone)["files"]
    report = edge.round()
    assert (report.lost, report.exit_code) == ([], 0)
    assert report.complete_until == 3009


def test_a_list_from_an_older_copy_is_put_right(edge: Edge, there: Centre, tmp_path: Path) -> None:
    """Only the lists come from a copy; what is remembered of the receiver is the newest."""
    edge.write(1)
    gone = edge.write(2)
    settled(edge)
    shutil.copytree(edge.data / "sync-sender", tmp_path / "lists")
    edge.remove(gone)
    edge.write(3)
    settled(edge)
    shutil.rmtree(edge.data / "sync-sender")
    shutil.copytree(tmp_path / "lists", edge.data / "sync-sender")
    assert sum(settled(edge)) == 0
    same(edge, there)
    assert there.call("lost", "list")["files"] == []


def test_what_only_the_centre_lists_is_known_again_and_ends(
    edge: Edge, there: Centre, tmp_path: Path
) -> None:
    """It is neither here nor on the list that came from a copy: nothing else would tell its end."""
    edge.write(1)
    settled(edge)
    shutil.copytree(edge.data / "sync-sender", tmp_path / "lists")
    gone = edge.write(2)
    settled(edge)
    edge.remove(gone)
    shutil.rmtree(edge.data / "sync-sender")
    shutil.copytree(tmp_path / "lists", edge.data / "sync-sender")
    settled(edge)
    same(edge, there)
    (row,) = [each for each in there.call("files")["files"] if each["path"] == gone]
    assert row["state"] == "retired"


def test_edge_and_centre_both_from_older_copies(edge: Edge, there: Centre, tmp_path: Path) -> None:
    """The centre's copy is the older one, or the edge's: each gets what the other has."""
    edge.write(1)
    settled(edge)
    copied(there, tmp_path / "centre-1")
    edge.write(2)
    settled(edge)
    shutil.copytree(edge.root, tmp_path / "edge-2")
    copied(there, tmp_path / "centre-2")
    edge.write(3)
    settled(edge)
    restored(there, tmp_path / "centre-1")
    _put_back(edge, tmp_path / "edge-2")
    # The centre knows no epoch that would tell the two apart: nobody is refused.
    assert sum(settled(edge)) == 1
    same(edge, there)
    edge.write(4)
    settled(edge)
    restored(there, tmp_path / "centre-2")
    assert sum(settled(edge)) == 1
    same(edge, there)
    assert there.call("lost", "list")["files"] == []


def test_an_edge_that_is_older_than_the_centre_is_accepted_and_keeps_nothing_listed_that_it_lacks(
    edge: Edge, there: Centre, tmp_path: Path
) -> None:
    edge.write(1)
    settled(edge)
    shutil.copytree(edge.root, tmp_path / "older")
    for number in (2, 3):
        edge.write(number)
        settled(edge)
    _put_back(edge, tmp_path / "older")
    assert edge.round().error is not None  # it might be a clone
    assert operator(there, "senders", "accept", edge.uuid) == 0
    report = edge.round()
    assert (report.error, report.retired, report.held) == (None, 2, [])
    same(edge, there)
    assert settled(edge) == [0]


def _put_back(edge: Edge, source: Path) -> None:
    shutil.rmtree(edge.root)
    shutil.copytree(source, edge.root)


def test_what_the_receiver_let_go_by_itself_does_not_come_again(
    there: Centre, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Expired, or another sender's now: the list says so, and nothing is compared in full."""
    url = there.start(env={"TSFERRY_RECEIVER_METADATA__TTL_EVERY": "1s"})
    edge, other = Edge(tmp_path / "edge", url), Edge(tmp_path / "other", url)
    now = int(time.time() * 1000)
    edge.write(1, first=now - 5 * HOUR_MS)
    edge.write(2, first=now)
    edge.write(3, first=now, device=f"{edge.sg}.moved")
    settled(edge)
    other.sg = "root.other"
    other.write(9, first=now)
    settled(other)
    there.sql(f"set ttl to {edge.sg} {2 * HOUR_MS}")
    wait_until(lambda: there.call("files", "--state", "expired")["files"], "expired")
    caplog.clear()
    assert settled(edge) == [0]
    assert "compared with the inventory" not in caplog.text
    there.call("owners", "transfer", f"{edge.sg}.moved", other.uuid)
    report = edge.round()
    assert (report.sent, report.already, report.conflicts, report.exit_code) == (0, 0, [], 0)
    caplog.clear()
    assert settled(edge) == [0]
    assert "compared with the inventory" not in caplog.text
    assert len(edge.listed) == 3


def test_a_bad_file_that_left_the_list_and_then_the_edge_is_lost_and_not_wanted_for_ever(
    edge: Edge, there: Centre
) -> None:
    """It was to come again, and was deleted here before it did."""
    bad = edge.write(1)
    edge.write(2)
    settled(edge)
    (row,) = [each for each in there.call("files")["files"] if each["path"] == bad]
    there.stop()
    (there.data / row["physical"]).write_bytes(b"something else")
    operator(there, "fsck", "--repair")
    there.start()
    died(edge, "round.taken_back")
    assert bad not in edge.listed
    edge.remove(bad)
    for _ in range(3):
        report = edge.round()
        assert report.error is None
    assert (report.wanted, [each.file for each in report.lost]) == ([], [bad])
    there.call("lost", "acknowledge", "--sender", edge.uuid, "--all")
    assert edge.round().exit_code == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("step", ["round.lost_told", "round.rebuilt"])
def test_a_death_while_it_compares_loses_no_name_of_what_is_lost(
    edge: Edge, there: Centre, tmp_path: Path, step: str
) -> None:
    edge.write(1)
    settled(edge)
    copied(there, tmp_path / "copy")
    gone, _ = edge.write(2), edge.write(3)
    settled(edge)
    edge.remove(gone)
    restored(there, tmp_path / "copy")
    died(edge, step)
    settled(edge)
    same(edge, there)
    assert [each["path"] for each in there.call("lost", "list")["files"]] == [gone]
    assert [each.file for each in edge.round().lost] == [gone]
