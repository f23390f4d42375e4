"""Rules of what is kept beside files: deletion files, losses, quarantine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.digests import is_md5
from receiver.metadata.commit.judging.record_checks import (
    SIGNED_64,
    is_range,
    parse_path,
    refusal_of,
)
from receiver.metadata.commit.judging.rule_overlay import Rule, RuleOverlay
from receiver.metadata.commit.touched import TouchedKey
from receiver.metadata.model import records
from receiver.metadata.state.table_rows import FileState

if TYPE_CHECKING:
    pass

__all__ = ["KEPT_RULES"]

_FORMS = ("mods", "mods2")


def _deletions_noted(on: RuleOverlay, op: records.DeletionsNoted) -> None:
    if op.form not in _FORMS or op.floor not in SIGNED_64 or op.floor < 0:
        raise refusal_of(op, f"{op.form!a} with the look {op.floor} is no deletion file")
    key, known = _deletion_file(on, op)
    if op.base not in (0, known):
        raise refusal_of(op, f"{op.path}: {known} bytes of deletions are known, not {op.base}")
    on.put(key, op.base + len(op.content))


def _kept_records_applied(on: RuleOverlay, op: records.KeptRecordsApplied) -> None:
    key, known = _deletion_file(on, op)
    if not op.ends or not 0 < min(op.ends) <= max(op.ends) <= known:
        raise refusal_of(op, f"{op.path}: {known} bytes of deletions are known")
    on.put(key, known)


def _deletion_file(
    on: RuleOverlay, op: records.DeletionsNoted | records.KeptRecordsApplied
) -> tuple[TouchedKey, int]:
    """What stands for a deletion file, and how many bytes of it are known."""
    on.need_sender(op.sender, op)
    parse_path(op, op.path)
    if op.physical is not None:
        file = on.file(op.physical)
        if file is None or file.sender != op.sender or op.heir:
            raise refusal_of(op, f"{op.physical} is no file of {op.heir or op.sender}")
    begun = bool(on.changes.get(("list_begun", op.sender)))
    table = "deletions anew" if begun else "deletions"
    name = op.path if op.physical is None else op.physical
    key = (table, op.sender, name, op.form, *([op.heir] if op.heir else []))
    return key, on.get(key, lambda: 0 if begun else _known_deletions(on, op))


def _known_deletions(
    on: RuleOverlay, op: records.DeletionsNoted | records.KeptRecordsApplied
) -> int:
    table = on.state.deletion_table
    if op.physical is None:
        rows = table.unloaded(op.sender, op.path, op.heir)
    else:
        rows = table.of_file(op.physical)
    return next((len(row.content) for row in rows if row.form == op.form), 0)


def _file_lost(on: RuleOverlay, op: records.FileLost) -> None:
    on.need_sender(op.sender, op)
    parse_path(op, op.path)
    if not is_md5(op.md5) or not 0 <= op.size < SIGNED_64.stop:
        raise refusal_of(op, f"{op.path}: {op.size} bytes with {op.md5!a} are no content")
    if not is_range(op.first, op.last):
        raise refusal_of(op, f"{op.path}: {op.first} to {op.last} is no range of time")
    if _is_lost(on, (op.sender, op.path, op.md5)):
        raise refusal_of(op, f"{op.path} of {op.sender} is lost already")
    on.put(("lost", op.sender, op.path, op.md5), True)


def _loss_acknowledged(on: RuleOverlay, op: records.LossAcknowledged) -> None:
    key = (op.sender, op.path, op.md5)
    if op.physical:
        file = on.need_file(op.physical, op, FileState.QUARANTINED)
        row = on.state.files[op.physical]
        is_gone = file.retired or on.state.held_deletes.has_end(op.physical)
        if not is_gone or (row.sender, row.path, row.md5) != key:
            raise refusal_of(op, f"{op.physical} is not lost, or is another file")
    elif not _is_lost(on, key):
        raise refusal_of(op, f"{op.path!a} of {op.sender} is not lost")
    on.put(("lost", *key), True)


def _is_lost(on: RuleOverlay, key: tuple[str, str, str]) -> bool:
    return on.get(("lost", *key), lambda: key in on.state.lost_table.rows)


def _let_go_noted(on: RuleOverlay, op: records.LetGoNoted) -> None:
    _let_go(on, op)
    if not is_md5(op.md5) or op.deleted not in SIGNED_64 or op.deleted <= 0:
        raise refusal_of(op, f"{op.path}: {op.md5!a}, deleted at {op.deleted}, is no file")


def _let_go(on: RuleOverlay, op: records.LetGoNoted | records.LetGoEnded) -> None:
    on.need_sender(op.sender, op)
    parse_path(op, op.path)
    on.put(("let_go", op.sender, op.path), True)


def _quarantine_put(on: RuleOverlay, op: records.QuarantinePut) -> None:
    on.need_sender(op.sender, op)
    parse_path(op, op.path)
    on.put(("quarantine", op.sender, op.path, op.digest), True)


def _quarantine_drop(on: RuleOverlay, op: records.QuarantineDrop) -> None:
    if not _is_quarantined(on, (op.sender, op.path, op.digest)):
        raise refusal_of(op, f"{op.path!a} of {op.sender} is not in quarantine with this digest")
    on.put(("quarantine", op.sender, op.path, op.digest), False)


def _is_quarantined(on: RuleOverlay, key: tuple[str, str, str]) -> bool:
    return on.get(("quarantine", *key), lambda: key in on.state.quarantine)


KEPT_RULES: dict[type, Rule] = {
    records.DeletionsNoted: _deletions_noted,
    records.KeptRecordsApplied: _kept_records_applied,
    records.FileLost: _file_lost,
    records.LossAcknowledged: _loss_acknowledged,
    records.LetGoNoted: _let_go_noted,
    records.LetGoEnded: _let_go,
    records.QuarantinePut: _quarantine_put,
    records.QuarantineDrop: _quarantine_drop,
}
