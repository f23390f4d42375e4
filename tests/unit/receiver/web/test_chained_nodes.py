"""A node that follows a node: it comes after, knows how far behind it is, and goes in no circle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.config import Secret
from receiver.config import FollowConfig, ReceiverConfig
from receiver.follower.log_source import CircleError
from receiver.follower.read_node import ReadNode
from receiver.metadata.sql.executing import execute
from receiver.storage.reading.several_addresses import Failover
from receiver.web.app import close, create_app, site_of
from tests.support.followed import FollowedCentre, known, wait_for
from tests.support.web import running

MADE = "create timeseries root.sg.d9.{} with datatype=INT32, encoding=RLE"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("receiver.follower.follower._WAIT", 0.1)
    monkeypatch.setattr("receiver.follower.follower._SOONEST", 0.05)
    monkeypatch.setattr("receiver.follower.follower._LATEST", 0.2)


@contextmanager
def served(config: ReceiverConfig, port: int = 0) -> Iterator[tuple[Any, str]]:
    """A receiver or a node with its server, and the address of that."""
    app = create_app(config)
    site_of(app).access.accept_operator("operators-secret")
    try:
        with running(app, gate=site_of(app).gate, port=port) as server:
            yield site_of(app).node, f"http://127.0.0.1:{server.addresses[0][1]}"
    finally:
        close(app)


def following(config: ReceiverConfig, place: Path, url: str, **more: Any) -> ReceiverConfig:
    follow = FollowConfig(url=url, token=Secret("operators-secret"), **more)
    return msgspec.structs.replace(config, schema_dir=place, follow=follow)


def move(source: Any, url: str) -> None:
    """Have a follower look for its source elsewhere."""
    (calls,) = source._several
    calls._leads = Failover([url])


def made(node: Any) -> set[str]:
    rows = execute(node.engine, "show timeseries root.**")
    return {str(row[0]).rpartition(".")[2] for row in rows}


def test_what_is_committed_comes_through_nodes_and_each_knows_where_the_writer_is(
    world: Any, tmp_path: Path
) -> None:
    with (
        served(world.config) as (receiver, url),
        served(following(world.config, tmp_path / "near", url)) as (_, near),
        served(following(world.config, tmp_path / "middle", near)) as (_, middle),
        ReadNode.open(following(world.config, tmp_path / "far", middle)) as far,
    ):
        execute(receiver.engine, "set storage group to root.sg")
        for number in range(3):
            execute(receiver.engine, MADE.format(f"s{number}"))
            wait_for(lambda: made(far) == made(receiver))
        receiver.engine.checkpoint()
        execute(receiver.engine, MADE.format("last"))
        wait_for(lambda: far.engine.newest_commit == receiver.engine.newest_commit)
        wait_for(lambda: far.writer == url)
        assert url in far.not_the_writer().message
        found = far.follows()
        assert found.problem is None
        assert found.behind is not None
        assert found.behind < 60
        assert far.follower.reach(receiver.engine.newest_commit + 1, 60)  # nothing newer is there


def test_one_that_has_all_of_a_node_that_stands_still_is_as_far_behind_as_that(
    world: Any, tmp_path: Path
) -> None:
    with served(world.config) as (receiver, url):
        execute(receiver.engine, "set storage group to root.sg")
        near = following(world.config, tmp_path / "near", url)
        with (
            served(near) as (node, there),
            ReadNode.open(following(world.config, tmp_path / "far", there)) as far,
        ):
            wait_for(lambda: node.follows().level_at and far.follows().level_at)
            node.follower._source.close()
            move(node.follower._source, url.replace("127", "126"))
            wait_for(lambda: node.follows().problem)
            level = far.follows().level_at
            for hours in (1, 2):
                ahead = hours * 3600.0
                node.follower._monotonic = lambda ahead=ahead: time.monotonic() + ahead
                wait_for(lambda ahead=ahead: far.follows().behind >= ahead)
                assert far.follows().behind == pytest.approx(ahead, abs=600)
                assert far.follows().level_at == pytest.approx(level - ahead, abs=600)
        with (
            # From its own copy, which has reached nobody since its start.
            served(following(world.config, tmp_path / "near", "http://127.0.0.1:1")) as (_, there),
            ReadNode.open(following(world.config, tmp_path / "far", there)) as far,
        ):
            assert "does not follow" in wait_for(lambda: far.follows().problem)
            assert far.follows().level_at is None
            assert made(far) == made(receiver)


def test_a_circle_of_nodes_is_told_of_and_stands_still(world: Any, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with served(world.config) as (receiver, url):
        execute(receiver.engine, "set storage group to root.sg")
        for place in (one, two):
            ReadNode.open(following(world.config, place, url)).close()
    with (
        served(following(world.config, one, "http://127.0.0.1:1")) as (first, here),
        served(following(world.config, two, here)) as (second, there),
    ):
        move(first.follower._source, there)
        said = wait_for(
            lambda: [
                each.follows().problem
                for each in (first, second)
                if "follows this node" in (each.follows().problem or "")
            ]
        )
        assert "by 1 others" in said[0]
        assert first.follows().level_at is second.follows().level_at is None
    with served(following(world.config, one, "http://127.0.0.1:1")) as (first, here):
        move(first.follower._source, here)
        with pytest.raises(CircleError):
            wait_for(lambda: first.follower.step())


def test_behind_a_store_and_a_restored_receiver_all_of_a_chain_begins_anew(
    tmp_path: Path,
) -> None:
    centre = FollowedCentre(tmp_path)
    try:
        centre.commit(0, 1, 2)
        near = centre.config("near", poll=0.05)
        with served(near) as (node, there):
            port = int(there.rpartition(":")[2])
            far = following(near, tmp_path / "far", there)
            with ReadNode.open(far) as reader:
                assert known(reader.engine) == {0, 1, 2}
                wait_for(lambda: reader.follows().level_at)
                assert not reader.follower.is_live
                assert not reader.follower.reach(centre.engine.newest_commit + 1, 0.2)
            centre.restore("restored", at=centre.commits[0][0])
            centre.commit(7)
            wait_for(lambda: node.follower.ready_anew)
        with served(near, port), ReadNode.open(far) as reader:
            wait_for(lambda: reader.follower.ready_anew)
            reader.close()
            with ReadNode.open(far) as again:
                assert known(again.engine) == {0, 7}
                assert again.follows().incarnation == 2
    finally:
        centre.stop()
