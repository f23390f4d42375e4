"""Who may send what to a node: by tickets of its master.

An upload is begun with a ticket that is good now. It goes on with that ticket for as long as it
takes, in this life of the node: a slow line needs longer than any ticket should open something new.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from common import wire
from common.errors import ForbiddenError, NotFoundError
from receiver.tablet_copies.upload_tickets import file_of_ticket

if TYPE_CHECKING:
    from receiver.tablet_copies.read_tickets import TicketKeys
    from receiver.tablet_copies.replica_store import ReplicaStore
    from receiver.tablet_copies.upload_tickets import SentFile

__all__ = ["UploadDoor"]

_REMEMBERED: Final = 10_000
"""Tickets that have opened something; whose is forgotten asks for another one."""


class UploadDoor:
    """Judges tickets; any thread may call."""

    def __init__(self, node: str, keys: TicketKeys, store: ReplicaStore) -> None:
        """Know nobody yet.

        Args:
            node: uuid of this one.
            keys: that its master has given it.
            store: its replicas.
        """
        self._node = node
        self._keys = keys
        self._store = store
        self._lock = threading.Lock()
        self._opened: OrderedDict[bytes, SentFile] = OrderedDict()

    def opens(self, ticket: str | None, sender: str | None) -> SentFile:
        """The file that a ticket begins an upload of.

        Args:
            ticket: as it came.
            sender: uuid of who says to send it.

        Raises:
            ForbiddenError: it is not good, or not any more, or for somebody else.
        """
        if ticket is None:
            text = f"the header {wire.TICKET_HEADER} is missing: the master gives tickets"
            raise ForbiddenError(text)
        file = file_of_ticket(self._keys.check_upload(ticket))
        if file.node != self._node:
            raise ForbiddenError(f"the ticket is for node {file.node[:40]!a}")
        _check_sender(file, sender)
        try:
            generation = self._store.replica(file.tablet).generation
        except NotFoundError:
            generation = 0
        if generation != file.generation:
            raise ForbiddenError(
                f"tablet {file.tablet} has generation {generation} here, and the ticket is for "
                f"{file.generation}: it was placed anew; ask for another ticket"
            )
        with self._lock:
            self._opened[_key(ticket)] = file
            if len(self._opened) > _REMEMBERED:
                self._opened.popitem(last=False)
        return file

    def goes_on(self, ticket: str | None, sender: str | None, upload: str) -> SentFile:
        """The file that a ticket has begun the upload of, or begins it now.

        Raises:
            ForbiddenError: as `opens`; or the ticket is for another upload.
        """
        with self._lock:
            file = self._opened.get(_key(ticket or ""))
        if file is None:
            file = self.opens(ticket, sender)
        _check_sender(file, sender)
        if file.upload != upload:
            raise ForbiddenError("the ticket is for another file than this upload")
        return file


def _key(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode("utf-8", "surrogateescape")).digest()


def _check_sender(file: SentFile, sender: str | None) -> None:
    if sender != file.sender:
        raise ForbiddenError(f"the ticket is not for this {wire.SENDER_HEADER}")
