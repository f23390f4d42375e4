"""A world of files whose bytes are in an object store only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.durable import Tree
from receiver.storage.stores.incarnation import own_incarnation
from receiver.storage.stores.object_keys import data_key
from receiver.storage.stores.store_opening import StoreOptions, open_store
from receiver.storage.uploading.uploader import Uploader
from tests.support.spark_world import World
from tests.support.tsfile_bytes import build, noise

LARGE_DEVICES = [f"root.wind.d{number:02}" for number in range(10)]
DAYS = 4


def large(points: int = 3, length: int = 100_000) -> tuple[bytes, dict[str, dict[str, Any]]]:
    """A file of 12 MB: ten devices, each with 100 KB three times on each of four days.

    Each day is a chunk of its own; beside the large values there is a series of numbers.
    """
    value = noise(length)
    devices = {
        name: {
            "n": [(day * 100 + at, at) for day in range(DAYS) for at in range(points)],
            "t": [
                (day * 100 + at, f"{name}{day}{at}".encode() + value)
                for day in range(DAYS)
                for at in range(points)
            ],
        }
        for name in LARGE_DEVICES
    }
    return build(devices, chunks=DAYS), devices


class StoredWorld(World):
    """Files go into the store at `upload`; the catalogue says so, and the disk has them no more."""

    def configure(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        """Have a store; `options` are of `StoreOptions`."""
        self.url, self.options = url, StoreOptions(**(options or {}))
        more = {"url": url, **(options or {})}
        lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in more.items())
        self.config.write_text(f'schema_dir = "schema"\ndata_dirs = ["data"]\n[storage]\n{lines}')

    def upload(self, *, keep: bool = False) -> None:
        store = open_store(self.url, self.options)
        with Tree(self.root / "schema") as home:
            owner = own_incarnation(store, home, self.engine.uuid)
            uploader = Uploader(self.engine, store, owner, home, lambda: [self._tree])
            uploader.run_once()
            uploader.close()
        self.owner = owner
        store.close()
        if not keep:
            for each in self.data.rglob("*.tsfile"):
                each.unlink()

    def key(self, physical: str) -> str:
        return data_key(self.engine.uuid, self.owner.number, physical)

    def object(self, physical: str) -> Path:
        """Where it is in a store that is a directory."""
        return Path(self.url.removeprefix("file://")) / self.key(physical)

    def physicals(self) -> list[str]:
        with self.engine.reading() as state:
            return sorted(state.files)
