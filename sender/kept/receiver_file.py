"""What this sender remembers of one receiver: `<schema dir>/sync/<host>_<port>/receiver.json`.

Losing it loses no data. The next check then looks like a first contact; a receiver that knows this
uuid refuses a sender without an epoch as a clone, and its operator lets it in again
(`tsferry-receiver senders accept`), because nothing else tells a lost memory from a second machine.

Format, version 1: one JSON object, `Receiver`; replaced as a whole.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from common.decoders import from_json
from common.errors import ReadOnlyError
from common.wire import HeldRecords, LostFiles, Propagate, TaskMark, VerifiedFiles

if TYPE_CHECKING:
    from common.durable import Tree

__all__ = ["RECEIVER_FILE", "Receiver", "ReceiverFile", "SeenIncarnation", "SourceMark"]

RECEIVER_FILE = "receiver.json"
_VERSION = 1


class SourceMark(msgspec.Struct, frozen=True, kw_only=True):
    """The past of a forwarding centre's own receiver, as its catalogue showed it.

    Attributes:
        engine: uuid of its metadata engine.
        commit: the newest commit that was seen.
        lost: another past has been found in its place, and the operator has not accepted it yet.
    """

    engine: str
    commit: int
    lost: bool = False


class SeenIncarnation(msgspec.Struct, frozen=True, kw_only=True):
    """The highest incarnation of an engine that ever answered.

    Attributes:
        engine: uuid of its metadata engine.
        number: from 1 up.
        ident: tells it from another one that took the same number.
    """

    engine: str
    number: int
    ident: str


class Receiver(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The remembered state of a receiver.

    Attributes:
        version: of this format.
        engine: uuid of its metadata engine; None before the first contact.
        address: the one of several that answered last; None of a single one.
        answered: the engine that was met under this name last, where several are configured.
        epoch: to be shown at the next check or start.
        last_task: the last task that is known to be committed, and its commit.
        newest_commit: the newest commit that it ever reported.
        compared: what that was when both lists were compared last; 0 if that is not known.
        propagate: what its commits know of what a gone file means; None where nothing was told.
        accept_source: the operator says for one round that this node has all that it should have.
        data_dirs: data directories of a forwarding centre that hold lists for this receiver.
        source: the receiver on this node whose catalogue is forwarded, as it was seen last.
        verified: how many of this sender's files it had verified at the last check.
        lost: what neither side has any more, as the receiver told it last; None for nothing.
        held_records: deletions that wait for its operator, as it told last.
        settled: the commit up to which it has said which freed files it needs no more (`freed`);
            0 while there are none.
        incarnations: the highest that ever answered, of each engine that had one.
        last_round: what `status` shows of the last round; any JSON.
        failing_since: when the first of the rounds ended that have all ended early since; None if
            the last one came to its end.
        token_until: when the token for it ends, seconds since the epoch, as it told last; None for
            never.
        certificate_until: when its certificate ends, likewise.
    """

    version: int = _VERSION
    engine: str | None = None
    address: str | None = None
    answered: str | None = None
    epoch: str | None = None
    last_task: TaskMark | None = None
    newest_commit: int = 0
    compared: int = 0
    propagate: Propagate | None = None
    accept_source: bool = False
    data_dirs: tuple[str, ...] = ()
    source: SourceMark | None = None
    verified: VerifiedFiles | None = None
    lost: LostFiles | None = None
    held_records: tuple[HeldRecords, ...] = ()
    settled: int = 0
    incarnations: tuple[SeenIncarnation, ...] = ()
    last_round: dict[str, Any] | None = None
    failing_since: float | None = None
    token_until: float | None = None
    certificate_until: float | None = None


class ReceiverFile:
    """The file and its content.

    Attributes:
        now: what is remembered.
        problem: why the file could not be used, in words; None if it could, or was not there.
    """

    def __init__(self, sync: Tree, endpoint: str) -> None:
        self._tree = sync
        self._rel = f"{endpoint}/{RECEIVER_FILE}"
        self.now = Receiver()
        self.problem: str | None = None

    @classmethod
    def open(cls, sync: Tree, endpoint: str) -> ReceiverFile:
        """Read the memory.

        Args:
            sync: `<schema dir>/sync`; stays the caller's to close.
            endpoint: `<host>_<port>`.
        """
        memory = cls(sync, endpoint)
        try:
            content = sync.read(memory._rel)
            with suppress(ReadOnlyError):  # then nothing is sent either
                # An epoch that a killed process left unsynced must not be used and then be lost.
                sync.sync_dir(endpoint)
            memory.now = from_json(content, Receiver)
            if memory.now.version != _VERSION:
                memory.problem = f"version {memory.now.version} is not known here"
        except FileNotFoundError:
            return memory
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            memory.problem = str(error)
        if memory.problem:
            memory.now = Receiver()
            memory.problem = (
                f"{sync.path / memory._rel} is unusable ({memory.problem}): taken as a first "
                "contact; if the receiver takes this sender for a clone, its operator runs "
                "tsferry-receiver senders accept"
            )
        return memory

    def suppose(self, **changes: Any) -> None:
        """Change members of `now` only: nothing is written before the next `update`."""
        self.now = msgspec.structs.replace(self.now, **changes)

    def update(self, **changes: Any) -> Receiver:
        """Change members of `Receiver`, on disk before this returns; nothing new writes nothing."""
        new = msgspec.structs.replace(self.now, **changes)
        if new != self.now or self.problem:
            self._tree.make_dirs(self._rel.rpartition("/")[0])
            self._tree.write_atomic(self._rel, msgspec.json.encode(new))
            self.now, self.problem = new, None
        return new
