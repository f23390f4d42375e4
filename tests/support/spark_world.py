"""A receiver's directories with a few committed files, made without a server."""

from __future__ import annotations

import hashlib
from pathlib import Path

from common.durable import Tree
from common.names import FilePath
from common.tsfile import read_tail
from common.tsfile.proving import series_proofs
from common.wire import ProofEntry
from receiver.load.folder.manifests import write_tables
from receiver.load.folder.sender_folder import SenderFolder
from receiver.load.schema.registering import read_series
from receiver.metadata.engine import Engine
from receiver.metadata.model import records

NORTH, SOUTH = "a" * 32, "b" * 32


class World:
    """Commits files one by one; `config` is a receiver.toml that names its directories."""

    @classmethod
    def reopened(cls, root: Path) -> World:
        """A world that was made before, its engine closed meanwhile."""
        world = cls.__new__(cls)
        world.root, world.data, world.config = root, root / "data", root / "receiver.toml"
        world.engine = Engine.open(root / "schema", background=False)
        world._tree, world._tag = Tree(world.data), 1000
        return world

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        (root / "schema").mkdir(parents=True)
        self.data.mkdir()
        self.config = root / "receiver.toml"
        self.config.write_text('schema_dir = "schema"\ndata_dirs = ["data"]\n')
        self.engine = Engine.open(root / "schema", background=False)
        self.engine.commit(
            [
                records.SenderSeen(uuid=each, label="x", directory=f"x_{each}")
                for each in (NORTH, SOUTH)
            ]
        )
        self._tree = Tree(self.data)
        self._tag = 0

    def load(
        self,
        sender: str,
        path: str,
        content: bytes,
        *,
        points: int | None = None,
        sent: bytes | None = None,
        registered: bool = False,
        look: int = 0,
    ) -> Path:
        """Commit one file as loaded; returns where it lies.

        Args:
            sender: one of those that are known.
            path: at the sender.
            content: of the file.
            points: that the manifest says there are.
            sent: what the sender's manifest is about; the content if left out.
            registered: put its series into the schema.
            look: the first that had it, closed; 0 for none.
        """
        self._tag += 1
        parsed = FilePath.parse(path)
        physical = parsed.physical(f"{self._tag:016x}")
        place = self.data / physical.text
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        tail = read_tail(content)
        sent_tail = tail if sent is None else read_tail(sent)
        table = series_proofs(content if sent is None else sent, sent_tail)
        task = f"{self._tag:032x}"
        write_tables(
            self._folder(sender), task, {path: ProofEntry(root=table.root, table=table.pack())}
        )
        series: list[records.Op] = []
        if registered:
            group = records.StorageGroupSet(parsed.sg, if_missing=True)
            devices = read_series(content, tail, parsed.sg)
            series = [group, records.SeriesLoaded(physical.text, devices)]
        self.engine.commit(
            [
                records.FileLoaded(
                    sender=sender,
                    path=path,
                    physical=physical.text,
                    size=len(content),
                    md5=hashlib.md5(content).hexdigest(),
                    tail="0" * 32,
                    version=tail.version or 0,
                    devices=[
                        records.DeviceRange(each.name_in(parsed.sg), each.start, each.end)
                        for each in tail.devices
                    ],
                    first=tail.first_time,
                    last=tail.last_time,
                    series=tail.series_count,
                    points=tail.point_count,
                    task=task,
                    resource=None,
                    manifest=records.ManifestMeta(
                        sent_tail.series_count,
                        sent_tail.point_count if points is None else points,
                        table.root,
                    ),
                    data_dir=str(self.data),
                    first_look=look,
                    closed_look=look,
                ),
                *series,
            ]
        )
        return place

    def _folder(self, sender: str) -> SenderFolder:
        return SenderFolder(self._tree, sender, f"x_{sender}")
