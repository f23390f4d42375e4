"""A receiver's directories with a few committed files, made without a server."""

from __future__ import annotations

import hashlib
from pathlib import Path

from common.names import FilePath
from common.tsfile import read_tail
from receiver.metadata import records
from receiver.metadata.engine import Engine

NORTH, SOUTH = "a" * 32, "b" * 32


class World:
    """Commits files one by one; `config` is a receiver.toml that names its directories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        (root / "schema").mkdir(parents=True)
        self.data.mkdir()
        self.config = root / "receiver.toml"
        self.config.write_text('schema_dir = "schema"\ndata_dirs = ["data"]\n')
        self.engine = Engine.open(root / "schema")
        self.engine.commit(
            [
                records.SenderSeen(uuid=each, label="x", directory=f"x_{each}")
                for each in (NORTH, SOUTH)
            ]
        )
        self._tag = 0

    def load(self, sender: str, path: str, content: bytes, *, points: int | None = None) -> Path:
        """Commit one file as loaded; returns where it lies."""
        self._tag += 1
        parsed = FilePath.parse(path)
        physical = parsed.physical(f"{self._tag:016x}")
        place = self.data / physical.text
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        tail = read_tail(content)
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
                        records.DeviceRange(each.name, each.start, each.end)
                        for each in tail.devices
                    ],
                    first=tail.first_time,
                    last=tail.last_time,
                    series=tail.series_count,
                    points=tail.point_count,
                    task=f"{self._tag:032x}",
                    resource=None,
                    manifest=records.ManifestMeta(
                        tail.series_count, tail.point_count if points is None else points
                    ),
                )
            ]
        )
        return place
