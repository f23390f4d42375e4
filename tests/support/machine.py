"""A machine with a receiver on it that copies to a store: its commands, and lives of its node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.console.cli import run
from receiver.cli.commands import cli
from receiver.operator.stored.storage import running_storage
from tests.support.etcd import Settings
from tests.support.node_world import A, Edge, World, path_of, tsfile
from tests.support.web import until


class Machine:
    """A receiver's directories, its configuration file, and commands on them."""

    def __init__(self, root: Path, bucket: Path, capsys: pytest.CaptureFixture[str]) -> None:
        storage = {"url": bucket.as_uri(), "lag": 0.1}
        self.world = World(root, storage=storage)
        for each in (root / "data", root / "data2"):
            each.mkdir(parents=True, exist_ok=True)
        self.file = root / "receiver.toml"
        self.file.write_text(
            f'schema_dir = "{root / "schema"}"\n'
            f'data_dirs = ["{root / "data"}", "{root / "data2"}"]\n'
            f'[storage]\nurl = "{bucket.as_uri()}"\n'
        )
        self._capsys = capsys

    def over_etcd(self, settings: Settings) -> None:
        """From now on its commits are kept in etcd."""
        self.file.write_text(
            f'{self.file.read_text()}[metadata]\nbackend = "etcd"\n'
            f'[metadata.etcd]\nendpoints = ["{settings.endpoints[0]}"]\n'
            f'prefix = "{settings.prefix}"\nlease = "2s"\ntimeout = "1s"\n'
        )

    def command(self, *arguments: str, code: int = 0) -> str:
        got = run(cli, "tsferry-receiver", ["--config", str(self.file), *arguments])
        out = self._capsys.readouterr()
        assert got == code, (got, out)
        return out.out + out.err

    def asked(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.command(*arguments, "--json", code=code))

    def fill(self, sender: str = A, there: int = 2) -> None:
        """Two files of a sender, copied."""
        with self.world.node() as node:
            files = {path_of(1): tsfile(f"root.sg.{sender[:2]}"), path_of(2): tsfile("root.sg.x")}
            if sender != A:
                files.popitem()
            Edge(node, uuid=sender).round(files)
            until(lambda: running_storage(node.operator).uploaded_files == there)
            newest = node.engine.newest_commit
            until(lambda: running_storage(node.operator).shipped >= newest)
