"""Rules of files: loaded, named, ended, deleted, proved, and what belongs to them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from common.errors import ConflictError
from receiver.metadata.commit.judging.record_checks import (
    check_content,
    check_devices,
    check_names,
    check_origin,
    parse_path,
    refusal_of,
)
from receiver.metadata.commit.judging.rule_overlay import THERE, FileOnTrial, Rule, RuleOverlay
from receiver.metadata.commit.pace import paced
from receiver.metadata.commit.replaced.becoming_final import between_final
from receiver.metadata.model import records
from receiver.metadata.model.merged_names import is_merged
from receiver.metadata.state.table_rows import FileState
from receiver.metadata.state.uploaded_rows import UploadedRow

if TYPE_CHECKING:
    pass

__all__ = ["FILE_RULES"]


def _file_loaded(on: RuleOverlay, op: records.FileLoaded) -> None:
    on.need_sender(op.sender, op)
    check_names(op)
    check_content(op)
    if op.origin is not None:
        check_origin(op, op.origin)
    if on.file(op.physical) is not None:
        raise refusal_of(op, f"the name {op.physical} is taken")
    there = on.held(op.sender, op.path)
    if there is not None:
        raise refusal_of(op, f"{op.path} is loaded already, as {there}")
    _check_merged(on, op)
    for device in paced(op.devices, on.pace):
        owner = on.owner(device.name)
        if owner is None:
            on.put(("owner", device.name), op.owner or op.sender)
        elif owner not in (op.sender, op.owner, *op.others):
            raise ConflictError(
                f"{op.path}: the device {device.name} belongs to another sender",
                extra={"device": device.name, "path": op.path, "owner": owner},
            )
    on.put_file(op.physical, FileOnTrial(op.sender, op.path, FileState.LIVE, retired=False))
    for key in on.state.lost_table.found_by(op):
        on.put(("lost", *key), False)
    for row in on.state.deletion_table.unloaded(op.sender, op.path):
        on.put(("deletions", op.sender, op.physical, row.form), len(row.content))


def _check_merged(on: RuleOverlay, op: records.FileLoaded) -> None:
    """Refuse what would come between files that are merged for good, and merged files."""
    if is_merged(op.physical):
        if op.physical not in on.final:
            raise refusal_of(op, f"{op.physical} is called as merged files are")
        return  # it was judged with all that it is made of
    final = between_final(on.state, op)
    if final is not None:
        raise ConflictError(
            f"{op.path} stands between files that were merged for good, as {final}",
            extra={"path": op.path, "file": final},
        )


def _file_deleted(on: RuleOverlay, op: records.FileDeleted) -> None:
    on.shake(op.physical)
    file = on.need_file(op.physical, op, *THERE, FileState.SUPERSEDED)
    gone = replace(file, state=FileState.DELETED)
    if file.held:
        on.put_file(op.physical, gone)
    else:
        on.put(("file", op.physical), gone)


def _file_retired(on: RuleOverlay, op: records.FileRetired) -> None:
    on.shake(op.physical)
    file = on.need_file(op.physical, op, FileState.LIVE, FileState.QUARANTINED)
    if file.retired:
        raise refusal_of(op, f"{op.physical} is retired already")
    state = FileState.RETIRED if file.state is FileState.LIVE else file.state
    ended = FileOnTrial(file.sender, file.path, state, retired=True, names=file.names)
    on.put_file(op.physical, ended)


def _file_returned(on: RuleOverlay, op: records.FileReturned) -> None:
    on.shake(op.physical)
    file = on.need_file(op.physical, op, FileState.RETIRED)
    path = op.path or file.path
    parse_path(op, path)
    there = on.held(file.sender, path)
    if there is not None:
        raise refusal_of(op, f"{path} is loaded already, as {there}")
    on.put_file(op.physical, FileOnTrial(file.sender, path, FileState.LIVE, retired=False))


def _file_quarantined(on: RuleOverlay, op: records.FileQuarantined) -> None:
    on.shake(op.physical)
    file = on.need_file(op.physical, op, FileState.LIVE, FileState.RETIRED)
    on.put(("file", op.physical), replace(file, state=FileState.QUARANTINED))


def _file_restored(on: RuleOverlay, op: records.FileRestored) -> None:
    file = on.need_file(op.physical, op, FileState.QUARANTINED)
    state = FileState.RETIRED if file.retired else FileState.LIVE
    on.put(("file", op.physical), replace(file, state=state))


def _file_named(on: RuleOverlay, op: records.FileNamed) -> None:
    parse_path(op, op.path)
    file = on.need_file(op.physical, op, FileState.LIVE, FileState.QUARANTINED)
    if file.retired:
        raise refusal_of(op, f"{op.physical} is retired")
    there = on.held(file.sender, op.path)
    if there is not None:
        raise refusal_of(op, f"{op.path} is loaded already, as {there}")
    on.put(("path", file.sender, op.path), op.physical)
    path, *names = op.among((file.path, *file.names))
    on.put(("file", op.physical), replace(file, path=path, names=tuple(names)))


def _file_unnamed(on: RuleOverlay, op: records.FileUnnamed) -> None:
    on.shake(op.physical)
    file = on.need_file(op.physical, op, FileState.LIVE, FileState.QUARANTINED)
    left = [each for each in (file.path, *file.names) if each != op.path]
    if file.retired or len(left) != len(file.names):
        raise refusal_of(op, f"{op.path} is no name of {op.physical}")
    if not left:
        raise refusal_of(op, f"{op.path} is the only name of {op.physical}")
    on.put(("path", file.sender, op.path), None)
    on.put(("file", op.physical), replace(file, path=left[0], names=tuple(left[1:])))


def _origin_noted(on: RuleOverlay, op: records.OriginNoted) -> None:
    on.shake(op.physical)
    file = on.need_file(op.physical, op, *THERE, FileState.SUPERSEDED)
    check_origin(op, op.origin)
    on.put(("file", op.physical), file)


def _resource_noted(on: RuleOverlay, op: records.ResourceNoted) -> None:
    file = on.need_file(op.physical, op, *THERE, FileState.SUPERSEDED)
    on.put(("file", op.physical), file)


def _file_superseded(on: RuleOverlay, op: records.FileSuperseded) -> None:
    file = on.need_file(op.physical, op, FileState.RETIRED)
    if len(set(op.rests)) != len(op.rests) or op.physical in op.rests:
        raise refusal_of(op, f"{op.physical} rests on a file twice, or on itself")
    for physical in op.rests:
        on.need_file(physical, op, FileState.LIVE, FileState.RETIRED)
        on.touched.written.add(("resting", physical))
    on.put(("file", op.physical), replace(file, state=FileState.SUPERSEDED))


def _file_revived(on: RuleOverlay, op: records.FileRevived) -> None:
    file = on.need_file(op.physical, op, FileState.SUPERSEDED)
    row = on.state.files.get(op.physical)
    rests = () if row is None else row.rests
    if rests and all(is_merged(each) and _is_visible(on, each) for each in rests):
        raise refusal_of(op, f"{op.physical} is merged for good, in {rests[0]}")
    on.put(("file", op.physical), replace(file, state=FileState.RETIRED))


def _is_visible(on: RuleOverlay, physical: str) -> bool:
    file = on.file(physical)
    return file is not None and file.state in (FileState.LIVE, FileState.RETIRED)


def _file_undeleted(on: RuleOverlay, op: records.FileUndeleted) -> None:
    file = on.need_file(op.physical, op, FileState.DELETED)
    if (row := on.state.files.get(op.physical)) is not None:
        check_devices(op, op.physical, op.devices, (row.first, row.last))
    on.put(("file", op.physical), replace(file, state=FileState.RETIRED, retired=True))


def _file_verified(on: RuleOverlay, op: records.FileVerified) -> None:
    if not op.physicals or len(set(op.physicals)) != len(op.physicals):
        raise refusal_of(op, "there is no file, or one twice")
    for physical in op.physicals:
        file = on.need_file(physical, op, FileState.LIVE, FileState.RETIRED)
        on.put(("file", physical), file)


def _file_forgotten(on: RuleOverlay, op: records.FileForgotten) -> None:
    on.need_file(op.physical, op, FileState.DELETED)
    on.put(("file", op.physical), None)


def _file_uploaded(on: RuleOverlay, op: records.FileUploaded) -> None:
    on.need_file(op.physical, op, *FileState)
    row = on.state.files.get(op.physical)  # none if this very commit loads it
    if row is not None and op.size != row.size:
        raise refusal_of(op, f"{op.physical} has another size than {op.size} bytes")
    if op.incarnation < 1:
        raise refusal_of(op, f"{op.physical} has no owner in the store")
    there = _uploaded(on, op.physical)
    if there is not None:
        known, told = (there.incarnation, there.again), (op.incarnation, op.again)
        if told < known or (told != known and not op.again):
            text = f"{op.physical} is in the store already, of incarnation {there.incarnation}"
            raise refusal_of(op, text)
        if (*told, op.resource, op.digests) == (*known, there.resource, there.digests):
            raise refusal_of(op, f"{op.physical} is in the store already, with that resource")
    on.put(("uploaded", op.physical), op)


def _object_removed(on: RuleOverlay, op: records.ObjectRemoved) -> None:
    row = on.state.uploaded_table.rows.get(op.physical)
    if row is None or not row.ended or _uploaded(on, op.physical) is None:
        raise refusal_of(op, f"{op.physical} is not in the store, or not forgotten")
    on.put(("uploaded", op.physical), None)


def _uploaded(on: RuleOverlay, physical: str) -> UploadedRow | records.FileUploaded | None:
    found = on.get(("uploaded", physical), lambda: on.state.uploaded_table.rows.get(physical))
    assert found is None or isinstance(found, UploadedRow | records.FileUploaded)
    return found


def _series_loaded(on: RuleOverlay, op: records.SeriesLoaded) -> None:
    file = on.need_file(op.physical, op, *THERE)
    on.schema.series_loaded(op, file.path, file.sender)


FILE_RULES: dict[type, Rule] = {
    records.FileLoaded: _file_loaded,
    records.FileDeleted: _file_deleted,
    records.FileRetired: _file_retired,
    records.FileReturned: _file_returned,
    records.FileQuarantined: _file_quarantined,
    records.FileRestored: _file_restored,
    records.FileNamed: _file_named,
    records.FileUnnamed: _file_unnamed,
    records.OriginNoted: _origin_noted,
    records.ResourceNoted: _resource_noted,
    records.FileSuperseded: _file_superseded,
    records.FileRevived: _file_revived,
    records.FileUndeleted: _file_undeleted,
    records.FileVerified: _file_verified,
    records.FileForgotten: _file_forgotten,
    records.FileUploaded: _file_uploaded,
    records.ObjectRemoved: _object_removed,
    records.SeriesLoaded: _series_loaded,
}
