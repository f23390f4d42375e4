"""The centre's machine is lost at some moment; another is made of the store, and the edge comes."""

from __future__ import annotations

import random
import shutil
import threading
import time
from pathlib import Path

import pytest

from receiver.metadata.state.table_rows import FileState
from tests.support.centre import Centre
from tests.support.copying_centre import CopyingCentre
from tests.support.edge import Edge
from tests.support.looking import in_sync, loaded, rows
from tests.support.procs import children, wait_until

pytestmark = pytest.mark.slow


class Load:
    """Rounds one after the other, each with a file more, until the receiver is gone."""

    def __init__(self, edge: Edge, first: int) -> None:
        self.edge = edge
        self.written = first
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(3):
                self.edge.write(self.written)
                self.written += 1
            self.edge.round()

    def stop(self) -> int:
        self._stop.set()
        self.edge.stop.set()
        self._thread.join()
        self.edge.stop.clear()
        return self.written


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("before_ack", "lives"),
    [(True, 3), (False, 2), pytest.param(True, 30, marks=pytest.mark.long)],
)
def test_whatever_the_moment_what_was_acknowledged_is_there_or_comes_again(
    tmp_path: Path, before_ack: bool, lives: int
) -> None:
    draws = random.Random(11)
    with children(tmp_path) as processes:
        centre = CopyingCentre(tmp_path / "centre", processes, before_ack=before_ack)
        edge = Edge(tmp_path / "edge", centre.start())
        written = 0
        for _ in range(lives):
            load = Load(edge, written)
            time.sleep(draws.uniform(0.3, 1.2))
            centre.lose_all()
            written = load.stop()
            acknowledged = set(edge.listed)
            named = centre.restore()
            there = loaded(centre.root, edge.uuid).keys()
            # What is in the copy of the log is there, or it is named, and asked for again.
            known = {row.path: row.state for row in rows(centre.root, edge.uuid)}
            assert known.keys() == there | named
            assert {known[each] for each in named} <= {FileState.QUARANTINED}
            if before_ack:
                # A commit may be there sooner than its files; nobody was told of it then.
                assert named.isdisjoint(acknowledged)
                assert acknowledged <= there
            centre.start()
            for _ in range(10):
                if edge.round().quiet:
                    break
        centre.stop()
        in_sync(edge, centre.root)


def test_what_is_nowhere_is_named_as_lost_and_the_rest_comes_again(tmp_path: Path) -> None:
    """The log is in the store, the files are not; the edge has freed one of them meanwhile."""
    with children(tmp_path) as processes:
        centre = CopyingCentre(tmp_path / "centre", processes, before_ack=False, upload="never")
        edge = Edge(tmp_path / "edge", centre.start())
        paths = [edge.write(number) for number in range(4)]
        edge.round()
        newest = int(centre.call("storage", "status")["newest"])
        wait_until(lambda: int(centre.call("storage", "status")["shipped"]) >= newest, "shipped")
        centre.lose_all()
        assert centre.restore() == set(paths)
        edge.remove(paths[0])
        centre.start()
        for _ in range(10):
            if edge.round().quiet:
                break
        lost = [each["path"] for each in centre.call("lost", "list")["files"]]
        centre.stop()
        assert lost == paths[:1]
        assert sorted(loaded(centre.root, edge.uuid)) == paths[1:]


def test_a_backup_beside_a_server_loses_nothing_that_was_acknowledged_before_it(
    tmp_path: Path,
) -> None:
    place = tmp_path / "backup"
    with children(tmp_path) as processes:
        centre = Centre(tmp_path / "centre", processes)
        edge = Edge(tmp_path / "edge", centre.start())
        load = Load(edge, 0)
        time.sleep(0.6)
        acknowledged = set(edge.listed)
        centre.call("backup", str(place))
        found = centre.call("restore", "--check", "--deep", "--from", place.as_uri())
        assert found["found"] == []
        centre.kill()
        load.stop()
        shutil.rmtree(centre.root / "schema")
        shutil.rmtree(centre.data)
        centre.data.mkdir()
        assert centre.call("restore", "--from", place.as_uri())["lacking"] == []
        assert acknowledged <= loaded(centre.root, edge.uuid).keys()
        centre.start()
        for _ in range(10):
            if edge.round().quiet:
                break
        centre.stop()
        in_sync(edge, centre.root)
