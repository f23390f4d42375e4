"""Lives of a centre with an object store: files leave the disk, and the machine is made anew.

Points are past their TTL, columns are added, a column gets a wider type, readers ask for the past;
what is read by the product is held against what was written.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from common.durable import Tree
from receiver.datadirs.directory_finding import adopt
from receiver.metadata.clock.machine_clock import MachineClock
from receiver.metadata.model.errors import HistoryGoneError, SeriesMissingError
from receiver.metadata.sql.executing import execute
from receiver.metadata.state.table_rows import FileRow
from receiver.open_engine import open_engine
from receiver.operator.edges.senders import accept_sender
from receiver.storage.cache.file_restore import restore_files
from receiver.storage.copying import StorageService, store_of
from receiver.storage.log_copies.metadata_restore import restore_metadata
from receiver.storage.stores.incarnation import next_incarnation
from tests.support.merging_life import FINAL_AFTER, MergingLife, merged_answer
from tests.support.merging_node import MergedHere, compactions, merge_here, with_interval
from tests.support.node_world import Clock, Edge, World
from tests.support.oracle import rows_read
from tests.support.proving import Points, Site, in_this_process
from tests.support.tsfile_bytes import build, varint, vstr

__all__ = ["StoredLife"]

_CAPACITY = 1 << 30
_HISTORY = 1000.0
_COLUMNS = "abcd"
_FADED = 1000
"""From here on are the times of what an edge writes when all else is gone."""

Answer = dict[tuple[str, int], int]


class TypedSite(Site):
    """An edge whose columns have types, and become more."""

    types: Mapping[str, str] = dict.fromkeys(_COLUMNS, "INT32")

    def bytes_of(self, points: Points, mark: str) -> bytes:
        properties = {"encryptLevel": "0", "encryptType": "UNENCRYPTED", "encryptKey": None}
        device = {name: sorted(each.items()) for name, each in points.items()}
        return build(
            {self._device: device},
            types={name: self.types[name] for name in points},
            properties={**properties, "mark": mark},
        )

    @property
    def _device(self) -> Any:
        return "root.sg.d1"

    def path(self, series: str) -> str:
        """Of a series, as statements name it."""
        return f"root.sg.d1.{series}"

    @property
    def stored_group(self) -> str:
        """The storage group, as statements name it."""
        return "root.sg"


class TableSite(TypedSite):
    """The same of a table with a tag."""

    group = "sg"
    form = "mods2"

    def record(self, series: str, first: int, last: int) -> bytes:
        times = struct.pack(">qq", first, last)
        return b"\x00" + times + vstr("t") + b"\x00" + varint(1) + vstr(series)

    @property
    def _device(self) -> Any:
        return "t", "x"

    def path(self, series: str) -> str:
        return f"root.`/sg`.t.`:x`.{series}"

    @property
    def stored_group(self) -> str:
        return "root.`/sg`"


class _Backup(NamedTuple):
    """What an operator has put aside."""

    place: Path
    deleted: list[Any]
    types: Mapping[str, str]
    answer: Answer
    is_bitten: bool


class StoredLife(MergingLife):
    """One life.

    Attributes:
        seen: how often what is hoped for was met, by its name.
    """

    site: TypedSite

    def __init__(
        self, chance: random.Random, root: Path, *, table: bool = False, interval: int = 0
    ) -> None:
        self.root, self.interval = root, interval
        self.machines = 0
        self.clock = Clock()
        (root / "bucket").mkdir(parents=True)
        self.world = self._machine()
        super().__init__(
            chance,
            self._opened(),
            self.clock,
            3 if interval else 1,
            TableSite if table else TypedSite,
        )
        self.is_bitten = self.is_widened = False
        self.columns = _COLUMNS[0]
        self.backup: _Backup | None = None
        self.made_anew = 0
        """The newest commit when the machine was made of the store."""
        self.past: list[tuple[int, Answer]] = []
        self.seen: dict[str, int] = {}

    # -- machines ----------------------------------------------------------------------------

    def _machine(self) -> World:
        self.machines += 1
        merge = {
            "enabled": True, "quiet": 60.0, "min_files": 3, "target_bytes": 1 << 16,
            "final_after": FINAL_AFTER,
        }  # fmt: skip
        storage = {
            "url": (self.root / "bucket").as_uri(), "lag": 0.1, "capacity": _CAPACITY,
            "scrub_days": 0,
        }  # fmt: skip
        return World(
            self.root / f"machine{self.machines}", clock=self.clock, keep_deleted=100.0,
            metadata={"history": _HISTORY, "clock_jump": 864_000.0}, merge=merge, storage=storage,
        )  # fmt: skip

    def _opened(self) -> Any:
        node = self.world.still_node()
        assert node.storage is not None
        node.storage._ship()
        node.tables.take_over()
        node.merged.recover()
        if self.interval:
            with_interval(node, self.interval)
        (self.world.root / "receiver.toml").write_text(
            'schema_dir = "schema"\ndata_dirs = ["data", "data2"]\n'
            f'[storage]\nurl = "{self.world.config.storage.url}"\n'
        )
        return node

    def _again(self) -> None:
        """The process is there once more."""
        meanwhile = self.process.meanwhile
        self.node = self._opened()
        self.site.again(self.node)
        self.process = merge_here(self.node, MergedHere(meanwhile))
        in_this_process(self.node)

    def close(self) -> None:
        self.node.close()

    def restart(self) -> None:
        self.node.close()
        self._again()
        self.saw("restarts")

    def fade(self) -> None:
        """As ever; what is merged for good is in the store at once, or later."""
        super().fade()
        if self.chance.random() < 0.5:
            self.evict()

    # -- the store ---------------------------------------------------------------------------

    @property
    def storage(self) -> StorageService:
        assert self.node.storage is not None
        return self.node.storage

    def copy(self) -> None:
        """All that is loaded is in the store, and the log behind it."""
        self.storage._ship()
        self.storage._upload()
        while self.storage.shipped() != self.node.engine.newest_commit:
            self.storage._ship()

    def evict(self) -> None:
        """All that is elsewhere leaves the disk."""
        self.copy()
        before = self.rows()
        self.storage.disk_room.make_room(_CAPACITY)
        self.storage._evict()
        away = [row for row in self.rows().values() if row.visible and not self.is_here(row)]
        inside = {name for row in compactions(self.node) for name in row.inputs}
        self.saw("evicted", len(away))
        self.saw("evicted merged files", sum("/merged-" in row.physical for row in away))
        self.saw("evicted inputs", sum(row.physical in inside for row in away))
        assert before == self.rows(), "what leaves the disk is no commit"
        self.read()

    def is_here(self, row: FileRow) -> bool:
        return any(tree.exists(row.physical) for tree in self.node.load.disks.trees)

    def fetch(self) -> None:
        """Some of it comes back."""
        away = [row for row in self.rows().values() if row.visible and not self.is_here(row)]
        some = self.chance.sample(away, min(len(away), 3))
        with self.storage.disk_room.pinned(some, used=True):
            assert all(map(self.is_here, some))
        self.saw("fetched", len(some))

    def burn(self) -> None:
        """The machine is lost; another one is made of the store."""
        self.copy()
        answer = self.site.answer()
        self.node.close()
        uuid = self.node.engine.uuid
        self.world = self._machine()
        config = self.world.config
        store = store_of(config.storage)
        restore_metadata(store, uuid, config.schema_dir, take_over=True)
        with open_engine(config, MachineClock.of(self.clock, None)) as engine:
            for each in config.data_dirs:
                each.mkdir(parents=True)
            adopt(config, uuid)
            trees = [Tree(each) for each in config.data_dirs]
            found = restore_files(store, engine, trees, most=self.chance.choice((None, 0)))
            for tree in trees:
                tree.close()
        store.close()
        assert found.lacking == []
        self._again()
        self.made_anew = self.node.engine.newest_commit
        assert self.site.answer() == answer
        self.saw("restores of the store")
        self.read()

    def put_aside(self) -> None:
        """A copy of all that the machine has is made, while nothing runs."""
        if not self.site.points:
            return  # nobody has been here yet
        self.node.close()
        place = self.root / f"backup{self.machines}"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.world.root, place, symlinks=True)
        self._again()
        answer = self.site.answer()
        self.backup = _Backup(
            place, list(self.site.deleted), self.site.types, answer, self.is_bitten
        )

    def turn_back(self) -> None:
        """The machine is what the copy was; the edge goes on as an operator has it."""
        if self.backup is None:
            return
        kept, self.backup = self.backup, None
        self.node.close()
        self.machines += 1
        self.world = replace(self.world, root=self.root / f"machine{self.machines}")
        shutil.copytree(kept.place, self.world.root, symlinks=True)
        uuid, store = self.node.engine.uuid, store_of(self.world.config.storage)
        with Tree(self.world.config.schema_dir) as home:
            next_incarnation(store, home, uuid)
        store.close()
        self._again()
        accept_sender(self.node.engine, self.site.uuid, restored=False)
        self.site.edge = Edge(self.node, self.site.uuid)
        self.site.deleted, self.site.types = list(kept.deleted), kept.types
        known = self.rows()
        self.site.points = {name: each for name, each in self.site.points.items() if name in known}
        self.past.clear()
        self.is_bitten = kept.is_bitten
        if self.is_bitten:  # by the time that has passed since
            self._set_ttl()
        assert self.site.answer() == kept.answer
        self.saw("backups restored")
        self.read()

    # -- TTL, columns, types -----------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """The clock goes on; the TTL is set anew, so that the limit stays."""
        super().pass_time(seconds)
        if self.is_bitten:
            self._set_ttl()

    def _set_ttl(self) -> None:
        ttl = int(self.clock.now * 1000) - self.floor
        execute(self.node.engine, f"set ttl to {self.site.stored_group} {ttl}")

    def bite(self) -> None:
        """What is past goes, and nothing else; nor does anything come back."""
        rows = {name: row for name, row in self.rows().items() if row.visible}
        lasts = {name: self._last(name) for name in rows}
        if not any(each < _FADED for each in lasts.values()):
            return
        past = [each for each in lasts.values() if each < _FADED]
        # Between two times of a file, or behind all of one.
        self.floor = max(self.floor, self.chance.choice(past) + self.chance.choice((-2, 1)))
        self._set_ttl()
        self.is_bitten = True
        self.node.load.ttl.run_once()
        now = self.rows()
        gone = {name for name in rows if not now[name].visible}
        assert gone == {name for name, last in lasts.items() if last < self.floor}
        assert not {name for name, row in now.items() if row.visible} - rows.keys()
        self.saw("expired", len(gone))
        self.saw("expired merged files", sum("/merged-" in name for name in gone))

    def _last(self, physical: str) -> int:
        return max(time for each in self.site.points[physical].values() for time in each)

    def relent(self) -> None:
        """There is no TTL any more; what is gone stays gone."""
        if self.is_bitten:
            execute(self.node.engine, f"unset ttl to {self.site.stored_group}")
            self.is_bitten = False

    def add_column(self) -> None:
        self.columns = _COLUMNS[: len(self.columns) + 1]

    def widen(self) -> None:
        """An operator forgets a column, and the edge goes on with a wider type of it."""
        name = self.chance.choice(self.columns)
        if self.site.types[name] == "INT32":
            with suppress(SeriesMissingError):
                execute(self.node.engine, f"delete timeseries {self.site.path(name)}")
            self.site.types = {**self.site.types, name: "INT64"}
            self.is_widened = True

    # -- reading -----------------------------------------------------------------------------

    def given(self, **options: Any) -> Answer:
        """What a reader of the product is given."""
        found: Answer = {}
        if not any(row.visible for row in self.rows().values()) and not options:
            return found
        for row in rows_read(self.world.root / "receiver.toml", **options):
            key = row["measurement"], row["time"]
            assert key not in found, f"{key} is given twice"
            found[key] = row["value_long"]
        return found

    def checked(self) -> None:
        """As `merged_answer` says, where all that is merged is here to be looked at."""
        merged = [each.physical for row in compactions(self.node) for each in row.outputs]
        assert all(any(t.exists(each) for t in self.node.load.disks.trees) for each in merged)
        assert merged_answer(self.site) == self.site.answer()

    def read(self) -> None:
        assert self.given() == self.site.answer()
        self.saw("reads")

    def remember(self) -> None:
        self.past.append((self.node.engine.newest_commit, self.site.answer()))

    def look_back(self) -> None:
        """Readers of an earlier commit get what readers got then."""
        if not self.past:
            return
        at = self.chance.choice(self.past)
        try:
            given = self.given(as_of=at[0])
        except HistoryGoneError as error:
            if "never had it" in error.message:
                # The store has what is visible; what was not any more was lost with the machine.
                assert at[0] < self.made_anew
                self.saw("a past that went with its machine")
            else:
                self.past.clear()
            return
        assert given == at[1]
        self.saw("reads of the past")

    def let_go(self) -> None:
        super().let_go()
        self.node.engine.collect()
        self.node.load.reaper.run_once()
        self.past.clear()

    def saw(self, what: str, times: int = 1) -> None:
        if times:
            self.seen[what] = self.seen.get(what, 0) + times
