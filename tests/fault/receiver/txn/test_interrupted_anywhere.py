"""Whatever is interrupted in a transaction, at any place where a signal is heard: the rest goes on.

After each place: readers are answered, each transaction is there whole or not at all, the next
commit is made, nothing stays behind its lease, and the log has what was seen.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from common.errors import BusyError, FailedSyncError, ReadOnlyError, TsferryError
from receiver.metadata.commit import committer, draft
from receiver.metadata.engine import Engine
from receiver.metadata.sql.executing import execute
from receiver.metadata.state import lock
from receiver.txn import txn, txn_manager, txn_operator, txn_readers, txn_store
from receiver.txn.txn_manager import TxnManager
from tests.support import tiers
from tests.support.procs import BOUND

MODULES = frozenset(
    each.__file__
    for each in (committer, draft, lock, txn, txn_manager, txn_operator, txn_readers, txn_store)
)
WHOLE = {
    "one": {"root.g.a.one"},
    "many": {"root.g.a.many", "root.g.b.many", "key many"},
    "looked": {"root.g.c.looked", "root.g.c.more"},
    "caught": {"root.g.d.caught"},
    "plain": {"root.g.e.plain"},
}
WRITING = {"Committer._write", "Committer._make_visible", "Reading.writing"}


class Signal(BaseException):
    """What a handler of a signal raises."""


class Shot:
    """Raises at one of the places: the begin of a function, and behind a call out of Python."""

    def __init__(self, place: int, kind: type[BaseException]) -> None:
        self.left = place
        self.kind = kind
        self.heard = self.function = ""

    def __call__(self, frame, event: str, called) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or code.co_filename not in MODULES:
            return
        if code.co_name == "__exit__" and event == "call":
            return  # Python itself hears signals there, whatever the function says
        self.left -= 1
        if self.left == 0:
            self.function = code.co_qualname
            self.heard = f"{event} {getattr(called, '__name__', '')} in {self.function}"
            raise self.kind

    @contextmanager
    def fired(self) -> Iterator[None]:
        # No memory is an error like others for whoever writes for others.
        with suppress(Signal, MemoryError, BusyError, FailedSyncError, ReadOnlyError):
            sys.setprofile(self)
            try:
                yield
            finally:
                sys.setprofile(None)


class Place:
    """An engine and its transactions; what was acknowledged."""

    def __init__(self, directory: Path) -> None:
        self.now = 0.0
        self.engine = Engine.open(directory, background=False)
        self.engine.set_storage_group("root.g")
        self.manager = TxnManager(self.engine, clock=lambda: self.now)
        self.told: set[str] = set()

    def run(self) -> None:
        for each in (self.one, self.many, self.looked, self.caught, self.plain):
            each()
            self.told.add(each.__name__)

    def one(self) -> None:
        with self.manager.transaction() as txn:
            txn.database.create_series("root.g.a.one", "FLOAT")

    def many(self) -> None:
        with self.manager.transaction() as txn:
            txn.database.create_series("root.g.a.many", "FLOAT", tags={"unit": "C"})
            txn.keys.save("many", "x")
            txn.database.create_series("root.g.b.many", "FLOAT")

    def looked(self) -> None:
        with self.manager.transaction() as txn:
            txn.database.create_series("root.g.c.looked", "FLOAT")
            assert len(list(execute(txn.database, "show timeseries root.g.c.*"))) == 1
            txn.database.create_series("root.g.c.more", "FLOAT")

    def caught(self) -> None:
        """Whoever holds it catches the signal of a statement, and goes on."""
        txn = self.manager.begin()
        stopped: BaseException | None = None
        for statement in (
            lambda: txn.database.create_series("root.g.d.caught", "FLOAT"),
            lambda: txn.database.set_alias("root.g.d.caught", "other"),
        ):
            try:
                statement()
            except (Signal, MemoryError) as signal:
                stopped = signal
            except TsferryError:
                assert stopped is not None
        try:
            txn.commit()
        except TsferryError as error:
            stopped = stopped or error
            with suppress(TsferryError):
                txn.rollback()
        if stopped is not None:
            raise stopped

    def plain(self) -> None:
        self.engine.create_series("root.g.e.plain", "FLOAT")

    def judge(self) -> set[str]:
        """See that all goes on; what is there."""
        there = seen(self.engine)
        for name, parts in WHOLE.items():
            assert there & parts in (set(), parts), f"half of {name}"
            assert name not in self.told or parts <= there, f"{name} is lost"
        self.engine.create_series("root.g.next.s", "FLOAT")
        with self.manager.transaction() as txn:
            txn.database.create_series("root.g.next.t", "FLOAT")
        self.now += 1000
        assert self.manager.running() == []
        assert not self.manager._held
        assert not self.manager._pins
        assert not self.manager._forks
        return seen(self.engine)


def seen(engine: Engine) -> set[str]:
    with engine.reading() as state:
        keys, _ = state.keys.load_with_prefix("", None)
    return {row[0] for row in execute(engine, "show timeseries root.**")} | {
        f"key {key}" for key in keys
    }


def beside(work: Callable[[], object]) -> object:
    """Done by another thread, which does not wait for ever."""
    found: list[object] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(BOUND / 10)
    assert not thread.is_alive(), "it waits for ever"
    if raised:
        raise raised[0]
    return found[0]


def interrupted_at(number: int, kind: type[BaseException], directory: Path) -> str:
    place, shot = Place(directory), Shot(number, kind)
    with shot.fired():
        place.run()
    if not shot.heard:
        place.engine.close()
        return ""
    try:
        if place.engine.failed:  # only where something of it may be in the log
            assert shot.function.split(".<locals>")[0] in WRITING
        there = None if place.engine.failed else beside(place.judge)
        beside(place.engine.close)
        with Engine.open(directory, background=False) as again:
            found = seen(again)
        assert there is None or found == there
        for name, parts in WHOLE.items():
            assert found & parts in (set(), parts), f"half of {name}"
            assert name not in place.told or parts <= found, f"{name} is lost"
    except BaseException as error:
        error.add_note(f"signal {number}: {shot.heard}")
        raise
    return shot.heard


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Signal, MemoryError])
def test_wherever_a_transaction_is_cut_off_it_is_whole_or_nothing_and_others_go_on(kind, tmp_path):
    step = 1 if tiers.is_long() else 31
    for number in itertools.count(1 + tiers.seed() % step, step):
        if not interrupted_at(number, kind, tmp_path / str(number)):
            break
    assert number > 200
