"""`tsferry-sender adopt`: go on from where the old sync tool was."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from common.console.cli import Invocation, emit_json
from common.console.terminal import counted, printable, size_text
from common.errors import EXIT_NOT_LOADED, UsageError
from common.names import is_sender_uuid
from sender.cli.program import json_option
from sender.config import ReceiverEntry, SenderConfig

if TYPE_CHECKING:
    from sender.kept.old_tool_state import OldTool
    from sender.round.compared_lists.adopted_lists import Adopted

__all__ = ["adopt"]

_SHOWN = 20


@click.command(
    epilog="Examples: tsferry-sender adopt --system /opt/iotdb/data/system; tsferry-sender adopt "
    "--system /opt/iotdb/data/system --commit. Exit codes: 0 done, or it would be; 1 the identity "
    "is damaged; 2 usage, or there is nothing of an old tool; 3 the receiver has nothing of what "
    "it had sent, and nothing was changed; 4 the receiver is out of reach, or refuses; 5 a sender "
    "runs."
)
@click.option("--receiver", "name", metavar="NAME", help="Which of the configured receivers.")
@click.option(
    "--old", metavar="HOST_PORT", help="The old tool's receiver, as its folder is called."
)
@click.option(
    "--system",
    "system_dir",
    type=click.Path(path_type=Path),
    help="System directory of the database; if left out, the one that the schema directory is in.",
)
@click.option("--uuid", help="The old tool's identity, where its uuid.txt is lost.")
@click.option("--commit", is_flag=True, help="Do it; otherwise only say what would be done.")
@json_option("sender.cli.command_views:OldToolAdopted")
@click.pass_obj
def adopt(
    invocation: Invocation[SenderConfig],
    name: str | None,
    old: str | None,
    system_dir: Path | None,
    uuid: str | None,
    commit: bool,
    as_machine: bool,
) -> int:
    """Take over from the old sync tool: its identity, and what it has sent.

    Files are compared by size and MD5 with what the receiver has; the next round sends what is not
    there. Nothing of the old tool is changed without --commit, and removed never. Stop it first,
    and let the receiver adopt what the old one has.
    """
    from common.console.progress_line import showing_progress
    from sender.kept.old_tool_state import read_old_tool
    from sender.round.compared_lists.adopted_lists import (
        carry_out,
        check_identity,
        look_for_adoption,
    )
    from sender.send.remote import Remote

    loaded = invocation.load()
    invocation.start(loaded.value.log)
    config = loaded.value
    entry = _entry(config, name)
    if uuid is not None and not is_sender_uuid(uuid):
        raise UsageError(f"--uuid {uuid[:60]!a}: expected 32 lower-case hex digits")
    found = read_old_tool(
        config.data_dirs, system_dir or config.schema_dir.parent, config.schema_dir, old, uuid
    )
    ident = _identity(found)
    previous = check_identity(config, ident)
    remote = Remote.make(config, entry, ident, threading.Event())
    try:
        lock = remote.lock() if commit else None
        try:
            with showing_progress(as_machine) as told:
                compared = look_for_adoption(remote, found, told)
            lacking = bool(found.lists.synced) and not (compared.there or compared.gone)
            if commit and not lacking:
                carry_out(remote, found, compared, previous)
        finally:
            if lock is not None:
                lock.release()
    finally:
        remote.close()
    shown = _shown(found, compared, ident, previous)
    shown["committed"] = commit and not lacking
    shown["exit_code"] = EXIT_NOT_LOADED if lacking else 0
    if as_machine:
        from sender.cli.command_views import OldToolAdopted

        emit_json(shown, OldToolAdopted)
    else:
        click.echo("\n".join(map(printable, _lines(shown, lacking=lacking))))
    return int(shown["exit_code"])


def _entry(config: SenderConfig, name: str | None) -> ReceiverEntry:
    found = [each for each in config.receivers if name in (None, each.name)]
    if not found:
        raise UsageError(f"receiver {name}: not configured")
    if len(found) > 1:
        raise UsageError("there are several receivers: say which takes over (--receiver)")
    if found[0].source == "receiver":
        raise UsageError(f"receiver {found[0].name}: it is sent the catalogue of this node's own")
    return found[0]


def _identity(found: OldTool) -> str:
    if found.uuid is None:
        raise UsageError(f"the old tool has no identity here: {found.odd[-1]}; or name it (--uuid)")
    return found.uuid


def _shown(found: OldTool, compared: Adopted, uuid: str, previous: str | None) -> dict[str, Any]:
    there, to_send = compared.there.values(), compared.to_send.values()
    return {
        "uuid": uuid,
        "replaces": previous,
        "old_receiver": found.lists.receiver,
        "synced": len(found.lists.synced),
        "schema": found.schema,
        "there": len(compared.there),
        "there_bytes": sum(file.size for file, _ in there),
        "to_send": [
            {"file": file.path.text, "size": file.size, "reason": why} for file, why in to_send
        ],
        "to_send_bytes": sum(file.size for file, _ in to_send),
        "gone": [path.text for path in compared.gone],
        "away": [path.text for path in compared.away],
        "only_there": list(compared.only_there),
        "waiting": [
            {"file": each.text, "size": each.size, "reason": each.reason}
            for each in compared.waiting
        ],
        "odd": list(found.odd),
    }


def _lines(shown: dict[str, Any], *, lacking: bool) -> list[str]:
    lines = [
        f"the old tool was sender {shown['uuid']}, and sent to {shown['old_receiver']}: "
        f"{counted(shown['synced'], 'file')}"
    ]
    if shown["replaces"]:
        lines.append(f"the identity {shown['replaces']}, never used, gives way to it")
    if shown["schema"]:
        lines.append(f"it had shipped {shown['schema']}; here the schema goes once more, whole")
    lines += [f"half there: {each}" for each in shown["odd"]]
    lines.append(f"the receiver has {shown['there']} ({size_text(shown['there_bytes'])}) of them")
    size = size_text(shown["to_send_bytes"])
    lines.append(f"the next round sends {len(shown['to_send'])} ({size})")
    lines += _some([f"  {each['file']}: {each['reason']}" for each in shown["to_send"]])
    if shown["waiting"]:
        lines.append(
            f"{counted(len(shown['waiting']), 'file waits', 'files wait')} here, and are "
            "not compared"
        )
        lines += _some([f"  {each['file']}: {each['reason']}" for each in shown["waiting"]])
    for key, said in (
        ("gone", "deleted here since, and there: told as any end"),
        ("away", "neither here nor there"),
        ("only_there", "only the receiver has; they stay visible there"),
    ):
        if shown[key]:
            lines.append(f"{counted(len(shown[key]), 'file')} {said}")
            lines += _some([f"  {each}" for each in shown[key]])
    if lacking:
        lines.append(
            "the receiver has nothing of what the old tool had sent: let it adopt that first "
            "(tsferry-receiver adopt); nothing was changed"
        )
    elif shown["committed"]:
        lines.append("done; tsferry-sender sync goes on from here")
    else:
        lines.append("nothing was changed; --commit does it")
    return lines


def _some(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN
    return lines if more <= 0 else [*lines[:_SHOWN], f"  and {more} more (--json)"]
