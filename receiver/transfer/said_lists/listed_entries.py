"""Rows of the engine, as entries of the lists that edges, readers and centres above are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.wire import (
    LOADED,
    QUARANTINED,
    CatalogueEntry,
    CompactedEntry,
    CompactedFileEntry,
    DeviceExtent,
    EndBelow,
    EndMeaning,
    FileFate,
    LooksBelow,
    NotedEntry,
    NotedRecords,
    ObjectEntry,
    OriginEntry,
    ResourceEntry,
    StoreEntry,
)
from receiver.load.deciding.told_deletions.hidden_files import older_names
from receiver.load.placing import tree_of
from receiver.metadata.model.ranks import NOW
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from common.durable import Tree
    from receiver.config import StorageConfig
    from receiver.metadata.model.ranks import TransferCut
    from receiver.metadata.model.records import FileOrigin
    from receiver.metadata.state.deletion_rows import DeletionsRow
    from receiver.metadata.state.table_rows import FileRow
    from receiver.metadata.state.tables.file_tables.compacted_rows import CompactedRow
    from receiver.metadata.state.uploaded_rows import UploadedRow

__all__ = [
    "catalogue_entry",
    "compacted_entry",
    "deletions_cursor",
    "end_below",
    "extents_of",
    "fate_of",
    "noted_entry",
    "object_entry",
    "resource_entry",
    "store_entry",
]

_MEANINGS = {"gone": EndMeaning.DELETED, "everywhere": EndMeaning.EVERYWHERE}
"""Of a reason to delete a file."""


def catalogue_entry(
    row: FileRow,
    tree: Tree | None,
    devices: list[DeviceExtent] | None,
    *,
    quarantined: bool,
    stored: ObjectEntry | None,
    at_nodes: bool,
    news: int,
) -> CatalogueEntry:
    """A file of the catalogue: where it is, what it ranks, who has it besides."""
    rank = row.rank
    return CatalogueEntry(
        path=row.physical,
        original=row.path,
        sender=row.sender,
        size=row.size,
        md5=row.md5,
        data_dir=row.data_dir if tree is None else str(tree.path),
        commit=row.created,
        first_time=row.first,
        last_time=row.last,
        resource=row.resource is not None,
        state=QUARANTINED if quarantined else LOADED,
        first_look=rank.first,
        closed_look=rank.closed,
        last_look=0 if rank.last == NOW else rank.last,
        devices=devices,
        origin=None if row.origin is None else _origin(row.origin),
        changed=row.changed,
        stored=stored is not None or at_nodes,
        object=stored,
        news=news,
    )


def compacted_entry(row: CompactedRow, trees: Sequence[Tree]) -> CompactedEntry | None:
    """None if one of its outputs is in no data directory, or is not whole."""
    outputs = []
    for each in row.outputs:
        tree = tree_of(trees, each)
        there = None if tree is None else tree.stat(each.physical)
        if tree is None or there is None or there.st_size != each.size:
            return None
        outputs.append(
            CompactedFileEntry(
                physical=each.physical,
                size=each.size,
                md5=each.md5,
                data_dir=str(tree.path),
                devices=[
                    DeviceExtent(name=name, first=first, last=last)
                    for name, first, last in each.devices.ranges()
                ],
                first=each.first,
                last=each.last,
            )
        )
    return CompactedEntry(id=row.id, commit=row.created, inputs=row.inputs, outputs=outputs)


def object_entry(there: UploadedRow) -> ObjectEntry:
    """What the object store has of it."""
    return ObjectEntry(incarnation=there.incarnation, again=there.again, digests=there.digests)


def store_entry(config: StorageConfig) -> StoreEntry | None:
    """Where who reads it finds it; whose credentials these are is known to nobody here."""
    if config.url is None:
        return None
    return StoreEntry(
        url=config.url,
        endpoint=config.endpoint,
        region=config.region,
        path_style=config.path_style,
    )


def _origin(origin: FileOrigin) -> OriginEntry:
    below = [
        LooksBelow(
            engine=each.engine,
            first=each.first,
            closed=each.closed,
            last=each.last,
            loaded=each.loaded,
            physical=each.physical,
        )
        for each in origin.below
    ]
    return OriginEntry(sender=origin.sender, path=origin.path, below=below)


def fate_of(engine: str, path: str, row: FileRow | None) -> FileFate:
    """What has become of a path that is asked for: here, ended, or not known."""
    if row is None:
        return FileFate(path=path)
    if row.held:
        bad = None if row.visible else f"it is in quarantine on this node: {row.reason}"
        return FileFate(path=path, here=True, reason=bad or "")
    return FileFate(path=path, end=end_below(engine, row))


def end_below(engine: str, row: FileRow) -> EndBelow:
    """The end of a file as it is to be told above: what was done to a copy deletes nothing."""
    rank = row.rank
    last = (row.deleted or row.changed) if rank.last == NOW else rank.last
    here = LooksBelow(
        engine=engine,
        first=rank.first,
        closed=rank.closed,
        last=last,
        loaded=rank.loaded,
        physical=row.physical,
    )
    told = None if row.origin is None else _origin(row.origin)
    meaning = _MEANINGS.get(row.reason or "", EndMeaning.RETIRED)
    return EndBelow(
        path=row.physical,
        last=last,
        origin=OriginEntry(
            sender=row.sender if told is None else told.sender,
            path=row.path if told is None else told.path,
            below=[*(told.below if told else ()), here],
        ),
        meaning=meaning if row.state is FileState.DELETED else EndMeaning.RETIRED,
    )


def resource_entry(row: FileRow) -> ResourceEntry | None:
    """Its `.resource`, if it came with one."""
    found = row.resource
    return None if found is None else ResourceEntry(size=found.size, md5=found.md5)


def extents_of(row: FileRow, cuts: Sequence[TransferCut]) -> list[DeviceExtent]:
    """From when to when it has points of each device, and in which looks they count."""
    looks = {
        device: (cut.first, 0 if cut.last == NOW else cut.last)
        for cut in cuts
        for device in cut.devices
    }
    ranges = list(row.devices.ranges())
    if not ranges and row.first is not None and row.last is not None:
        # It was deleted since: within these times its devices may have points.
        ranges = [(name, row.first, row.last) for name in row.devices]
    return [
        DeviceExtent(name=name, first=first, last=last, first_look=begin, last_look=end)
        for name, first, last in ranges
        for begin, end in (looks.get(name, (0, 0)),)
    ]


def deletions_cursor(row: DeletionsRow) -> str:
    """Where a list of deletion files goes on behind this one."""
    past, heir = f"/{row.past}" if row.past else "", f"/{row.heir}" if row.heir else ""
    return f"{row.sender}/{row.path}/{row.physical or ''}/{row.form}{past}{heir}"


def noted_entry(row: DeletionsRow, file: FileRow | None) -> NotedEntry:
    """A deletion file as it was noted, and which files are older than it."""
    return NotedEntry(
        sender=row.sender,
        path=row.path,
        physical=row.physical,
        form=row.form,
        content=row.content,
        segments=[
            NotedRecords(
                end=each.end,
                floor=each.floor,
                commit=each.commit,
                applied=each.applied,
                held=bool(each.held),
            )
            for each in row.segments
        ],
        older=sorted(older_names(row, file)),
        author=row.by,
    )
