"""What is in a receiver's directories, read from outside the process that serves them.

The same as `tsferry-receiver files` tells, without a process for every look.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import suppress
from pathlib import Path

from receiver.metadata.engine import Engine
from receiver.metadata.state.table_rows import FileRow, FileState
from tests.support.edge import Edge

Root = Path
"""The directory of a `tests.support.centre.Centre`: `schema` and `data` are in it."""


def rows(root: Root, sender: str) -> list[FileRow]:
    """Every row of a sender, deleted files too."""
    with Engine.read_only(root / "schema") as engine, engine.reading() as state:
        return [row for row in state.files.values() if row.sender == sender]


def states(root: Root, edge: Edge) -> dict[FileState, list[str]]:
    """state -> paths, sorted; a path stands twice where it was loaded twice."""
    found: dict[FileState, list[str]] = {state: [] for state in FileState}
    for row in rows(root, edge.uuid):
        found[row.state].append(row.path)
    return {state: sorted(paths) for state, paths in found.items()}


def loaded(root: Root, sender: str) -> dict[str, str]:
    """path -> MD5 of the bytes on disk of every live file."""
    found: dict[str, str] = {}
    for row in rows(root, sender):
        if row.state is FileState.LIVE:
            md5 = _md5(root / "data" / row.physical)
            assert md5 == row.md5, row
            assert row.path not in found, f"loaded twice: {row.path}"
            found[row.path] = md5
    return found


def resources(root: Root, sender: str) -> dict[str, str]:
    """path -> MD5 of the bytes on disk of the resource of every live file."""
    return {
        row.path: _md5(root / "data" / f"{row.physical}.resource")
        for row in rows(root, sender)
        if row.state is FileState.LIVE and row.resource is not None
    }


def once(root: Root, sender: str) -> None:
    """No content was ever loaded twice under one path."""
    loads = Counter((row.path, row.md5) for row in rows(root, sender))
    assert [load for load, times in loads.items() if times > 1] == []


def in_sync(edge: Edge, root: Root) -> None:
    """The loaded set equals the edge's set, byte by byte; nothing is left behind."""
    assert loaded(root, edge.uuid) == edge.files
    assert edge.listed == sorted(edge.files)
    assert edge.leftovers == []


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def largest(root: Path, pattern: str) -> int:
    """Bytes of the largest file that there is; what is moved or goes meanwhile is none."""
    sizes = [0]
    with suppress(FileNotFoundError):  # a directory
        for each in root.glob(pattern):
            with suppress(FileNotFoundError):
                if each.is_file():
                    sizes.append(each.stat().st_size)
    return max(sizes)
