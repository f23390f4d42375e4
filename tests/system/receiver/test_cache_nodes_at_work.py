"""A cache node beside a real receiver; it is told to be none, and one again, while they run."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from receiver.cli.commands import cli
from receiver.storage.cache.stored_files import place_of
from receiver.storage.reading.open_stores import OpenStores
from receiver.storage.reading.receiver_reads import ReceiverReads
from receiver.storage.reading.stored_place import ReceiverAddress, StoreAddress
from tests.support.centre import COMMAND
from tests.support.node_process import NodeProcess
from tests.support.procs import Children, children, wait_until
from tests.support.spark_world import NORTH
from tests.support.stored_world import StoredWorld
from tests.support.tsfile_bytes import build, noise

pytestmark = pytest.mark.slow


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Children]:
    with children(tmp_path) as made:
        yield made


def test_a_node_keeps_what_is_read_until_it_is_told_not_to_and_again(
    tmp_path: Path, processes: Children
):
    world = StoredWorld(tmp_path / "centre")
    (tmp_path / "store").mkdir()
    world.configure(f"file://{tmp_path / 'store'}")
    content = build({"root.wind.d1": {"s": [(1, noise(6_000_000))]}})
    world.load(NORTH, "sequence/root.wind/0/1/1-1-0-0.tsfile", content)
    world.upload()
    [physical] = world.physicals()
    with world.engine.reading() as state:
        there, row = state.uploaded_table.rows[physical], state.files[physical]
    engine, stored = world.engine.uuid, world.object(physical)
    world.engine.close()
    with world.config.open("a") as out:
        out.write('[listen]\nhost = "127.0.0.1"\nport = 0\n')
    ready = tmp_path / "ready"
    server = processes.start(
        [COMMAND, "--config", str(world.config), "serve", "--ready-file", str(ready)], forked=True
    )
    server.until(lambda: ready.exists() and ready.read_text().strip(), "listening")
    url = ready.read_text().strip()
    tokens = {role: token_of(world.config, role) for role in ("node", "reader")}
    kept = tmp_path / "node" / "kept"
    more = f'cache_dir = "{kept}"\ncache = true\n[storage]\nurl = "file://{tmp_path / "store"}"\n'
    node = NodeProcess(tmp_path / "node", processes, url, tokens["node"], more=more)
    node.start()
    asks = ReceiverReads(ReceiverAddress(url), tokens["reader"])

    def is_kept() -> bool:
        return asks.where(physical).cache is not None

    def read() -> None:
        stores = OpenStores()
        stores.give_token(url, tokens["reader"])
        address = StoreAddress(f"file://{tmp_path / 'store'}")
        place = place_of(address, engine, there, row.md5, ReceiverAddress(url))
        with stores.file(place) as file:
            assert file.read(0, file.size) == content
        stores.close()

    wait_until(is_kept, "the slots are the node's")
    read()
    assert len(list(kept.glob("*-*"))) == 7, "six blocks of it, and their digests"
    aside = stored.with_suffix(".aside")
    stored.rename(aside)
    read()
    aside.rename(stored)
    for is_cache in (False, True):
        text = node.config.read_text()
        node.config.write_text(
            text.replace(f"cache = {str(not is_cache).lower()}", f"cache = {str(is_cache).lower()}")
        )
        assert node.server is not None
        node.server.signal(signal.SIGHUP)
        wait_until(lambda: is_kept() is is_cache, "the node has said so")  # noqa: B023
        read()
    wait_until(lambda: node.status()["cache"]["slots"] >= 1, "a heartbeat tells it of the slots")
    asks.close()


def token_of(config: Path, role: str) -> str:
    words = ["--config", str(config), "token", "create", "--role", role, "--json"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, (done.output, done.exception)
    return str(json.loads(done.stdout)["token"])
