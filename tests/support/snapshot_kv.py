"""Both key-value stores behind one face, with the timestamps in the hand of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from receiver.metadata.engine import Engine
from receiver.metadata.etcd.gateway import EtcdClient
from receiver.metadata.kv import SnapshotKV
from receiver.metadata.kv.embedded import EmbeddedKV
from receiver.metadata.kv.etcd_kv import EtcdKV
from tests.support.etcd import Etcd

SEED = (
    (100, {"A": "1"}, ()),
    (200, {"B": "2"}, ()),
    (300, {"C": "3"}, ()),
    (400, {"A": "10"}, ()),
    (500, {}, ("B",)),
    (600, {}, ("C",)),
)
"""The example of the design: (timestamp, saves, removals)."""


class Store:
    """A store that can be closed and opened again.

    `now` is the timestamp of the next commit.
    """

    kv: SnapshotKV

    def __init__(self) -> None:
        self.now = 1

    def allocate(self, newest: int) -> int:
        return self.now

    def reopen(self) -> None:
        """As after an end of the process."""
        raise NotImplementedError

    def commit(self, ts: int, saves: dict[str, str], removals: tuple[str, ...] = ()) -> None:
        self.now = ts
        assert self.kv.multi_save_and_remove_with_prefix(saves, removals) == ts

    def seed(self) -> None:
        for ts, saves, removals in SEED:
            self.commit(ts, saves, removals)


class EmbeddedStore(Store):
    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._open()

    def _open(self) -> None:
        self.engine = Engine.open(
            self._directory,
            allocate=self.allocate,
            clock=lambda: 0.0,  # all of it is kept
        )
        self.kv = EmbeddedKV(self.engine)

    def reopen(self) -> None:
        self.engine.close()
        self._open()

    def close(self) -> None:
        self.engine.close()


class EtcdStore(Store):
    def __init__(self, etcd: Etcd, ring: int = 1024) -> None:
        super().__init__()
        self._ring = ring
        self._settings = etcd.settings()
        self._open()

    def _open(self) -> None:
        self.client = EtcdClient(self._settings)
        self.kv = self.another()

    def another(self) -> EtcdKV:
        """The store as another process has it."""
        return EtcdKV(
            self.client, f"{self._settings.prefix}/keys", allocate=self.allocate, ring=self._ring
        )

    def reopen(self) -> None:
        self.client.close()
        self._open()

    def close(self) -> None:
        self.client.close()


@contextmanager
def opened(kind: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store of one kind: embedded, etcd, or etcd with a ring so small that it does not help."""
    with ExitStack() as stack:
        if kind == "embedded":
            embedded = EmbeddedStore(request.getfixturevalue("tmp_path") / "schema")
            stack.callback(embedded.close)
            yield embedded
            return
        ring = 2 if kind == "etcd, ring of 2" else 1024
        etcd = EtcdStore(request.getfixturevalue("shared_etcd"), ring)
        stack.callback(etcd.close)
        yield etcd
