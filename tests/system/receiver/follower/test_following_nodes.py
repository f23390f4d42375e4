"""Nodes as processes: one follows a bucket of a real S3 server, one the receiver, and they die."""

from __future__ import annotations

import json
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from common.errors import ConfigError
from receiver.cli.commands import cli
from receiver.spark.catalogue_opening import open_catalogue
from tests.support.centre import Centre
from tests.support.edge import Edge
from tests.support.procs import Children, children, wait_until
from tests.support.s3_server import KEY, REGION, SECRET, s3_server

pytestmark = pytest.mark.slow


class NodeProcess(Centre):
    """A node that follows, with a directory of its own."""

    def __init__(self, root: Path, processes: Children, follow: str, token: str) -> None:
        self.follow = follow
        self.token = token
        super().__init__(root, processes, follow)

    def get(self, what: str) -> Any:
        url = f"http://127.0.0.1:{self.port}{what}"
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)

    def commit(self) -> int:
        try:
            return self.get("/v1/status")["newest_commit"]
        except OSError:
            return 0


@pytest.fixture
def env(tmp_path: Path) -> Mapping[str, str]:
    return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Children]:
    with children(tmp_path) as found:
        yield found


def catalogue(node: Any, at: int | None = None) -> list[dict[str, Any]]:
    given = "" if at is None else f"&at={at}"
    return node.get(f"/sync/v1/catalogue?limit=1000&devices=true{given}")["entries"]


def test_nodes_follow_through_kills_and_a_restored_receiver(
    tmp_path: Path,
    processes: Children,
    env: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with s3_server(tmp_path / "s3") as s3:
        storage = f'[storage]\nendpoint = "{s3.endpoint}"\nregion = "{REGION}"\npath_style = true\n'
        url = "s3://tests/centre"
        store = f'{storage}url = "{url}"\nlag = 0.3\n'
        centre = Centre(tmp_path / "centre", processes, store)
        address = centre.start(env=env)
        made = centre.call("token", "create", "--role", "operator")
        token = made["token"]
        writer = NodeProcess.__new__(NodeProcess)
        writer.port, writer.token = centre.port, token

        edge = Edge(tmp_path / "edge", address)
        written = [edge.write(number) for number in range(3)]
        edge.round()

        poll = "poll = 0.2\n"
        nodes = [
            NodeProcess(
                tmp_path / "from the bucket",
                processes,
                f'{storage}[follow]\nurl = "{url}"\nwriter = "{address}"\n{poll}',
                token,
            ),
            NodeProcess(
                tmp_path / "from the receiver",
                processes,
                f'[follow]\nurl = "{address}"\ntoken = "{token}"\n',
                token,
            ),
        ]

        def level(node: NodeProcess) -> bool:
            # Copies go on meanwhile, and are commits.
            return node.commit() == writer.commit() and catalogue(node) == catalogue(writer)

        def is_copied() -> bool:
            view = centre.call("storage", "status")
            return not view["waiting_files"] and view["shipped"] == view["newest"]

        wait_until(lambda: int(centre.call("storage", "status")["shipped"]), "a copy of the log")
        for node in nodes:
            node.start(env=env)
        chance = random.Random(12)
        for number in range(3, 9):
            written.append(edge.write(number))
            edge.round()
            victim = nodes[number % 2]
            if number % 3 == 0:
                time.sleep(chance.random() * 0.2)
                victim.kill()
                victim.start(env=env)
        wait_until(is_copied, "all files and all of the log copied")
        for node in nodes:
            wait_until(lambda node=node: level(node), f"{node.root.name} level")
            wait_until(
                lambda node=node: "problem" not in node.get("/v1/status")["follows"], "no problem"
            )
            assert node.get("/v1/status")["follows"]["writer"] == address
            past = writer.get("/v1/files?limit=1")["files"][0]["created"]
            then = [[each["path"] for each in catalogue(one, past)] for one in (node, writer)]
            assert then[0] == then[1] != []

        # No receiver is needed at all to see what there is.
        for name, value in (*env.items(), ("AWS_ENDPOINT_URL", s3.endpoint)):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_REGION", REGION)
        with open_catalogue(url) as bucket:
            names = [each.name for each in bucket.files(bucket.newest)]
            assert names == [each["path"] for each in catalogue(nodes[0], bucket.newest)]
            assert all(each.stored for each in bucket.files(bucket.newest))
        monkeypatch.delenv("AWS_ENDPOINT_URL")

        # What a sender that comes to a node sees: a word, once, and the way.
        config = edge.write_config()
        text = config.read_text().replace(address, f"http://127.0.0.1:{nodes[0].port}")
        config.write_text(text)
        began = time.monotonic()
        program = str(Path(sys.executable).with_name("tsferry-sender"))
        sync = processes.start([program, "--config", str(config), "sync"], forked=True)
        assert sync.wait() == 4, sync.text()
        assert f"the writer is at {address}" in sync.text()
        assert time.monotonic() - began < 60

        # The machine of the receiver is lost; nodes come after the one that is made of the bucket.
        wait_until(is_copied, "all of the log copied")
        centre.kill()
        (tmp_path / "centre" / "schema").rename(tmp_path / "old schema")
        done = CliRunner().invoke(cli, ["--config", str(centre.config), "restore"])
        assert done.exit_code == 0, done.output
        centre.start(env=env)
        edge.write(99)
        edge.round()
        for node in nodes:
            wait_until(lambda node=node: level(node), f"{node.root.name} beyond the fork")
            wait_until(
                lambda node=node: node.get("/v1/status")["follows"]["incarnation"] == 2,
                f"{node.root.name} knows of the new machine",
            )
        assert all(node.stop() == 0 for node in nodes)


def test_a_directory_is_served_as_what_it_is(tmp_path: Path, processes: Children) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    centre = Centre(
        tmp_path / "centre", processes, f'[storage]\nurl = "{bucket.as_uri()}"\nlag = 0.2\n'
    )
    centre.start()
    wait_until(lambda: int(centre.call("storage", "status")["shipped"]), "a copy of the log")
    centre.stop()
    node = Centre(tmp_path / "node", processes, f'[follow]\nurl = "{bucket.as_uri()}"\n')
    node.start()
    assert node.call("status")["follows"]["problem"] is None
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{node.port}/sync/v1/check", data=b"{}")
    assert refused.value.code == 421
    node.stop()
    for config, follow, word in (
        (centre.config, bucket.as_uri(), "not made by --follow"),
        (node.config, "none", "only reads"),
        (node.config, "ftp://somewhere", "follow.url: expected s3://bucket/prefix"),
    ):
        given = ["--config", str(config), "serve", "--follow", follow]
        done = CliRunner().invoke(cli, given)
        assert isinstance(done.exception, ConfigError), done.output
        assert word in done.exception.message
