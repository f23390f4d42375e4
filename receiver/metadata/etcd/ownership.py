"""Who may write beneath a prefix of etcd: one process at a time, for as long as it shows life.

    owner   who it is; goes with a lease, so it vanishes when its process does not keep it alive
    epoch   set with each owner, and stays: nobody came in between as long as it is the same

Every write has the owner key, as it was made, for a condition. A process that was paused, lost its
lease and wakes up is refused by etcd itself, whatever it believes. If the epoch says that nobody
took its place meanwhile, it takes it again; otherwise it is fenced off for good.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from common.decoders import from_json
from common.errors import (
    ForbiddenError,
    LockedError,
    TsferryError,
    UnauthorizedError,
    UnreachableError,
)
from common.threads import join_begun
from receiver.metadata.etcd.messages import Compare, Get, KeyValue, Put
from receiver.metadata.etcd.patience import Patience, insist
from receiver.metadata.model.errors import FencedError

if TYPE_CHECKING:
    from receiver.metadata.etcd.gateway import EtcdClient

__all__ = ["Ownership"]

_POLL = 0.5
"""Seconds between two looks at another's lease."""
_log = logging.getLogger(__name__)


class _Owner(msgspec.Struct, frozen=True):
    """The content of the owner key; `id` is that of the epoch too.

    Attributes:
        url: where it is found, as its configuration says; a version before this one said nothing.
    """

    id: str
    host: str
    pid: int
    url: str = ""

    def __str__(self) -> str:
        """As people look for it."""
        return f"process {self.pid} on {self.host}" + (f" ({self.url})" if self.url else "")


