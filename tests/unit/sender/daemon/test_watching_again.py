"""What the daemon watches, while directories come, go, and are exchanged."""

from __future__ import annotations

import threading

import pytest

from sender.daemon.daemon import Daemon
from tests.support.edge import Edge


@pytest.fixture
def daemon(tmp_path):
    edge = Edge(tmp_path / "edge", "http://127.0.0.1:9")
    daemon = Daemon(edge.config, threading.Event())
    daemon.data = edge.data
    daemon.told = 0

    def changed() -> None:
        daemon.told += 1

    daemon._changed = changed
    daemon._keep_watching()
    yield daemon
    daemon._watch.close()


def test_what_stays_is_watched_on(daemon):
    before = daemon._watch
    daemon._keep_watching()
    assert daemon._watch is before
    assert daemon._watched_well()
    assert not daemon.told


@pytest.mark.parametrize("comes", [True, False])
def test_another_directory_in_its_place_is_watched_anew(daemon, comes):
    """As where a disk is mounted, of which nobody is told."""
    before = daemon._watch
    before.close()
    (daemon.data / "sequence").rename(daemon.data / "away")
    if comes:
        (daemon.data / "sequence").mkdir()
    daemon._keep_watching()
    assert daemon._watch is not before
    assert daemon.told
