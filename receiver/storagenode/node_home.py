"""Who a storage node is, on its own disk: its uuid, its starts, and the master that it belongs to.

    storage-node.json     {"uuid": ..., "instance": 3, "boot": ..., "before": [...],
                           "seen": {"engine": ..., "incarnation": 2, "ident": ..., "commit": ...},
                           "lacked": false, "passed": 0, "behind": 0,
                           "directories": {"/disk/1": "9b0c..."}}

It stands in the schema directory of the node, which has no engine. The number of a start is flushed
before anybody hears it, so none is ever said twice. What was seen of the master is what later ones
are held against: see `hear`.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final, Self

import msgspec

from common import crash
from common.decoders import from_json
from common.durable import Closing, Tree, is_temporary
from common.errors import (
    ConfigError,
    ConflictError,
    DamagedError,
    Permanent,
    Transient,
    TsferryError,
)
from receiver.heartbeats.node_wire import MOST_BEFORE, MasterMark, NodeStart
from receiver.metadata.log.follower_mark import STORAGE_NODE_MARK
from receiver.metadata.log.frames import LOCK_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["ForeignMasterError", "NodeHome", "NodeMark", "ReplacedMasterError", "random_id"]

log = logging.getLogger(__name__)

_MOST: Final = 1 << 20
_COMMITS_NOTED: Final = 60.0
"""Seconds after which a newer commit of the master is noted: what was seen since is not held
against a master that was turned back, and a heartbeat costs no flush."""


class ForeignMasterError(Permanent):
    """Who answers is the master of another engine."""

    slug = "foreign-master"
    http_status = 409


class ReplacedMasterError(Permanent):
    """Who answers is an earlier life of the engine: another one has taken its place since."""

    slug = "replaced-master"
    http_status = 409


class NodeMark(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says.

    Attributes:
        uuid: of the node, for as long as this directory is.
        instance: counts its starts.
        boot: random, of the last start.
        before: those of the starts before it, the oldest first.
        seen: the master as it was last heard; None before the first registration.
        lacked: that its commit is one which a master after it never had.
        behind: the newest commit of a master when it was first doubted, 0 while none is.
        passed: the newest commit that was seen before an operator took a master which did not have
            it: that files came with it is no reason to doubt that master.
        directories: path of each data directory that the node ever had, and its uuid.
    """

    uuid: str
    instance: int = 0
    boot: str = ""
    before: tuple[str, ...] = ()
    seen: MasterMark | None = None
    lacked: bool = False
    passed: int = 0
    behind: int = 0
    directories: dict[str, str] = {}


def random_id() -> str:
    """32 hex digits that nobody else has."""
    return os.urandom(16).hex()


