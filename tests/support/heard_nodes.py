"""Storage nodes for tests: what they hold is a dictionary, and they speak when they are told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from receiver.heartbeats.node_manager import NodeManager
from receiver.heartbeats.node_wire import (
    ChangedTablets,
    DirectoryRoom,
    HeldTablets,
    NodeHeartbeat,
    NodeHeartbeatAnswer,
    NodeRegistration,
    ReportedTablet,
)
from receiver.storagenode.heartbeat_talk import HeartbeatTalk
from receiver.storagenode.node_home import NodeHome

CALL_KEY = "k" * 64


def tablet_id(number: int) -> str:
    return f"{number:032x}"


def tablet(number: int, **members: object) -> ReportedTablet:
    return ReportedTablet(id=tablet_id(number), **members)


class HeldByTest:
    """A store of tablets; see `HoldsTablets`.

    Attributes:
        tablets: by id, as they stand.
        kept: changes that are known; older ones are forgotten.
    """

    def __init__(self, kept: int = 1 << 30) -> None:
        self.tablets: dict[str, ReportedTablet] = {}
        self.kept = kept
        self._changes: list[str] = []
        self._changed: Callable[[], None] = lambda: None

    def put(self, *tablets: ReportedTablet) -> None:
        for each in tablets:
            self.tablets[each.id] = each
            self._changes.append(each.id)
        self._changed()

    def drop(self, *numbers: int) -> None:
        for each in numbers:
            del self.tablets[tablet_id(each)]
            self._changes.append(tablet_id(each))
        self._changed()

    def held(self) -> HeldTablets:
        return HeldTablets(
            len(self._changes), [self.tablets[each] for each in sorted(self.tablets)]
        )

    def changed_since(self, sequence: int, most: int) -> ChangedTablets | None:
        if sequence < len(self._changes) - self.kept:
            return None
        some = self._changes[sequence : sequence + most]
        there = sorted({each for each in some if each in self.tablets})
        gone = sorted({each for each in some if each not in self.tablets})
        return ChangedTablets(sequence + len(some), [self.tablets[each] for each in there], gone)

    def notify(self, changed: Callable[[], None]) -> None:
        self._changed = changed


class SpeakingNode:
    """A storage node of a directory: its real home and talk, and a store of the test."""

    def __init__(
        self, path: Path, store: HeldByTest | None = None, *, url: str = "", free: int = 0
    ) -> None:
        self.path = path
        self.free = free
        self.store = store or HeldByTest()
        self.url = url or f"http://{path.name}.example.com:8765"
        self.open()

    def open(self) -> None:
        """Start."""
        self.home = NodeHome.open(self.path, monotonic=lambda: 0.0)
        self.talk = HeartbeatTalk(self.home, self.store, self._registration, lambda: ())

    def restart(self) -> None:
        self.home.close()
        self.open()

    def _registration(self) -> NodeRegistration:
        room = DirectoryRoom(path=str(self.path), capacity=self.free, free=self.free)
        return NodeRegistration(
            url=self.url,
            host=self.path.name,
            directories=(room,) if self.free else (),
            call_key=CALL_KEY,
            before=self.home.before,
        )

    @property
    def uuid(self) -> str:
        return self.home.start.uuid

    def say(self, master: NodeManager) -> NodeHeartbeatAnswer:
        """One heartbeat and its answer."""
        answer = master.heartbeat(self.talk.next())
        self.talk.answered(answer)
        return answer

    def settle(self, master: NodeManager) -> list[NodeHeartbeat]:
        """Speak until there is nothing more to say; returns what was said."""
        said = []
        more: float | None = 0.0
        while more is not None:
            said.append(self.talk.next())
            more = self.talk.answered(master.heartbeat(said[-1]))
            assert len(said) < 1000
        return said

    def close(self) -> None:
        self.home.close()


def held_by(master: NodeManager, uuid: str) -> list[ReportedTablet]:
    """What the master believes of a node."""
    (found,) = [each for each in master.nodes() if each.row.uuid == uuid]
    assert found.heard is not None
    return list(found.heard.reports.held.tablets())


def as_it_stands(store: HeldByTest) -> Sequence[ReportedTablet]:
    return store.held().tablets
