"""The centre's machine is lost at some moment; another is made of the store, and the edge comes."""

from __future__ import annotations

import random
import shutil
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from receiver.cli.commands import cli
from tests.support.centre import Centre
from tests.support.edge import Edge
from tests.support.looking import in_sync, loaded
from tests.support.procs import Children, children

pytestmark = pytest.mark.slow


class CopyingCentre(Centre):
    """It has a directory beside its own as its store."""

    def __init__(self, root: Path, processes: Children, *, before_ack: bool) -> None:
        self.bucket = root.parent / "bucket"
        self.bucket.mkdir()
        self.before_ack = before_ack
        super().__init__(root, processes)

    def _write(self) -> None:
        super()._write()
        self.config.write_text(
            f'{self.config.read_text()}[storage]\nurl = "{self.bucket.as_uri()}"\n'
            f"lag = 0.5\nbefore_ack = {str(self.before_ack).lower()}\n"
        )

    def lose_all(self) -> None:
        """The machine burns down; nothing of it is left but the store."""
        self.kill()
        shutil.rmtree(self.root / "schema")
        shutil.rmtree(self.data)
        self.data.mkdir()

    def restore(self) -> None:
        done = CliRunner().invoke(cli, ["--config", str(self.config), "restore"])
        assert done.exit_code in (0, 3), (done.output, done.exception)
        assert (done.exit_code == 3) == ("not in the store:" in done.output)


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
            centre.restore()
            there = loaded(centre.root, edge.uuid).keys()
            if before_ack:
                assert acknowledged <= there
            centre.start()
            for _ in range(10):
                if edge.round().quiet:
                    break
        centre.stop()
        in_sync(edge, centre.root)