class NodeHome(Closing):
    """The directory of a storage node, held by one process; any thread may call.

    Attributes:
        doubt: why no order of the master is carried out that destroys something; empty while there
            is no reason.
    """

    def __init__(self, tree: Tree, mark: NodeMark, monotonic: Callable[[], float]) -> None:
        self.doubt = ""
        self._doubted: MasterMark | None = None
        self._brought = 0
        """The newest commit of the files here, as it was last told while a master was doubted."""
        self._tree = tree
        self._mark = mark
        self._noted = mark.seen
        self._monotonic = monotonic
        self._noted_at = monotonic()
        self._lock = threading.Lock()
        self._resources = ExitStack()

    @classmethod
    def open(
        cls, path: Path, *, monotonic: Callable[[], float], random: Callable[[], str] = random_id
    ) -> Self:
        """Open it, or make one of an empty directory, and count this start.

        Raises:
            ConfigError: something else is in it.
            DamagedError: it cannot be read.
            LockedError: another process has it open.
        """
        with ExitStack() as stack:
            tree = stack.enter_context(Tree(path, create=True))
            if not tree.exists(STORAGE_NODE_MARK):
                _must_be_empty(tree)
            lock = tree.lock(LOCK_NAME)
            stack.callback(lock.release)
            tree.sweep_temporaries(deep=False)
            mark = _read(tree) or NodeMark(uuid=random())
            past = (*mark.before, mark.boot) if mark.boot else mark.before
            started = msgspec.structs.replace(
                mark,
                instance=mark.instance + 1,
                boot=random(),
                before=past[-MOST_BEFORE:],
            )
            found = cls(tree, started, monotonic)
            found._write(started)
            crash.point("storagenode.started")
            found._resources = stack.pop_all()
        return found

    @property
    def start(self) -> NodeStart:
        """This start of this node."""
        return NodeStart(uuid=self._mark.uuid, instance=self._mark.instance, boot=self._mark.boot)

    @property
    def before(self) -> tuple[str, ...]:
        """The random ids of the starts before."""
        return self._mark.before

    @property
    def seen(self) -> MasterMark | None:
        """The master as it was last heard, None before the first registration."""
        return self._mark.seen

    @property
    def directories(self) -> dict[str, str]:
        """Data directories that the node has had: path and uuid."""
        return self._mark.directories

    def note_directories(self, found: Mapping[str, str]) -> None:
        """Remember data directories, so that none is ever taken for a new one."""
        with self._lock:
            known = {**self._mark.directories, **found}
            if known != self._mark.directories:
                self._write(msgspec.structs.replace(self._mark, directories=known))

    def raise_to(self, instance: int) -> None:
        """Let this start have a higher number: an operator lets an older copy go on."""
        with self._lock:
            if instance > self._mark.instance:
                self._write(msgspec.structs.replace(self._mark, instance=instance))

    def has_files_of(self, commit: int) -> None:
        """Files are here that came with this commit of the master, or with earlier ones.

        So that commit was seen, whatever was noted: a power cut takes what was heard in the last
        minute, and nothing of the files that came in it. While the master is doubted, what comes
        from it says nothing of what was seen of the one before.
        """
        with self._lock:
            if self._doubted is not None or self._mark.behind:
                self._brought = max(self._brought, commit)
                return
            seen = self._mark.seen
            if seen is not None and seen.commit < commit > self._mark.passed:
                kept = msgspec.structs.replace(seen, commit=commit)
                self._mark = msgspec.structs.replace(self._mark, seen=kept)

    def hear(self, mark: MasterMark, *, lacks: int = 0) -> None:
        """Hold who answers against what was seen before.

        A master whose newest commit is older than one that was seen was restored from a copy, or
        turned back; so was one that has gone on since, and never had that commit. It may be asked
        and told everything; what it orders is done but for what destroys something, until an
        operator confirms it here. If it is a later life, the earlier one is refused from then on
        all the same.

        Args:
            mark: who answers.
            lacks: a commit that it says it never had, 0 for none.

        Raises:
            ForeignMasterError: it is another engine's.
            ReplacedMasterError: it is an earlier life of the engine.
        """
        with self._lock:
            seen = self._mark.seen
            if seen is not None:
                _must_go_on(seen, mark)
                # Commits are called by the time: a master that was restored is soon past what was
                # seen of the one before. What it says it lacks holds until it is confirmed.
                lacked = self._mark.lacked or (bool(lacks) and lacks == seen.commit)
                # A master whose history does not go back as far cannot say it.
                lacked = lacked or self._has_passed(seen, mark)
                if lacked or _is_turned_back(seen, mark):
                    self.doubt = (
                        f"the master's newest commit is {mark.commit}, and {seen.commit} was seen "
                        f"of it{', which it never had' if lacked else ''}: it was restored from an "
                        "older copy, or turned back. If it is right all the same: tsferry-receiver "
                        "nodes confirm-master, here"
                    )
                    self._doubted = mark
                    kept = msgspec.structs.replace(mark, commit=seen.commit, life=seen.life)
                    is_other = _life(mark) != _life(seen)
                    # At once: files that it brings are not to be taken for those before.
                    if is_other or lacked != self._mark.lacked or not self._mark.behind:
                        behind = 0 if is_other else self._mark.behind
                        self._write(
                            msgspec.structs.replace(
                                self._mark,
                                seen=kept,
                                lacked=lacked,
                                behind=behind or max(1, mark.commit),
                            )
                        )
                    return
                self.doubt, self._doubted = "", None
                if self._mark.behind:
                    self._write(msgspec.structs.replace(self._mark, behind=0))
                if seen.life and not mark.life:  # in which life that commit is nobody could say
                    mark = msgspec.structs.replace(mark, commit=seen.commit, life=seen.life)
            self._heard(mark)

    def _has_passed(self, seen: MasterMark, mark: MasterMark) -> bool:
        """Whether a master that was behind what was seen has gone on, not having come to it."""
        if not self._mark.behind or _life(seen) != _life(mark):
            return False
        return self._mark.behind < seen.commit < mark.commit

    def must_doubt(self) -> None:
        """See that there is something to confirm.

        Raises:
            ConflictError: the master is not doubted.
        """
        with self._lock:
            self._doubted_now()

    def confirm(self) -> None:
        """Take the master that is doubted as it is; an operator says so.

        Raises:
            ConflictError: none is.
        """
        with self._lock:
            doubted, seen = self._doubted_now(), self._mark.seen
            passed = max(self._mark.passed, self._brought, 0 if seen is None else seen.commit)
            taken = msgspec.structs.replace(
                self._mark, seen=doubted, lacked=False, passed=passed, behind=0
            )
            self._write(taken)
            self.doubt, self._doubted = "", None

    def _doubted_now(self) -> MasterMark:
        if self._doubted is None:
            raise ConflictError("the master is not doubted: there is nothing to confirm")
        return self._doubted

    def _heard(self, mark: MasterMark) -> None:
        noted, now = self._noted, self._monotonic()
        replaced = msgspec.structs.replace(self._mark, seen=mark)
        # What is pulled in a life comes behind its name: see `ReplicaStore.must_be_noted`.
        is_new = noted is None or (_life(noted), noted.life) != (_life(mark), mark.life)
        if is_new:
            self._write(replaced)
            return
        self._mark = replaced
        if noted != mark and now - self._noted_at >= _COMMITS_NOTED:
            self._noted_at = now
            try:
                self._write(replaced)
            except Transient as error:  # a full disk; the answer counts all the same
                log.warning("which commit was seen is not noted: %s", error.message)

    def _write(self, mark: NodeMark) -> None:
        self._tree.write_atomic(STORAGE_NODE_MARK, msgspec.json.encode(mark))
        self._mark, self._noted, self._noted_at = mark, mark.seen, self._monotonic()

    def close(self) -> None:
        """Note what was seen, and let another process have it; closing twice is harmless."""
        with self._lock:
            if self._mark.seen != self._noted:
                with suppress(TsferryError, OSError):  # it is heard again after the next start
                    self._write(self._mark)
        self._resources.close()


