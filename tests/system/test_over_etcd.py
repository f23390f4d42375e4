"""A receiver that keeps its commits in etcd starts again from etcd and the files."""

from __future__ import annotations

import shutil

import pytest

from tests.support.centre import Centre
from tests.support.looking import loaded, once
from tests.support.procs import children

pytestmark = pytest.mark.slow


class EtcdCentre(Centre):
    """Its configuration names etcd."""

    def __init__(self, root, processes, settings):
        self.settings = settings
        super().__init__(root, processes)

    def _write(self):
        super()._write()
        self.config.write_text(
            f'{self.config.read_text()}[metadata]\nbackend = "etcd"\n'
            f'[metadata.etcd]\nendpoints = ["{self.settings.endpoints[0]}"]\n'
            f'prefix = "{self.settings.prefix}"\nlease = "2s"\ntimeout = "1s"\n'
        )


def test_a_receiver_that_lost_its_schema_directory_goes_on_with_every_file(
    own_etcd, make_edge, tmp_path
):
    with children(tmp_path) as processes:
        centre = EtcdCentre(tmp_path / "centre", processes, own_etcd.settings())
        edge = make_edge(centre.start())
        for number in range(3):
            edge.write(number)
        assert edge.round().sent == 3
        centre.sql("set storage group to root.by_hand")
        series = centre.sql("show timeseries")
        centre.kill()
        shutil.rmtree(centre.root / "schema")
        centre.start()
        assert centre.sql("show timeseries") == series
        assert "root.by_hand" in centre.sql("show storage group")
        edge.write(7)
        assert edge.round().sent == 1
        assert edge.round().quiet
        centre.stop()
        assert len(loaded(centre.root, edge.uuid)) == 4
        once(centre.root, edge.uuid)


def test_while_etcd_is_away_nothing_is_loaded_and_nothing_is_lost(own_etcd, make_edge, tmp_path):
    with children(tmp_path) as processes:
        centre = EtcdCentre(tmp_path / "centre", processes, own_etcd.settings())
        edge = make_edge(centre.start())
        edge.write(1)
        edge.round()
        own_etcd.kill()
        edge.write(2)
        report = edge.round()
        assert report.error is not None or not report.sent
        own_etcd.start()
        for _ in range(5):
            if edge.round().quiet:
                break
        assert edge.round().quiet
        centre.stop()
        assert len(loaded(centre.root, edge.uuid)) == 2
        once(centre.root, edge.uuid)


def test_a_second_receiver_does_not_start(own_etcd, tmp_path):
    with children(tmp_path) as processes:
        settings = own_etcd.settings()
        first = EtcdCentre(tmp_path / "one", processes, settings)
        first.start()
        second = EtcdCentre(tmp_path / "two", processes, settings)
        child = processes.start(
            [*first.server.arguments[:1], "--config", str(second.config), "serve"], forked=True
        )
        assert child.wait() == 5, child.text()
        assert "in etcd" in child.text()
        first.sql("set storage group to root.a")
        first.stop()
        second.start()
        assert "root.a" in second.sql("show storage group")
