"""Rounds whose bytes travel compressed, on good lines and bad ones, to a real receiver."""

from __future__ import annotations

import pytest

from common import zstd
from tests.support.faultproxy import Fault, FaultProxy
from tests.support.looking import in_sync, once

SETTINGS = {"chunk_bytes": 65_536, "batch_bytes": 4096, "parallel": 1}


@pytest.fixture
def line(shared):
    with FaultProxy(("127.0.0.1", shared.port)) as proxy:
        yield proxy


def edge_on(make_edge, line, mode="zstd"):
    edge = make_edge(line.url, transfer=SETTINGS | {"compression": mode})
    edge.write(1, points=20_000)
    edge.write(2, resource=b"resource" * 100)
    edge.write(3)
    return edge


@pytest.mark.parametrize("mode", ["zstd", "off"])
def test_blocks_and_batches_travel_as_the_configuration_has_it(shared, make_edge, line, mode):
    edge = edge_on(make_edge, line, mode)
    before = line.up
    assert edge.round().exit_code == 0
    travelled, there = line.up - before, sum(len(edge.content(path)) for path in edge.files)
    assert travelled < there / 2 if mode == "zstd" else travelled > there
    in_sync(edge, shared.root)


@pytest.mark.few(3)
@pytest.mark.parametrize("place", range(1, 8))
def test_a_line_that_breaks_in_the_middle_of_a_compressed_body_costs_a_try(
    shared, make_edge, line, place
):
    edge = edge_on(make_edge, line)
    line.then(Fault(cut_up=place * 5000), Fault(cut_up=place * 2500))
    assert edge.round().exit_code == 0
    in_sync(edge, shared.root)
    once(shared.root, edge.uuid)


def test_a_sender_without_the_library_sends_bytes_as_they_are(shared, make_edge, line, monkeypatch):
    edge = edge_on(make_edge, line)
    before = line.up
    monkeypatch.setattr(zstd, "codec", lambda: None)
    assert edge.round().exit_code == 0
    assert line.up - before > len(edge.content(edge.path(1)))
    in_sync(edge, shared.root)