def _must_be_empty(tree: Tree) -> None:
    there = [name for name, _ in tree.listing() if not (name == LOCK_NAME or is_temporary(name))]
    if there:
        raise ConfigError(
            f"schema_dir: {tree.path} holds {there[0]} and was not made by serve --node; a storage "
            "node has a directory of its own"
        )


def _read(tree: Tree) -> NodeMark | None:
    try:
        return from_json(tree.read(STORAGE_NODE_MARK, limit=_MOST), NodeMark)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedError(
            f"{tree.path}/{STORAGE_NODE_MARK}: {error}; restore it from a copy, or begin a new "
            "node in an empty directory"
        ) from None


def _life(mark: MasterMark) -> tuple[str, int, str]:
    return mark.engine, mark.incarnation, mark.ident


def _must_go_on(seen: MasterMark, mark: MasterMark) -> None:
    if mark.engine != seen.engine:
        raise ForeignMasterError(
            f"this node is of the engine {seen.engine}, and the master's is {mark.engine}"
        )
    if mark.incarnation < seen.incarnation:
        raise ReplacedMasterError(
            f"incarnation {mark.incarnation} of the engine answers, and {seen.incarnation} has "
            "taken its place"
        )
    if mark.incarnation == seen.incarnation and mark.ident != seen.ident:
        raise ReplacedMasterError(
            f"two masters are incarnation {mark.incarnation} of the engine: {seen.ident} was "
            f"heard first, and {mark.ident} answers"
        )


def _is_turned_back(seen: MasterMark, mark: MasterMark) -> bool:
    return mark.commit < seen.commit
