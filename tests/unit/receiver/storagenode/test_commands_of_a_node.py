"""The commands of an operator at a storage node: how it is, and which master it takes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.console.cli import run
from receiver.cli.commands import cli
from receiver.heartbeats.node_wire import MasterMark
from receiver.storagenode.node_web.node_app import ServedNode
from receiver.web import serving
from tests.support.web import BOUND
from tests.unit.receiver.storagenode.node_web.test_node_app import config_of


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedNode]:
    """A node in a thread, as `serve` has it."""
    made: list[ServedNode] = []
    servers: list[serving.Server] = []

    class Kept(serving.Server):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]
            servers.append(self)

    def make(config: object, anew: Callable[[], None]) -> ServedNode:
        made.append(ServedNode(config, anew))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(serving, "Server", Kept)
    ready = threading.Event()
    thread = threading.Thread(
        target=serving.serve,
        args=(config_of(tmp_path, port=0),),
        kwargs={"ready": lambda url: ready.set(), "make": make},
    )
    thread.start()
    assert ready.wait(BOUND)
    yield made[0]
    servers[0].stop(2)
    thread.join(BOUND)


def test_an_operator_sees_a_node_and_confirms_its_master(
    served: ServedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        f'schema_dir = "{tmp_path}/schema"\ndata_dirs = ["{tmp_path}/d1"]\n'
        '[node]\nmaster = ["http://127.0.0.1:1"]\n'
    )

    def command(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        got = run(cli, "tsferry-receiver", ["--config", str(file), *arguments])
        out = capsys.readouterr()
        assert got == code, (got, out)
        return out.out + out.err

    view = json.loads(command("status", "--json", code=4))
    assert (view["node"], view["instance"]) == (served.node.home.start.uuid, 1)
    assert "has no master" in view["problem"]
    assert "nothing to confirm" in command("nodes", "confirm-master", code=3)
    served.node.home.hear(MasterMark(engine="e" * 32, commit=9))
    served.node.home.hear(MasterMark(engine="e" * 32, commit=8))
    text = command("status", code=4)
    assert "running, a storage node" in text
    assert "newest commit is 8, and 9 was seen" in text
    assert str(tmp_path / "d1") in text
    assert "is taken as it is" in command("nodes", "confirm-master")
    assert "all orders are carried out" in command("status", code=4)
