"""Which sender a person means: by uuid, the beginning of one as tables show it, or label."""

from __future__ import annotations

from collections.abc import Iterable

from common.errors import NotFoundError, UsageError

__all__ = ["UUID_LENGTH", "sender_named"]

UUID_LENGTH = 32
_BEGINNING = 4
"""Digits of a uuid that name it, if no other begins so."""


def sender_named(senders: Iterable[tuple[str, str]], name: str) -> str:
    """The uuid of the sender that a name is of.

    A whole uuid is that of its sender, whatever others call themselves.

    Args:
        senders: uuid and label of each.
        name: uuid, the beginning of one, or label.

    Raises:
        NotFoundError: there is none.
        UsageError: it is the name of several.
    """
    found = []
    for uuid, label in senders:
        if uuid == name:
            return uuid
        if label == name or (len(name) >= _BEGINNING and uuid.startswith(name)):
            found.append(uuid)
    if name and len(found) == 1:
        return found[0]
    if name and found:
        raise UsageError(f"{name[:60]!a} names {len(found)} senders: say the uuid")
    raise NotFoundError(
        f"no sender has the uuid, its beginning, or the label {name[:60]!a}: senders list"
    )
