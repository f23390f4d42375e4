"""The local half of a sender on disk, for tests: real TsFiles, no receiver."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from common.digests import md5
from common.durable import Tree
from common.names import FilePath
from common.wire import InventoryEntry, Outcome, Result, TaskAnswer, TaskState
from sender.config import ReceiverEntry, SenderConfig
from sender.kept import identity
from sender.kept.loaded_list.ledger import Ledger
from sender.kept.loaded_list.rebuilt import Rebuilt, rebuilt
from sender.kept.loaded_list.snapshot import Snapshot
from sender.kept.loaded_list.sync_logs import SyncLogs
from sender.plan.plan import RoundPlan, plan
from sender.plan.plan_options import PlanOptions
from sender.select import data_dirs
from sender.select.data_dirs import DataDirs
from sender.select.entry import Entry
from sender.select.found import LocalFile, Scan, Span
from sender.select.scan import Scanner
from tests.support.tsfile_bytes import build

ENDPOINT = "127.0.0.1_5555"
NOW = 1_700_000_000.0
WEEK = 604_800_000


@lru_cache(maxsize=256)
def tsfile(first: int = 1, last: int = 100, device: str = "root.a.d1", value: int = 0) -> bytes:
    """A TsFile whose data begins and ends at these times; `value` makes it another content."""
    return build({device: {"s1": [(first, value), (last, value + 1)]}})


def path(name: str = "1-1-0.tsfile", *, partition: int = 0, sg: str = "root.a") -> FilePath:
    """A path in the sequence space."""
    return FilePath.parse(f"sequence/{sg}/0/{partition}/{name}")


class Site:
    """A site with data directories `d0`, `d1`, ... beneath one directory."""

    def __init__(self, root: Path, dirs: int = 1, **config: Any) -> None:
        self.root = root
        self.now = NOW
        self.schema_dir = root / "schema"
        self.schema_dir.mkdir(parents=True, exist_ok=True)
        self.uuid = identity.create(self.schema_dir)
        self.data_dirs = tuple(root / f"d{number}" for number in range(dirs))
        for each in self.data_dirs:
            each.mkdir(exist_ok=True)
            data_dirs.mark(each, self.uuid)
        self.config = SenderConfig(
            schema_dir=self.schema_dir,
            data_dirs=self.data_dirs,
            receivers=(ReceiverEntry(name="centre", url="http://127.0.0.1:5555"),),
            **config,
        )
        self.scanner = Scanner(self.config, clock=lambda: self.now)
        self.dirs = DataDirs.open(self.data_dirs, self.uuid)

    def __del__(self) -> None:
        """With its test go the descriptors of its directories."""
        if hasattr(self, "dirs"):
            self.dirs.close()

    # -- files -------------------------------------------------------------------------------

    def place(self, at: FilePath | str, data_dir: int = 0) -> Path:
        """Where a path is on disk."""
        return self.data_dirs[data_dir] / str(at)

    def put(
        self,
        at: FilePath | str,
        content: bytes | None = None,
        *,
        data_dir: int = 0,
        resource: bool = True,
        age: float = 3600.0,
    ) -> Path:
        """Write a TsFile (and its resource), `age` seconds old."""
        where = self.place(at, data_dir)
        where.parent.mkdir(parents=True, exist_ok=True)
        new = where.with_name(".being-written")  # beside the old one: another inode for sure
        new.write_bytes(tsfile() if content is None else content)
        os.utime(new, (self.now - age, self.now - age))
        new.replace(where)
        if resource:
            self.beside(where, ".resource").write_bytes(b"resource of " + where.name.encode())
        return where

    @staticmethod
    def beside(where: Path, suffix: str) -> Path:
        """The companion of a file."""
        return where.with_name(where.name + suffix)

    def remove(self, at: FilePath | str, data_dir: int = 0) -> None:
        """Delete a TsFile and its resource, as a database does."""
        where = self.place(at, data_dir)
        where.unlink(missing_ok=True)
        self.beside(where, ".resource").unlink(missing_ok=True)

    # -- what a round opens --------------------------------------------------------------------

    def reopen(self) -> DataDirs:
        """Look at the markers again, as each round does."""
        self.dirs.close()
        self.dirs = DataDirs.open(self.data_dirs, self.uuid)
        return self.dirs

    def scan(self, *known: Mapping[FilePath, Entry]) -> Scan:
        """Scan now."""
        return self.scanner.scan(self.dirs, known)

    def ledger(self) -> Ledger:
        """Open the list."""
        return Ledger.open(self.dirs, ENDPOINT)

    def logs(self) -> SyncLogs:
        """Open the logs."""
        return SyncLogs(self.dirs, ENDPOINT)

    def snapshot(self) -> Snapshot:
        """Open the snapshot."""
        return Snapshot(self.dirs, ENDPOINT)

    def entry(self, file: LocalFile) -> Entry:
        """What is listed once this file is loaded."""
        facts = self.scanner.facts(self.dirs)
        digest = facts.md5(file)
        assert digest is not None
        return Entry.of(file, digest, facts.span(file))

    def plan(self, ledger: Ledger, **options: Any) -> RoundPlan:
        """Scan and plan."""
        scan = self.scan(ledger.entries)
        facts = self.scanner.facts(self.dirs)
        return plan(scan, ledger.entries, {}, PlanOptions(**options), facts)

    def load_all(self) -> Ledger:
        """List everything that may be sent, as if a round had loaded it."""
        ledger = self.ledger()
        rebuild(ledger, (), {})
        ledger.fold(self.entry(each) for each in self.scan().files.values())
        return ledger

    def tree(self, data_dir: int = 0) -> Tree:
        """The tree of a data directory."""
        return self.dirs.trees[self.data_dirs[data_dir]]

    def sender_dir(self, data_dir: int = 0) -> Path:
        """Where the lists of a data directory are."""
        return self.data_dirs[data_dir] / "sync-sender" / ENDPOINT


@dataclass
class FakeFacts:
    """Contents and times from a dictionary."""

    digests: Mapping[FilePath, str | None] = field(default_factory=dict)
    spans: Mapping[FilePath, Span] = field(default_factory=dict)
    asked: list[FilePath] = field(default_factory=list)

    def md5(self, file: LocalFile) -> str | None:
        """See `ContentFacts`."""
        self.asked.append(file.path)
        return self.digests.get(file.path)

    def span(self, file: LocalFile) -> Span | None:
        """See `ContentFacts`."""
        return self.spans.get(file.path)


def digest(content: bytes) -> str:
    """MD5 in hex."""
    return md5(content).hexdigest()


def inventory(entries: Sequence[Entry], state: str = "loaded") -> list[InventoryEntry]:
    """A receiver that has these."""
    return [
        InventoryEntry(path=each.path.text, size=each.size, md5=each.md5, state=state)
        for each in entries
    ]


def done(task: str, outcomes: Mapping[FilePath, Result]) -> TaskAnswer:
    """A committed task."""
    return TaskAnswer(
        task=task,
        state=TaskState.DONE,
        commit=1,
        outcomes=[Outcome(path=at.text, result=result) for at, result in outcomes.items()],
    )


def rebuild(
    ledger: Ledger, inventory: Iterable[InventoryEntry], present: Mapping[FilePath, LocalFile]
) -> Rebuilt:
    """Make a list what an inventory says, as a round does."""
    new = rebuilt(ledger.entries, ledger.pending, inventory, present, ledger.home)
    ledger.become(new)
    return new
