"""Rules of senders: who they are, what they may take away, their tokens, devices and tasks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from common.names import is_sender_uuid, is_task_id
from receiver.metadata.commit.judging.record_checks import SIGNED_64, check_token, refusal_of
from receiver.metadata.commit.judging.rule_overlay import Rule, RuleOverlay
from receiver.metadata.model import records

if TYPE_CHECKING:
    pass

__all__ = ["SENDER_RULES"]

_HEX32 = re.compile(r"[0-9a-f]{32}\Z")
_LONGEST_SILENCE = 1e10


def _sender_seen(on: RuleOverlay, op: records.SenderSeen) -> None:
    if not is_sender_uuid(op.uuid):
        raise refusal_of(op, f"{op.uuid!a} is no sender uuid")
    there = on.directory(op.directory)
    if there not in (None, op.uuid):
        raise refusal_of(op, f"the directory {op.directory!a} is that of sender {there}")
    if on.knows_sender(op.uuid) and there is None:
        raise refusal_of(op, f"sender {op.uuid} has another directory than {op.directory!a}")
    on.put(("sender", op.uuid), True)
    on.put(("directory", op.directory), op.uuid)


def _epoch_set(on: RuleOverlay, op: records.EpochSet) -> None:
    on.need_sender(op.sender, op)
    on.put(("sender", op.sender), True)


def _sender_mode(on: RuleOverlay, op: records.SenderMode) -> None:
    on.need_sender(op.sender, op)
    if op.look not in SIGNED_64 or op.look < 0:
        raise refusal_of(op, f"{op.look} is no look")
    on.put(("sender", op.sender), True)


def _lateness_set(on: RuleOverlay, op: records.LatenessSet) -> None:
    on.need_sender(op.sender, op)
    if op.late_after is not None and not 0 <= op.late_after < _LONGEST_SILENCE:
        raise refusal_of(op, f"{op.late_after} is no number of seconds")
    on.put(("sender", op.sender), True)


def _files_adopted(on: RuleOverlay, op: records.FilesAdopted) -> None:
    on.need_sender(op.sender, op)
    if not is_task_id(op.task) or on.is_done(op.sender, op.task):
        raise refusal_of(op, f"{op.task[:60]!a} is no task that is still to be done")
    if _is_adopted(on, op.sender, op.task):
        raise refusal_of(op, f"task {op.task} is told of twice")
    on.put(("adopted", op.sender, op.task), True)


def _is_adopted(on: RuleOverlay, sender: str, task: str) -> bool:
    rows = on.state.adoption_table.rows
    return bool(on.get(("adopted", sender, task), lambda: (sender, task) in rows))


def _token_put(on: RuleOverlay, op: records.TokenPut) -> None:
    check_token(op)
    if not op.id or _token_hash(on, op.id) is not None:
        raise refusal_of(op, f"a token {op.id!a} is there already")
    if _token_of_hash(on, op.hash) is not None:
        raise refusal_of(op, "another token has the same hash")
    on.put(("token", op.id), op.hash)
    on.put(("hash", op.hash), op.id)
    if op.certificate is None:
        return
    bound = _token_of_certificate(on, op.certificate)
    if bound is not None:
        raise refusal_of(op, f"the certificate {op.certificate} is bound already, as {bound}")
    on.put(("certificate", op.certificate), op.id)
    on.put(("token_certificate", op.id), op.certificate)


def _token_revoke(on: RuleOverlay, op: records.TokenRevoke) -> None:
    digest = _token_hash(on, op.id)
    if digest is None:
        raise refusal_of(op, f"there is no token {op.id!a}")
    on.put(("token", op.id), None)
    on.put(("hash", digest), None)
    name = _certificate_of_token(on, op.id)
    if name is not None:
        on.put(("certificate", name), None)
        on.put(("token_certificate", op.id), None)


def _token_hash(on: RuleOverlay, ident: str) -> str | None:
    def committed() -> str | None:
        row = on.state.tokens.get(ident)
        return None if row is None else row.hash

    return on.get(("token", ident), committed)


def _token_of_hash(on: RuleOverlay, digest: str) -> str | None:
    def committed() -> str | None:
        row = on.state.token_table.by_hash(digest)
        return None if row is None else row.id

    return on.get(("hash", digest), committed)


def _token_of_certificate(on: RuleOverlay, name: str) -> str | None:
    def committed() -> str | None:
        row = on.state.token_table.by_certificate(name)
        return None if row is None else row.id

    return on.get(("certificate", name), committed)


def _certificate_of_token(on: RuleOverlay, ident: str) -> str | None:
    def committed() -> str | None:
        row = on.state.tokens.get(ident)
        return None if row is None else row.certificate

    return on.get(("token_certificate", ident), committed)


def _owner_set(on: RuleOverlay, op: records.OwnerSet) -> None:
    if not op.device:
        raise refusal_of(op, "the device has no name")
    if op.sender is not None:
        on.need_sender(op.sender, op)
    elif on.owner(op.device) is None:
        raise refusal_of(op, f"nobody owns {op.device!a}")
    on.put(("owner", op.device), op.sender)


def _task_done(on: RuleOverlay, op: records.TaskDone) -> None:
    on.need_sender(op.sender, op)
    if not is_task_id(op.task):
        raise refusal_of(op, f"{op.task!a} is no task id")
    if on.is_done(op.sender, op.task):
        raise refusal_of(op, f"task {op.task} is done already")
    on.put(("task", op.sender, op.task), True)
    on.put(("sender", op.sender), True)


def _schema_synced(on: RuleOverlay, op: records.SchemaSynced) -> None:
    on.need_sender(op.sender, op)
    if not op.identity or min(op.offset, op.applied, op.unapplied) < 0:
        raise refusal_of(op, f"{op.identity!a} {op.offset} is no position in a schema log")
    if max(op.offset, op.applied, op.unapplied) not in SIGNED_64:
        raise refusal_of(op, f"the position {op.offset} is out of range")
    on.put(("schema_position", op.sender), True)


def _list_begun(on: RuleOverlay, op: records.ListBegun) -> None:
    on.need_sender(op.sender, op)
    if op.look not in SIGNED_64 or op.look <= 0:
        raise refusal_of(op, f"{op.look} is no look")
    on.put(("sender", op.sender), True)
    on.put(("list_begun", op.sender), True)
    on.touched.sweep()  # each file of the sender changes


def _deletes_counted(on: RuleOverlay, op: records.DeletesCounted) -> None:
    on.need_sender(op.sender, op)
    if not op.group or op.count < 0 or op.count not in SIGNED_64:
        raise refusal_of(op, f"{op.count} deletes in {op.group!a} are none")
    if op.listed is not None and (op.listed < 0 or op.listed not in SIGNED_64):
        raise refusal_of(op, f"{op.listed} is no number of files")
    key = ("delete_window", op.sender, op.group)
    known = on.get(key, lambda: (op.sender, op.group) in on.state.delete_windows.rows)
    if not known and op.listed is None:
        raise refusal_of(op, f"no window of {op.sender} in {op.group!a} has begun")
    on.put(key, True)


def _deletes_held(on: RuleOverlay, op: records.DeletesHeld) -> None:
    on.need_sender(op.sender, op)
    if not _HEX32.match(op.digest) or not op.group or not op.files:
        raise refusal_of(op, f"{op.digest!a} is no list of deletes in {op.group!a}")
    if len(set(op.files)) != len(op.files) or op.look < 0 or op.look not in SIGNED_64:
        raise refusal_of(op, "a file stands on it twice, or it is of no look")
    if op.replaces:
        _need_held_deletes(on, op.replaces, op)
        on.put(("held_deletes", op.replaces), False)
    if _is_held_list(on, op.digest):
        raise refusal_of(op, f"the list {op.digest} is held already")
    on.put(("held_deletes", op.digest), True)


def _deletes_settled(on: RuleOverlay, op: records.DeletesSettled) -> None:
    _need_held_deletes(on, op.digest, op)
    if op.look < 0 or op.look not in SIGNED_64:
        raise refusal_of(op, f"{op.look} is no look")
    on.put(("held_deletes", op.digest), op.verdict != "done")


def _need_held_deletes(on: RuleOverlay, digest: str, op: records.Op) -> None:
    if not _is_held_list(on, digest):
        raise refusal_of(op, f"no list of deletes {digest!a} is held")


def _is_held_list(on: RuleOverlay, digest: str) -> bool:
    held = on.state.held_deletes.rows
    return bool(on.get(("held_deletes", digest), lambda: digest in held))


SENDER_RULES: dict[type, Rule] = {
    records.SenderSeen: _sender_seen,
    records.EpochSet: _epoch_set,
    records.SenderMode: _sender_mode,
    records.TokenPut: _token_put,
    records.TokenRevoke: _token_revoke,
    records.OwnerSet: _owner_set,
    records.DeletesCounted: _deletes_counted,
    records.DeletesHeld: _deletes_held,
    records.DeletesSettled: _deletes_settled,
    records.ListBegun: _list_begun,
    records.LatenessSet: _lateness_set,
    records.FilesAdopted: _files_adopted,
    records.TaskDone: _task_done,
    records.SchemaSynced: _schema_synced,
}
