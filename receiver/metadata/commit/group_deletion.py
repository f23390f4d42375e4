"""Deletion of storage groups: refused while they hold loaded files, unless these are to go, too.

Which files those are is decided from committed state, and the commit holds only if nothing has
been committed since: a file that is loaded meanwhile is looked at as well. Their bytes stay for the
history, as those of any deleted file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from receiver.metadata.commit.guards import Guard
from receiver.metadata.model import records
from receiver.metadata.model.errors import (
    GroupDeletionHeldError,
    GuardFailed,
    StorageGroupHoldsFilesError,
    StorageGroupMissingError,
)
from receiver.metadata.model.paths import (
    IllegalPathError,
    Nodes,
    Pattern,
    device_nodes,
    format_path,
    parse_lax,
)
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from receiver.metadata.state.lock import Reading
    from receiver.metadata.state.state import State
    from receiver.metadata.state.table_rows import FileRow

__all__ = ["GroupsDeleted", "delete_groups", "files_of"]

_ATTEMPTS: Final = 50
_SHOWN: Final = 3
_DIGITS: Final = 32


class _Engine(Protocol):
    """What reads and commits."""

    def reading(self) -> Reading:
        """Committed state, for a block."""

    def commit(self, ops: Sequence[records.Op], guards: Sequence[Guard] = ()) -> int:
        """The timestamp of a commit."""


@dataclass(frozen=True)
class GroupsDeleted:
    """What was done.

    Attributes:
        commit: that did it.
        ttls: of each storage group that had one, in milliseconds.
        files: that were deleted with them.
        size: of these, in bytes.
    """

    commit: int
    ttls: dict[str, int]
    files: int
    size: int


def delete_groups(
    engine: _Engine,
    patterns: Sequence[Pattern],
    *,
    with_data: bool,
    held_from: int | None,
    allowed: str | None,
) -> GroupsDeleted:
    """Delete the storage groups that match, with all that is below them, in one commit.

    Args:
        engine: that they are in.
        patterns: of their paths.
        with_data: whether the loaded files that they hold are deleted, too.
        held_from: so many files go only with the digest of their list; None: any number does.
        allowed: that digest.

    Raises:
        StorageGroupMissingError: a pattern matches none.
        StorageGroupHoldsFilesError: they hold files, and these are not to go, or cannot go alone.
        GroupDeletionHeldError: the files are many, and not those of the digest.
    """
    for attempt in range(_ATTEMPTS):
        with engine.reading() as state:
            groups = _matching(state, patterns)
            seen = state.newest
            held, beyond = files_of(state, [nodes for nodes, _ in groups])
        texts = [format_path(nodes) for nodes, _ in groups]
        if held:
            _judge(texts, held, beyond, with_data=with_data, held_from=held_from, allowed=allowed)
        ops: list[records.Op] = [records.FileDeleted(row.physical, "operator") for row in held]
        ops += map(records.StorageGroupDeleted, texts)
        try:
            commit = engine.commit(ops, [Guard("state", "", seen)])
        except GuardFailed:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            break
    ttls = {format_path(nodes): ttl for nodes, ttl in groups if ttl is not None}
    return GroupsDeleted(commit, ttls, len(held), sum(row.size for row in held))


def _matching(state: State, patterns: Sequence[Pattern]) -> list[tuple[Nodes, int | None]]:
    there = [(row.nodes, row.ttl) for row in state.schema.groups.rows()]
    found: dict[Nodes, int | None] = {}
    for pattern in patterns:
        matching = {nodes: ttl for nodes, ttl in there if pattern.matches(nodes)}
        if not matching:
            raise StorageGroupMissingError(
                f"there is no storage group {pattern.text}", extra={"path": pattern.text}
            )
        found |= matching
    return list(found.items())


def files_of(state: State, groups: Collection[Nodes]) -> tuple[list[FileRow], list[FileRow]]:
    """The files that have a device in a group, and those of them that have others as well."""
    within: dict[int, bool] = {}
    wanted = frozenset(groups)
    held, beyond = [], []
    for row in state.files.values():
        if row.state is FileState.DELETED:
            continue
        devices, _, _ = row.devices.parts()
        for each in devices:
            if each not in within:
                within[each] = _lies_in(_nodes(row.devices.name(each)), wanted)
        inside = [within[each] for each in devices] or [_lies_in(_home(row), wanted)]
        if any(inside):
            held.append(row)
            if not all(inside):
                beyond.append(row)
    return held, beyond


def _nodes(device: str) -> Nodes:
    try:
        return device_nodes(device)
    except IllegalPathError:
        return ()


def _home(row: FileRow) -> Nodes:
    """The storage group that the directory of a file without devices names."""
    try:
        return parse_lax(row.parsed.sg)
    except IllegalPathError:
        return ()


def _lies_in(nodes: Nodes, groups: frozenset[Nodes]) -> bool:
    return any(nodes[:end] in groups for end in range(2, len(nodes) + 1))


def _judge(
    groups: Sequence[str],
    held: Sequence[FileRow],
    beyond: Sequence[FileRow],
    *,
    with_data: bool,
    held_from: int | None,
    allowed: str | None,
) -> None:
    size = sum(row.size for row in held)
    names = ", ".join(groups[:_SHOWN]) + (", ..." if len(groups) > _SHOWN else "")
    extra: dict[str, object] = {"path": names, "files": len(held), "bytes": size}
    what = f"{len(held)} loaded file{'' if len(held) == 1 else 's'} of {size} bytes"
    if not with_data:
        raise StorageGroupHoldsFilesError(
            f"{names}: holds {what}; `delete storage group {names} with data` deletes them, too",
            extra=extra,
        )
    if beyond:
        some = ", ".join(sorted(row.physical for row in beyond)[:_SHOWN])
        raise StorageGroupHoldsFilesError(
            f"{names}: {len(beyond)} of its {what} hold devices of other storage groups as well, "
            f"and would take those along: {some}",
            extra=extra,
        )
    digest = _digest(held)
    if held_from is not None and len(held) >= held_from and allowed != digest:
        raise GroupDeletionHeldError(
            f"{names}: {what} would be deleted, which is held; to let this very list through: "
            f"delete storage group {names} with data '{digest}'",
            extra={**extra, "digest": digest},
        )


def _digest(rows: Sequence[FileRow]) -> str:
    listed = "\n".join(sorted(f"{row.physical} {row.md5}" for row in rows))
    return hashlib.sha256(listed.encode()).hexdigest()[:_DIGITS]
