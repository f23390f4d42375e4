"""An engine whose tree of files goes into a store, and that tree as DuckDB reads it by the page."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb

from common.digests import md5
from receiver.metadata.engine import Engine
from receiver.metadata.model import records
from receiver.metadata.query.past_files import files_at
from receiver.storage.log_copies.log_shipping import LogShipper
from receiver.storage.tree.tree_removal import TreeRemover
from receiver.storage.tree.tree_rows import ForgottenError
from receiver.storage.tree.tree_shipping import TreeShipper
from receiver.storage.tree.unnamed_tables import UnnamedTables
from tests.support.architecture import ROOT
from tests.support.s3_server import KEY, REGION, SECRET, S3Server
from tests.support.tsfile_bytes import build
from tests.support.uploading import SENDER, Centre

GRACE = 86_400.0


class TreeCentre(Centre):
    """Ships its log and its tree when it is told to."""

    def start(self) -> None:
        self.passed = 0.0
        self.clock = lambda: time.time() + self.passed
        super().start()
        self.ships_log = True
        self.monotonic: Callable[[], float] = time.monotonic
        self.between: Callable[[], None] = lambda: None
        self.log_shipper = LogShipper(self.engine.published, self.home, self.store, self.owner)
        unnamed = UnnamedTables(self.home, self.owner, self.engine.clock.cautious)
        self.shipper = TreeShipper(
            self.engine,
            self.store,
            self.owner,
            lambda: [self.tree],
            unnamed=unnamed,
            monotonic=lambda: self.monotonic(),
            shipped=self.shipped,
            go_on=lambda: self.between(),
        )
        self.remover = TreeRemover(
            self.engine,
            self.store,
            self.owner,
            grace=GRACE,
            newest=lambda: self.shipper.newest,
            unnamed=unnamed,
        )

    def shipped(self) -> int:
        newest = self.log_shipper.newest
        is_ours = newest is not None and newest.incarnation == self.owner.number
        return newest.ts if newest is not None and is_ours else 0

    def ship(self) -> None:
        if self.ships_log:
            self.log_shipper.ship()
        is_more = True
        while is_more:
            with suppress(ForgottenError):  # files are forgotten at once here
                is_more = self.shipper.ship()

    def load_real(self, number: int, *, group: str = "root.sg", partition: int = 0) -> str:
        """Commit a file with a series of three points; returns its physical path."""
        loaded = self.loaded(number, group=group, partition=partition)
        self.engine.commit([loaded])
        return loaded.physical

    def loaded(
        self, number: int, *, group: str = "root.sg", partition: int = 0
    ) -> records.FileLoaded:
        device = f"{group}.d{number % 3}"
        content = build({device: {"s1": [(10 * number + each, each) for each in range(3)]}})
        stem = f"sequence/{group}/0/{partition}/{number}-{number}-0-0"
        physical = f"{stem}.{number:016x}.tsfile"
        place = self.root / "data" / physical
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        if SENDER not in self.engine_senders():
            self.engine.commit([records.SenderSeen(SENDER, "", f"x_{SENDER}")])
        digest = md5(content).hexdigest()
        return records.FileLoaded(
            sender=SENDER,
            path=f"{stem}.tsfile",
            physical=physical,
            size=len(content),
            md5=digest,
            tail=digest,
            version=4,
            devices=[records.DeviceRange(device, 10 * number, 10 * number + 2)],
            first=10 * number,
            last=10 * number + 2,
            series=1,
            points=3,
            task="7a" * 16,
        )


def said(engine: Engine, at: int) -> set[str]:
    """What readers see at a commit, by the engine."""
    return {row.physical for row in files_at(engine, at).visible}


def documented() -> list[str]:
    """The SQL of the page, in order."""
    page = (ROOT / "docs/tree.md").read_text()
    return re.findall(r"^```sql\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


class Duck:
    """The tables of a store, by DuckDB alone."""

    def __init__(self, store: str, *before: str) -> None:
        self.base = duckdb.connect()
        for each in before:
            self.base.execute(each)
        begin, self._at, self._chunks = documented()
        head, tail = begin.split(";", 1)
        assert head.startswith("SET VARIABLE store")
        self.base.execute("SET VARIABLE store = " + repr(store))
        self.base.execute(tail.split("\n", 1)[1])

    def at(self, ts: int) -> list[tuple[Any, ...]]:
        """Rows of the tree at a time."""
        head, query = self._at.split(";", 1)
        assert head.startswith("SET VARIABLE moment")
        self.base.execute(f"SET VARIABLE moment = {ts}")
        return self.base.execute(query).fetchall()

    def files(self, ts: int) -> set[str]:
        return {row[1] for row in self.at(ts) if row[0] == "file"}

    def chunks(self, device: str, first: int, last: int) -> list[tuple[Any, ...]]:
        """Bytes of objects that have points of a device in [first, last)."""
        head, query = self._chunks.split(";", 1)
        query = query.replace("root.wind.d1", device)
        query = query.replace("1700000000000", str(first)).replace("1700086400000", str(last))
        self.base.execute(head)
        return self.base.execute(query).fetchall()

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return self.base.execute(text).fetchall()


def from_s3(server: S3Server) -> list[str]:
    """What DuckDB is told before it reads from a server of S3."""
    folder = Path(duckdb.__file__).parents[1] / "duckdb_ext"
    (extension,) = folder.rglob("httpfs.duckdb_extension")
    scheme, _, host = server.endpoint.partition("://")
    return [
        f"LOAD '{extension}'",
        f"CREATE SECRET (TYPE s3, KEY_ID '{KEY}', SECRET '{SECRET}', REGION '{REGION}', "
        f"ENDPOINT '{host}', URL_STYLE 'path', USE_SSL {scheme == 'https'})",
    ]


def bucket(root: Path) -> Path:
    (root / "bucket").mkdir()
    return root / "bucket"
