"""A centre whose log is copied to a directory, and nodes that follow it from there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.durable import Tree
from receiver.config import FollowConfig, MetadataConfig, ReceiverConfig
from receiver.follower.read_node import ReadNode
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.model.engine_options import EngineOptions
from receiver.metadata.sql.executing import execute
from receiver.storage.log_copies.log_shipping import LogShipper
from receiver.storage.log_copies.metadata_restore import restore_metadata
from receiver.storage.stores.directory_store import DirectoryStore
from receiver.storage.stores.incarnation import own_incarnation
from receiver.storage.stores.owned_prefix import own_prefix
from tests.support.schema_commits import series


def step(number: int) -> list[records.Op]:
    """A sender, and a series with tags."""
    return [
        records.SenderSeen(f"a{number:031x}", "", f"x_a{number:031x}"),
        *([records.StorageGroupSet("root.a")] if number == 0 else ()),
        series("root.a.d", f"s{number}", tags=[{"of": f"{number}"}]),
    ]


def known(engine: Engine, at: int | None = None) -> set[int]:
    """The steps that an engine has: by its senders now, and by its series and their tags."""
    before = engine.newest_commit
    shown = {
        int(row[0].rpartition("s")[2]): row
        for row in execute(engine, "show timeseries root.a.**", at=at)
    }
    for number, row in shown.items():
        assert f"{number}" in str(row[-1]) or f"'{number}'" in str(row), row
    if at is None:
        with engine.reading() as state:
            senders = {int(sender[1:], 16) for sender in state.senders}
        if engine.newest_commit != before:  # it has come after meanwhile
            return known(engine)
        assert senders == set(shown)
    return set(shown)


def wait_for(what: Callable[[], Any], seconds: float = 120.0) -> Any:
    """What becomes true in another thread."""
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.005)
    return found


class FollowedCentre:
    """See the module.

    Attributes:
        commits: (timestamp, number) of each step.
    """

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        (root / "bucket").mkdir()
        self.store = DirectoryStore(root / "bucket")
        self.place = root / "schema"
        self.options = EngineOptions(**options)
        self.commits: list[tuple[int, int]] = []
        self.start()
        self.uuid = self.engine.uuid
        own_prefix(self.store, self.uuid)

    def start(self) -> None:
        self.engine = Engine.open(self.place, options=self.options, background=False)
        self.home = Tree(self.place)
        self.owner = own_incarnation(self.store, self.home, self.engine.uuid)
        self.shipper = LogShipper(self.engine.published, self.home, self.store, self.owner)

    def stop(self) -> None:
        self.engine.close()
        self.home.close()

    def restore(self, name: str, *, at: int | None = None) -> None:
        """Another machine takes over and goes on, with what a moment had."""
        self.stop()
        restore_metadata(self.store, self.uuid, self.root / name, at=at, take_over=True)
        self.place = self.root / name
        self.commits = [each for each in self.commits if at is None or each[0] <= at]
        self.start()

    def commit(self, *numbers: int, ship: bool = True) -> int:
        for number in numbers:
            self.commits.append((self.engine.commit(step(number)), number))
        if ship:
            self.shipper.ship()
        return self.commits[-1][0]

    @property
    def numbers(self) -> set[int]:
        return {number for _, number in self.commits}

    def config(self, name: str = "node", **follow: Any) -> ReceiverConfig:
        return ReceiverConfig(
            schema_dir=self.root / name,
            data_dirs=(self.root / "no data",),
            metadata=MetadataConfig(history=self.options.history),
            follow=FollowConfig(
                url=f"file://{self.root}/bucket", **{"poll": 3600.0, "writer": None, **follow}
            ),
        )

    @contextmanager
    def node(self, name: str = "node", **follow: Any) -> Iterator[ReadNode]:
        """A node; it looks when it is told to, unless `poll` says more."""
        with ReadNode.open(self.config(name, **follow)) as node:
            yield node

    def objects(self, what: str) -> list[Path]:
        """The objects of a kind, in the order of their keys."""
        return sorted(
            each
            for each in (self.root / "bucket").rglob("*")
            if f"/{what}/" in str(each) and each.is_file()
        )
