"""A schema log at an edge, and what a centre has of it, for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from common.formats.tlogtext import SLOT, read_slot, write_slot
from receiver.metadata.model.paths import format_path
from receiver.metadata.text.mlog_text import CreateSeries, SetStorageGroup, TtlLine
from tests.support.centre import COMMAND
from tests.support.mlog import parse


class SchemaLog:
    """`mlog.txt` and `tlog.txt`, written as a database does: the slot first, then the line."""

    def __init__(self, schema_dir: Path) -> None:
        schema_dir.mkdir(parents=True, exist_ok=True)
        self.mlog = schema_dir / "mlog.txt"
        self.tlog = schema_dir / "tlog.txt"

    def write(self, *lines: str, torn: str = "") -> None:
        """Append whole lines, and perhaps the begin of one."""
        with self.mlog.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines) + torn)

    def begin_anew(self, *lines: str) -> None:
        """As after a checkpoint of the database: another file."""
        self.mlog.unlink(missing_ok=True)
        self.write(*lines)

    def series(
        self, path: str, kind: int = 1, *, alias: str = "", tags: dict[str, str] | None = None
    ) -> None:
        """Create a series."""
        at = "" if tags is None else str(self.slot(tags))
        self.write(f"0,{path},{kind},0,1,,{alias},{at}")

    def slot(self, tags: dict[str, str], at: int | None = None) -> int:
        """A new slot, or another content of one; where it is."""
        content = self.tlog.read_bytes() if self.tlog.exists() else b""
        where = len(content) if at is None else at
        slot = write_slot(tags, {"maker": "test"})
        self.tlog.write_bytes(content[:where] + slot + content[where + SLOT :])
        return where


def schema_of(centre: Any, below: str) -> dict[str, dict[str, Any]]:
    """path -> what a centre's tree has there, of all below a path; by its own command."""
    slots = centre.root / "dumped-tlog"
    done = subprocess.run(
        [COMMAND, "--config", centre.config, "mlog", "dump", "--text", "--tlog", str(slots)],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return parsed(done.stdout, slots.read_bytes(), below)


def parsed(text: bytes, tlog: bytes, below: str) -> dict[str, dict[str, Any]]:
    """A text log and its tlog as plain values."""
    found: dict[str, dict[str, Any]] = {}
    for _, record in parse(text).records:
        path = format_path(record.path)
        if path != below and not path.startswith(f"{below}."):
            continue
        match record:
            case SetStorageGroup():
                found[path] = {"ttl": None}
            case TtlLine():
                found[path]["ttl"] = record.ttl
            case CreateSeries():
                tags = {} if record.offset < 0 else read_slot(tlog, record.offset).tags
                found[path] = {"type": record.type, "alias": record.alias, "tags": tags}
    return found


def position(centre: Any, uuid: str) -> dict[str, Any] | None:
    """How far a sender's schema is applied, by the centre's own command."""
    (mine,) = [each for each in centre.call("senders", "list")["senders"] if each["uuid"] == uuid]
    return mine["schema"]  # type: ignore[no-any-return]
