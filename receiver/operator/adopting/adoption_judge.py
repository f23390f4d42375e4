"""What would become of files of an old receiver: decided as when their senders send them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from common.wire import Result
from receiver.datadirs.disks import whole_in
from receiver.load.deciding.change import decide_change
from receiver.load.schema.registering import Registering
from receiver.metadata.commit.draft import Draft
from receiver.metadata.model import records
from receiver.metadata.model.records import FileOutcome
from receiver.metadata.state.placed_files import parts_elsewhere
from receiver.operator.centre.centre_entries import entry_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from receiver.config import ReceiverConfig
    from receiver.load.folder.current_task import TaskRecord
    from receiver.load.service import LoadService
    from receiver.metadata.engine import Engine
    from receiver.operator.adopting.adopted_files import AdoptableFile

__all__ = ["TAKEN", "decided_outcomes", "devices_of_two", "untaken_devices"]

TAKEN: Final = frozenset({Result.LOADED, Result.ALREADY, Result.EXPIRED})
"""Outcomes that keep nothing back."""


def decided_outcomes(
    config: ReceiverConfig,
    engine: Engine,
    load: LoadService,
    record: TaskRecord,
    files: Sequence[AdoptableFile],
) -> dict[str, FileOutcome]:
    """What would become of the files of a sender by what is committed now; nothing is changed.

    Args:
        config: of the receiver.
        engine: its metadata.
        load: its loader.
        record: of the task that would bring them.
        files: all of that sender.

    Returns:
        by path.
    """
    look = record.look
    record = msgspec.structs.replace(
        record, manifest=[entry_of(each.candidate, look, look) for each in files]
    )
    moment, trees = load.ttl.moment(), load.disks.standing()
    with engine.reading() as state:
        seen = records.SenderSeen(record.sender, "", record.sender)
        is_known = record.sender in state.senders

        def registering() -> Registering:
            made = Registering(
                Draft(state),
                level=engine.options.storage_group_level,
                creates=engine.options.auto_create,
            )
            if not is_known:
                made.play([seen])
            return made

        return decide_change(
            state,
            record,
            {},
            {each.candidate.path.text: each.candidate for each in files},
            {},
            registering=registering,
            stands=lambda row: whole_in(trees, row, parts_elsewhere(state, row)),
            expiry=load.ttl.expiry(state, moment),
            deletes=config.deletes,
        ).outcomes


def devices_of_two(files: Sequence[AdoptableFile]) -> dict[str, FileOutcome]:
    """Files with a device that is in a file of another sender as well, by where they lie."""
    owners: dict[str, AdoptableFile] = {}
    found: dict[str, FileOutcome] = {}
    for each in files:
        for device in each.candidate.facts.devices:
            first = owners.setdefault(device.name, each)
            if first.sender != each.sender:
                found[str(each.file.source)] = FileOutcome(
                    each.candidate.path.text,
                    Result.CONFLICT,
                    device=device.name,
                    reason=f"device {device.name} is in {first.file.source} too, of sender "
                    f"{first.sender}",
                    owner=first.sender,
                )
    return found


def untaken_devices(
    engine: Engine, owners: Mapping[str, str], files: Sequence[AdoptableFile]
) -> tuple[dict[str, str], list[str]]:
    """Devices that the old receiver has an owner of, and that are in no file.

    Returns:
        those that nobody owns here, with whom they are to belong to; and, in words, those that
        belong to somebody else here.
    """
    held = {device.name for each in files for device in each.candidate.facts.devices}
    free: dict[str, str] = {}
    conflicts: list[str] = []
    with engine.reading() as state:
        for device, uuid in sorted(owners.items()):
            row = state.owners.get(device)
            if row is None and device not in held:
                free[device] = uuid
            elif row is not None and row.sender != uuid:
                conflicts.append(
                    f"device {device} belongs to sender {uuid} there, and to {row.sender} here: "
                    "tsferry-receiver owners transfer or release, or --as"
                )
    return free, conflicts
