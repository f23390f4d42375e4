"""What is to be proved: the committed files, and what the catalogue alone can say of them.

The receiver's log is read beside the running server, without its lock and without a write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from common.errors import NotFoundError
from receiver.metadata.engine import Engine
from receiver.metadata.rows import FileState
from receiver.spark.checks import Expected, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from receiver.metadata.rows import FileRow
    from receiver.metadata.state import State

__all__ = ["Catalogue", "CommittedFile", "read_catalogue"]


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A loaded file as the catalogue has it.

    Attributes:
        expected: what its bytes must show.
        sender: uuid of the sender.
        path: its path at the sender.
        task: the task that loaded it.
        kind: `sequence` or `unsequence`.
        current: whether it is part of the sender's present set (a retired file is not).
        findings: what is wrong with it as far as the catalogue alone can tell.
    """

    expected: Expected
    sender: str
    path: str
    task: str
    kind: str
    current: bool
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The committed files at one commit."""

    engine: str
    commit: int
    files: list[CommittedFile]


def read_catalogue(schema_dir: Path, data_dirs: list[Path], task: str | None) -> Catalogue:
    """Every committed file, or those that one task loaded.

    Raises:
        NotFoundError: no such task is committed.
        DamagedError: the receiver's log is damaged.
    """
    engine = Engine.read_only(schema_dir)
    try:
        with engine.reading() as state:
            files = [
                _committed(state, row, data_dirs)
                for row in _rows(state)
                if task is None or row.task == task
            ]
            known = any(state.has_task(each, task) for each in state.senders) if task else True
        if not files and not known:
            raise NotFoundError(f"task {task} is not committed here")
        return Catalogue(engine.uuid, engine.newest_commit, files)
    finally:
        engine.close()


def _rows(state: State) -> Iterator[FileRow]:
    return (row for row in state.files.values() if row.visible)


def _committed(state: State, row: FileRow, data_dirs: list[Path]) -> CommittedFile:
    manifest = row.manifest
    devices = row.devices.names()
    expected = Expected(
        physical=row.physical,
        locations=[str(root / row.physical) for root in data_dirs],
        size=row.size,
        md5=row.md5,
        devices=devices,
        series=row.series,
        points=row.points,
        manifest_series=manifest.series if manifest else None,
        manifest_points=manifest.points if manifest else None,
    )
    return CommittedFile(
        expected=expected,
        sender=row.sender,
        path=row.path,
        task=row.task,
        kind=row.physical.partition("/")[0],
        current=not row.retired and row.state is not FileState.RETIRED,
        findings=tuple(_ownership(state, row, devices)),
    )


def _ownership(state: State, row: FileRow, devices: list[str]) -> Iterator[Finding]:
    """A file must come from the owner that its devices had when it was loaded.

    A device that was transferred or released later is no fault of the file.
    """
    for device in devices:
        owner = state.owners.get(device)
        if owner is not None and owner.sender != row.sender and owner.since <= row.created:
            yield Finding("owner", f"{device} belongs to {owner.sender}, not to {row.sender}")