class Ownership:
    """The right to write; see the module. May be used by several threads at once.

    Attributes:
        fenced: whether another process has taken over.
    """

    def __init__(
        self,
        client: EtcdClient,
        prefix: bytes,
        lease: float,
        patience: Patience,
        *,
        url: str | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            client: of the cluster.
            prefix: of the keys, with a slash at its end.
            lease: seconds without a sign of life, until another may take over.
            patience: with which etcd is asked.
            url: where this process is found; whoever loses its place to it says so.
        """
        self.fenced = False
        self._taken_by: _Owner | None = None
        self._trouble: str | None = None
        self._client = client
        self._what = prefix.decode()
        self._owner_key = prefix + b"owner"
        self._epoch_key = prefix + b"epoch"
        self._seconds = math.ceil(lease)
        self._patience = patience
        self._me = _Owner(secrets.token_hex(8), socket.gethostname(), os.getpid(), url or "")
        self._lease = 0
        self._created = 0
        self._epoch = 0
        self._sure = -math.inf
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="etcd-lease", daemon=True)

    # -- taking ------------------------------------------------------------------------------

    def acquire(self, wait: float) -> None:
        """Become the owner, and stay it; see `RemoteLog.acquire`."""
        end = self._patience.clock() + wait
        told = False
        while (holder := self._try_to_take()) is not None:
            if self._patience.clock() >= end:
                raise LockedError(
                    f"{holder} writes to {self._what} in etcd; "
                    f"stop it, or wait {self._seconds} s after its end",
                    retry_after=self._seconds,
                    extra={"pid": holder.pid, "host": holder.host},
                )
            if not told:
                _log.info("waiting for process %d on %s to end", holder.pid, holder.host)
                told = True
            self._patience.sleep(_POLL)
        self._thread.start()

    def wait_until_free(self) -> None:
        """Wait, as long as it takes, until nobody holds the place; nothing is taken.

        While etcd does not answer, nobody is known to have gone.
        """
        told = ""
        while True:
            try:
                found = self._client.get(Get(self._owner_key)).keys
                if not found:
                    return
                holder = _decode(found[0])
                what = f"{holder} writes to {self._what} in etcd"
            except UnreachableError as error:
                what = error.message
            if what != told:
                _log.info("standing by: %s", what)
                told = what
            self._patience.sleep(_POLL)

    def holder(self) -> str | None:
        """Who holds the place, for people to look for; None for nobody. Nothing is taken.

        Raises:
            UnreachableError: etcd does not answer.
        """
        found = self._client.get(Get(self._owner_key)).keys
        return str(_decode(found[0])) if found else None

    def _try_to_take(self) -> _Owner | None:
        """Take the place if it is free; who holds it if it is not."""
        found = self._client.get(Get(self._owner_key)).keys
        if found:
            return _decode(found[0])
        began = self._patience.clock()
        lease = self._client.grant(self._seconds)
        owner = Put(self._owner_key, msgspec.json.encode(self._me), lease)
        epoch = Put(self._epoch_key, self._me.id.encode())
        got = Get(self._owner_key)
        free = Compare(self._owner_key, created=0)
        result = insist(self._client, self._patience, [free], [owner, epoch, got], [got])
        holder = result.found[0].keys
        if not holder:  # taken and gone again between two looks
            return self._try_to_take()
        # Taken by us, if not just now then by a try whose answer was lost.
        if (taken := _decode(holder[0])).id != self._me.id:
            return taken
        self._lease = holder[0].lease
        self._created = self._epoch = holder[0].created
        self._sure = began
        return None

    def condition(self) -> Compare:
        """What every write has to have for a condition."""
        return Compare(self._owner_key, created=self._created)

    def regain(self) -> None:
        """Take the place again after the lease has run out; call it when a condition failed.

        Raises:
            FencedError: another one has been there.
            UnreachableError: etcd does not answer.
        """
        with self._lock:
            if self.fenced or self._ended.is_set():
                raise self.error()
            got = Get(self._owner_key), Get(self._epoch_key)
            now = self._client.transaction([], got)
            if not self._is_mine(now.found[0].keys):
                lease = self._client.grant(self._seconds)
                owner = Put(self._owner_key, msgspec.json.encode(self._me), lease)
                free = [
                    Compare(self._owner_key, created=0),
                    Compare(self._epoch_key, changed=self._epoch),
                ]
                now = insist(self._client, self._patience, free, [owner, *got], got)
            holder = now.found[0].keys
            if not self._is_mine(holder):
                self.fenced = True
                self._taken_by = _decode(holder[0]) if holder else None
                raise self.error()
            self._lease, self._created = holder[0].lease, holder[0].created

    def _is_mine(self, holder: tuple[KeyValue, ...]) -> bool:
        return bool(holder) and _decode(holder[0]).id == self._me.id

    @property
    def trouble(self) -> str | None:
        """Why the last sign of life was not taken, or none was for too long; None: all is well.

        Only a cluster with a quorum takes one.
        """
        if self._trouble is not None:
            return self._trouble
        displaced = self.displaced()
        return None if displaced is None else displaced.message

    def displaced(self) -> TsferryError | None:
        """Why another process may be at work in this place by now; None: none can be.

        A lease that was alive when a sign of life went out is so for its whole time from then on. A
        process that was paused knows by this that it cannot know, before it has asked anybody.
        """
        if self.fenced:
            return self.error()
        age = self._patience.clock() - self._sure
        if age < self._seconds:
            return None
        return UnreachableError(
            f"etcd has taken no sign of life of this process for {age:.0f} s: whether another one "
            f"has taken over {self._what} is not known here",
            retry_after=self._seconds / 3,
        )

    def error(self) -> FencedError:
        """What is raised once another one has taken over."""
        if self._taken_by is not None:
            return FencedError(
                f"not master any more: {self._taken_by} has taken over {self._what} in etcd; this "
                "one writes no more: end it"
            )
        return FencedError(
            f"not master any more: another process has taken over {self._what} in etcd, or its "
            "keys were removed; this one writes no more: end it, and look for a second receiver "
            "with the same prefix"
        )

    def _learn_who(self) -> None:
        """A commit found out that the place is lost, and not to whom."""
        if self._taken_by is None:
            with suppress(TsferryError):
                holder = self._client.get(Get(self._owner_key)).keys
                if holder and not self._is_mine(holder):
                    self._taken_by = _decode(holder[0])

    # -- keeping -----------------------------------------------------------------------------

    def _keep(self) -> None:
        while not self._ended.wait(self._seconds / 3):
            if not self.look():
                return

    def look(self) -> bool:
        """Keep the lease alive, and see that the place is ours still; False once it is not."""
        began = self._patience.clock()
        try:
            if not self._client.keep_alive(self._lease):
                self.regain()
            # A lease is kept alive for everybody; keys are given to whom etcd lets in. Its key may
            # be gone without it, and nobody may commit for long: then this tells of it.
            created = self._created
            found = self._client.get(Get(self._owner_key, keys_only=True))
            if [each.created for each in found.keys] != [created]:
                self.regain()
            self._sure, self._trouble = began, None
        except FencedError:
            self._learn_who()
            error = self.error()
            self._trouble = error.message
            _log.critical("%s", error)
            return False
        except (UnreachableError, UnauthorizedError, ForbiddenError) as error:
            self._trouble = error.message
            _log.warning("the lease could not be kept alive: %s", error)
        except TsferryError as error:
            self._trouble = error.message
            _log.exception("the lease could not be kept alive")
        return True

    def close(self) -> None:
        """Give the place up at once; closing twice is harmless."""
        if self._ended.is_set():
            return
        self._ended.set()
        join_begun(self._thread)
        if self._lease and not self.fenced:
            try:
                self._client.revoke(self._lease)
            except TsferryError as error:
                _log.warning("the lease runs out by itself: %s", error)


def _decode(key: KeyValue) -> _Owner:
    try:
        return from_json(key.value, _Owner)
    except msgspec.MsgspecError:
        return _Owner("", f"an unknown host ({key.key.decode(errors='replace')})", 0)
