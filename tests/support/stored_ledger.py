"""The judge of a centre with an object store: each file whole somewhere, once, or named.

What edges wrote is its ledger (`Workload`); what the centre says is read from its schema directory
while nobody serves it, and what it has from its data directory and from its store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from receiver.config import ReceiverConfig
from receiver.metadata.engine import Engine
from receiver.metadata.state.table_rows import FileRow, FileState
from receiver.metadata.state.uploaded_rows import UploadedRow
from receiver.storage.copying import store_of
from receiver.storage.objects.object_check import md5_of_object
from receiver.storage.stores.object_keys import resource_key, stored_key
from receiver.storage.stores.object_store import ObjectMissingError, ObjectStore
from tests.support.judge import md5_of
from tests.support.workload import Workload

_SEEN = (FileState.LIVE, FileState.RETIRED)


class StoredLedger:
    """What lies at a centre, looked at once.

    Attributes:
        rows: of the catalogue.

    Args:
        config: of the receiver.
        data: its data directory.
        bare: resources may be nowhere.
    """

    def __init__(self, config: ReceiverConfig, data: Path, *, bare: bool = False) -> None:
        self._data, self._bare = data, bare
        with Engine.read_only(config.schema_dir) as engine, engine.reading() as state:
            self._uuid = engine.uuid
            self.rows: list[FileRow] = list(state.files.values())
            self._stored: dict[str, UploadedRow] = dict(state.uploaded_table.rows)
        self._store: ObjectStore = store_of(config.storage)

    def close(self) -> None:
        self._store.close()

    def live(self, sender: str) -> dict[str, FileRow]:
        """By path."""
        return {
            row.path: row
            for row in self.rows
            if row.sender == sender and row.state is FileState.LIVE
        }

    def wanted(self, sender: str) -> set[str]:
        """Paths of what it asks for again."""
        return {
            row.path
            for row in self.rows
            if row.sender == sender and row.state is FileState.QUARANTINED
        }

    def whole(self, edges: Mapping[str, Workload]) -> list[str]:
        """What readers see and is not whole, not of an edge, or there twice; at any time."""
        problems = []
        live = Counter((row.sender, row.path) for row in self.rows if row.state is FileState.LIVE)
        problems += [f"{each}: loaded {n} times over" for each, n in live.items() if n > 1]
        seen = Counter((row.sender, row.path, row.md5) for row in self.rows if row.visible)
        problems += [f"{each}: the same content {n} times" for each, n in seen.items() if n > 1]
        for row in self.rows:
            if row.state not in _SEEN:
                continue
            if (row.path, row.md5) not in edges[row.sender].ever:
                problems.append(f"{row.path}: content {row.md5} was never at the edge")
            if (found := self._md5(row)) != row.md5:
                problems.append(f"{row.path} ({row.physical}): {found} in place of {row.md5}")
            asks = not self._bare
            if asks and row.resource is not None and self._resource(row) != row.resource.md5:
                problems.append(f"{row.path} ({row.physical}): its resource is not whole anywhere")
        return problems

    def lacking(self, sender: str, freed: Mapping[str, str]) -> list[str]:
        """What its sender has removed, with these MD5s, and the centre does not hold."""
        there = {(row.path, row.md5) for row in self.rows if row.sender == sender and row.visible}
        return [f"{each}: freed, and not here" for each in freed.items() - there]

    def settled(
        self,
        edges: Mapping[str, Workload],
        freed: Mapping[str, Mapping[str, str]],
        retiring: Collection[str] = (),
        *,
        restored: bool = False,
    ) -> list[str]:
        """What is wrong when rounds say that all is in sync.

        Args:
            edges: by uuid of the sender.
            freed: what each has removed, with its MD5.
            retiring: see `judge.settled`.
            restored: a restore may have given up resources that had not come to the store.
        """
        problems = self.whole(edges)
        for sender, edge in edges.items():
            there = self.live(sender)
            problems += [f"{path}: lost" for path in sorted(edge.files.keys() - there.keys())]
            ended = there.keys() - edge.files - freed[sender].keys()
            problems += [f"{path}: not deleted" for path in sorted(ended)]
            problems += self.lacking(sender, freed[sender])
            for path in there.keys() & edge.files:
                wanted, row = edge.files[path], there[path]
                if (row.size, row.md5) != (wanted.size, wanted.md5):
                    problems.append(f"{path}: an older content is loaded")
                elif restored and row.resource is None:
                    continue
                elif row.resource is None or row.resource.md5 != wanted.resource_md5:
                    problems.append(f"{path}: its resource is not the edge's")
        for row in self.rows:
            is_here = row.path in edges[row.sender].files
            if row.state is FileState.QUARANTINED and is_here:
                problems.append(f"{row.path}: quarantined ({row.reason})")
            if row.state is FileState.RETIRED and row.sender not in retiring:
                problems.append(f"{row.path}: retired")
        return problems

    def strays(self) -> list[str]:
        """Files beneath the data directory that no row explains."""
        known = {each for row in self.rows for each in (row.physical, f"{row.physical}.resource")}
        return [
            f"{path}: on disk, and of no row"
            for kind in ("sequence", "unsequence", ".fetching")
            for found in (self._data / kind).rglob("*")
            if found.is_file() and (path := str(found.relative_to(self._data))) not in known
        ]

    def _md5(self, row: FileRow) -> str | None:
        here, there = md5_of(self._data / row.physical), self._stored.get(row.physical)
        if here is not None or there is None:
            return here
        return self._of_object(stored_key(self._uuid, there), row.size)

    def _resource(self, row: FileRow) -> str | None:
        assert row.resource is not None
        here = md5_of(self._data / f"{row.physical}.resource")
        there = self._stored.get(row.physical)
        if here is not None or there is None:
            return here
        key = resource_key(stored_key(self._uuid, there), row.resource.md5)
        return self._of_object(key, row.resource.size)

    def _of_object(self, key: str, size: int) -> str | None:
        try:
            return md5_of_object(self._store, key, size)
        except ObjectMissingError:
            return None
