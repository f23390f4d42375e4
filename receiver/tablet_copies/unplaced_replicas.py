"""Replicas that no list comes of any more, since an operator has trusted the master again.

What is here may be of a master before it, so nothing of it goes before the one that is trusted has
listed it (`TabletReplica.is_unlisted`). It lists nothing of a tablet that is not to be here: that
stayed for good. So it is asked which of these files it has, or has certainly had. The others stay,
and are offered (`copies offered`); a replica that has none of them goes when the master says so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from common.errors import ProtocolError, TsferryError
from receiver.tablet_copies.copies_wire import GoneAsked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from receiver.tablet_copies.copies_wire import GoneSaid
    from receiver.tablet_copies.replica_store import ReplicaStore
    from receiver.tablet_copies.tablet_replica import TabletReplica

__all__ = ["AsksWhatIsKnown", "judge_unplaced"]

log = logging.getLogger(__name__)

_AT_ONCE: Final = 1000


class AsksWhatIsKnown(Protocol):
    """Asks the master; raises errors of the common tree."""

    def gone(self, tablet: str, asked: GoneAsked) -> GoneSaid:
        """See `GoneAsked`."""


def judge_unplaced(store: ReplicaStore, calls: AsksWhatIsKnown, tablets: Iterable[str]) -> None:
    """Have the files of replicas judged that wait for a list which does not come.

    Args:
        store: of the node.
        calls: ask the master.
        tablets: that the master has told nothing new of.
    """
    for tablet in tablets:
        try:
            replica = store.replica(tablet)
            if replica.is_unlisted:
                _judge(store, calls, replica)
        except (TsferryError, OSError) as error:  # an earlier release says that it is not there
            log.debug("a replica is not judged", extra={"tablet": tablet, "why": str(error)})


def _judge(store: ReplicaStore, calls: AsksWhatIsKnown, replica: TabletReplica) -> None:
    every = sorted((replica.rotten() | replica.files()).items())
    for begin in range(0, len(every), _AT_ONCE):
        some = [(name, file.commit) for name, file in every[begin : begin + _AT_ONCE]]
        asked = GoneAsked(
            generation=replica.generation,
            commit=0,
            seen=0,
            files=some,
            lives=replica.lives(name for name, _ in some),
            unplaced=True,
        )
        said = calls.gone(replica.tablet, asked)
        store.must_be_noted(said.master)
        if {*said.files, *said.unknown} != {name for name, _ in some}:
            raise ProtocolError(f"of {len(some)} files of {replica.tablet} not all are judged")
        replica.keep(said.unknown)
    replica.set_unlisted(False)
